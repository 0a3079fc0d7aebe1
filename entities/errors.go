package entities

import "time"

// This file defines how errors of checks are handled (D16): retries with backoff, and a notification after several errors in a row.

const (
	firstNotification    = 3               // errors in a row
	maxRetryInterval     = 5 * time.Minute // maximum time between retries, unless the interval of the check is longer
	maxDoublings         = 10
	defaultCheckInterval = 30 * time.Second // for a check without an interval
)

// IsNotificationCount reports whether to notify users of this many errors in a row: of the third, and at each doubling after.
func IsNotificationCount(n int) bool {
	for n > firstNotification && n%2 == 0 {
		n /= 2
	}
	return n == firstNotification
}

// NeedsNotification reports whether to notify users of n errors in a row, if they were last notified of fewer.
func NeedsNotification(n, notified int) bool { return n >= firstNotification && n >= 2*notified }

// RetryInterval returns the time before a check is evaluated again after n errors in a row.
func RetryInterval(interval time.Duration, n int) time.Duration {
	if interval <= 0 {
		interval = defaultCheckInterval
	}
	return min(interval<<min(max(n, 1)-1, maxDoublings), max(maxRetryInterval, interval))
}

// RetryAt returns when a check is evaluated again after n errors in a row, the last of them at that time.
func RetryAt(interval time.Duration, n int, last time.Time) time.Time {
	return last.Add(RetryInterval(interval, n))
}

// NextRetry returns when a check is evaluated next. After n errors in a row, the next try was due at that time (due). Further tries since
// may have failed without a notification.
func NextRetry(interval time.Duration, n int, due, now time.Time) time.Time {
	for ; !due.After(now); n++ {
		due = due.Add(RetryInterval(interval, n+1))
	}
	return due
}
