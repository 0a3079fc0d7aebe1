package entities

import "time"

// This file defines how errors of checks are handled (D16): retries with backoff, and a notification after several errors in a row.

const (
	firstNews   = 3               // errors in a row
	longestTry  = 5 * time.Minute // maximum time between retries, unless the interval of the check is longer
	doublings   = 10
	checkPeriod = 30 * time.Second // for a check without an interval
)

// ErrorsAreNews reports whether to notify users of this many errors in a row: of the third, and at each doubling after.
func ErrorsAreNews(n int) bool {
	for n > firstNews && n%2 == 0 {
		n /= 2
	}
	return n == firstNews
}

// ErrorsUntold reports whether to notify users of n errors in a row, if they were last notified of fewer.
func ErrorsUntold(n, told int) bool { return n >= firstNews && n >= 2*told }

// ErrorPause returns the time before a check is evaluated again after n errors in a row.
func ErrorPause(interval time.Duration, n int) time.Duration {
	if interval <= 0 {
		interval = checkPeriod
	}
	return min(interval<<min(max(n, 1)-1, doublings), max(longestTry, interval))
}

// NextTry returns when a check is evaluated next. After n errors in a row, the next try was due at then. Further tries since may have
// failed without a notification.
func NextTry(interval time.Duration, n int, then, now time.Time) time.Time {
	for ; !then.After(now); n++ {
		then = then.Add(ErrorPause(interval, n+1))
	}
	return then
}
