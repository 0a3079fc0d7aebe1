package entities

import "time"

// This file says how errors of checks are taken (D16): tried again later and later, and news after several in a row.

const (
	firstNews   = 3               // errors in a row
	longestTry  = 5 * time.Minute // between tries of what cannot be evaluated, unless its interval is longer
	doublings   = 10
	checkPeriod = 30 * time.Second // where a check says no interval
)

// ErrorsAreNews tells whether people hear of so many errors in a row: of the third, and of each doubling after.
func ErrorsAreNews(n int) bool {
	for n > firstNews && n%2 == 0 {
		n /= 2
	}
	return n == firstNews
}

// ErrorsUntold tells whether people are to hear of so many errors in a row who were told of fewer.
func ErrorsUntold(n, told int) bool { return n >= firstNews && n >= 2*told }

// ErrorPause is the time before a check is evaluated again after n errors in a row.
func ErrorPause(interval time.Duration, n int) time.Duration {
	if interval <= 0 {
		interval = checkPeriod
	}
	return min(interval<<min(max(n, 1)-1, doublings), max(longestTry, interval))
}

// NextTry is when a check is evaluated again about which this was known last: after n errors in a row it was to be tried
// again then. Between two pieces of news there may have been further tries, which failed too.
func NextTry(interval time.Duration, n int, then, now time.Time) time.Time {
	for ; !then.After(now); n++ {
		then = then.Add(ErrorPause(interval, n+1))
	}
	return then
}
