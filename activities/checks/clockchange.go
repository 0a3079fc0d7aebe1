package checks

import (
	"fmt"
	"time"
)

// clockNote says how a change of the clock affects the windows between now and the next opening, or "": a window that has no time on a day,
// one that opens late, or one whose time comes a second time.
func (c *calendar) clockNote(now time.Time, open span) string {
	last := dateOf(open.from.In(c.location))
	for d := dateOf(now.In(c.location)).plus(-1); !d.at(0).After(last.at(0)); d = d.plus(1) {
		if _, holiday := c.holidays.nameOf(d); holiday {
			continue
		}
		for _, w := range c.windows {
			if !w.days[d.weekday()] {
				continue
			}
			if note := c.changeOf(d, w, now, open.from); note != "" {
				return note
			}
		}
	}
	return ""
}

// changeOf is clockNote for one window of a day.
func (c *calendar) changeOf(d date, w window, now, opens time.Time) string {
	from, to := instant(d.at(w.from), c.location), instant(d.at(w.to), c.location)
	switch wall := wallClock(now, c.location); {
	case !from.Before(now) && !from.After(opens) && !from.Before(to):
		return fmt.Sprintf("no %s on %s: %s", w, dayName(d), changeAt(from))
	case from.Equal(opens) && wallClock(from, c.location).After(d.at(w.from)):
		return changeAt(from)
	case !now.Before(to) && !wall.Before(d.at(w.from)) && wall.Before(d.at(w.to)):
		return fmt.Sprintf("%s comes twice on %s, and was open the first time", w, dayName(d))
	}
	return ""
}

// changeAt says how the clock changes at a moment: the clock goes from 01:00 to 02:00.
func changeAt(at time.Time) string {
	_, before := at.Add(-time.Second).Zone()
	old, next := at.UTC().Add(time.Duration(before)*time.Second), wallClock(at, at.Location())
	layout := "15:04"
	if dateOf(old) != dateOf(next) {
		layout = "Mon 2 Jan 15:04"
	}
	return fmt.Sprintf("the clock goes from %s to %s", old.Format(layout), next.Format(layout))
}

// wallClock is what a clock shows at a moment, in the form of a UTC time, as of date.at.
func wallClock(at time.Time, in *time.Location) time.Time {
	_, offset := at.In(in).Zone()
	return at.UTC().Add(time.Duration(offset) * time.Second)
}

func dayName(d date) string { return d.at(0).Format("Mon 2 Jan") }

func (w window) String() string {
	if w.to-w.from == 24*time.Hour {
		return "hours"
	}
	clock := func(since time.Duration) string { return date{2000, 1, 1}.at(since % (24 * time.Hour)).Format("15:04") }
	return clock(w.from) + "-" + clock(w.to)
}
