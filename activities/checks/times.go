package checks

import (
	"context"
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
)

// allowedTimes passes within its windows and outside of holidays and freezes (A20).
type allowedTimes struct{}

func (allowedTimes) Evaluate(_ context.Context, a Request) (entities.CheckReading, error) {
	if a.Definition.AllowedTimes == nil {
		return incomplete(a)
	}
	return Times(*a.Definition.AllowedTimes, a.Now)
}

// Times evaluates a calendar at a moment: PASS while it is open, with the closing time as Next; WAIT while it is closed, with the opening
// time; FAIL if it does not open within five years. An error means an invalid calendar. It is a pure function; At is not set.
func Times(d entities.AllowedTimes, now time.Time) (entities.CheckReading, error) {
	c, err := readCalendar(d)
	if err != nil {
		return entities.CheckReading{}, err
	}
	open, ok := c.openSpan(now)
	why := c.closedReason(now)
	switch {
	case !ok:
		if why != "" {
			why = " (" + why + ")"
		}
		return fail("it does not open within %d years%s", horizonYears, why)
	case !now.Before(open.from):
		reading, err := pass("open, without a closing time within %d years", horizonYears)
		if !open.to.IsZero() {
			reading.Reason, reading.Next = "open until "+c.format(open.to, now), open.to.UTC()
		}
		return reading, err
	}
	if why == "" {
		why = "outside its hours"
		if note := c.clockNote(now, open); note != "" {
			why += "; " + note
		}
	}
	reading, err := wait("opens %s (%s)", c.format(open.from, now), why)
	reading.Next = open.from.UTC()
	return reading, err
}

// format formats a local time, with the date if the day of the week is ambiguous.
func (c *calendar) format(t, now time.Time) string {
	t, now = t.In(c.location), now.In(c.location)
	layout := "Mon 15:04"
	if !t.Before(instant(dateOf(now).plus(6).at(0), c.location)) {
		layout = "Mon 2 Jan 15:04"
	}
	if t.Year() != now.Year() {
		layout = "Mon 2 Jan 2006 15:04"
	}
	if t.Second() != 0 {
		layout += ":05"
	}
	zone, _ := t.Zone()
	return fmt.Sprintf("%s %s", t.Format(layout), zone)
}
