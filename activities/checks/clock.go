package checks

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // the worker's image may lack time zones
)

// date is a day of the calendar, without a time zone.
type date struct {
	year  int
	month time.Month
	day   int
}

func dateOf(t time.Time) date {
	y, m, d := t.Date()
	return date{y, m, d}
}

func parseDate(text string) (date, error) {
	t, err := time.Parse(time.DateOnly, text)
	return dateOf(t), err
}

// plus adds days, which may not have 24 hours.
func (d date) plus(days int) date {
	return dateOf(time.Date(d.year, d.month, d.day+days, 0, 0, 0, 0, time.UTC))
}

func (d date) weekday() time.Weekday { return d.at(0).Weekday() }

// at returns a wall-clock time, as the duration since midnight, in the form of a UTC time.
func (d date) at(clock time.Duration) time.Time {
	return time.Date(d.year, d.month, d.day, 0, 0, 0, 0, time.UTC).Add(clock)
}

func (d date) String() string { return fmt.Sprintf("%04d-%02d-%02d", d.year, d.month, d.day) }

// instant returns the first moment at which the wall clock of a time zone shows that time or a later one. If 02:30 does not exist on a
// day, it is the moment of the clock change; if it exists twice, it is the first one.
func instant(wall time.Time, in *time.Location) time.Time {
	// No time zone differs from UTC by more than a day.
	for at := wall.Add(-26 * time.Hour); ; {
		_, end := at.In(in).ZoneBounds()
		// Where no table of the zone reaches, ZoneBounds takes a year for 365 days: on December 31 of a leap year, its end has passed.
		if !end.IsZero() && !end.After(at) {
			end = at.Add(time.Hour)
		}
		_, offset := at.In(in).Zone()
		shown := wall.Add(-time.Duration(offset) * time.Second)
		if shown.Before(at) {
			shown = at // the clock skipped it
		}
		if end.IsZero() || shown.Before(end) {
			return shown.In(in)
		}
		at = end
	}
}

// parseClock parses "09:00" as the duration since midnight; 24:00 is the end of a day.
func parseClock(text string) (time.Duration, error) {
	h, m, ok := strings.Cut(strings.TrimSpace(text), ":")
	hour, err := strconv.ParseUint(h, 10, 8)
	minute, err2 := strconv.ParseUint(m, 10, 8)
	if !ok || err != nil || err2 != nil || len(m) != 2 || minute > 59 || hour > 24 || hour == 24 && minute > 0 {
		return 0, fmt.Errorf("invalid time of day %q; expected 09:00", text)
	}
	return time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute, nil
}

// days is a set of days of the week.
type days [7]bool

var dayNames = [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// parseDays parses "Mon-Thu", "Sat,Sun", "Fri-Mon,Wed"; empty is every day.
func parseDays(text string) (days, error) {
	var set days
	if strings.TrimSpace(text) == "" {
		return days{true, true, true, true, true, true, true}, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, span := strings.Cut(part, "-")
		first, err := parseDay(from)
		if err != nil {
			return set, err
		}
		last := first
		if span {
			if last, err = parseDay(to); err != nil {
				return set, err
			}
		}
		for d := first; ; d = (d + 1) % 7 {
			set[d] = true
			if d == last {
				break
			}
		}
	}
	return set, nil
}

func parseDay(text string) (int, error) {
	name := strings.ToLower(strings.TrimSpace(text))
	for i, short := range dayNames {
		if name == short || name == strings.ToLower(time.Weekday(i).String()) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("invalid day of the week %q; expected Mon, Mon-Thu or Sat,Sun", text)
}
