package checks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// span is the time from a moment until right before another.
type span struct {
	from, to time.Time
	why      string // reason, for a closed span
}

// calendar is a parsed AllowedTimes. It computes spans of real time and does not assume days of 24 hours.
type calendar struct {
	location *time.Location
	windows  []window
	holidays holidays
	freezes  []span
}

// window is open from a time of day until another one, on the same day or the next.
type window struct {
	days     days
	from, to time.Duration // since midnight of the day on which it opens
}

func readCalendar(d entities.AllowedTimes) (*calendar, error) {
	if d.TimeZone == "" || d.TimeZone == "Local" {
		return nil, errors.New("it has no time zone; expected a name such as Europe/Paris or UTC")
	}
	location, err := time.LoadLocation(d.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("time zone %q is unknown; expected a name such as Europe/Paris", d.TimeZone)
	}
	c := &calendar{location: location}
	for _, w := range d.Windows {
		read, err := readWindow(w)
		if err != nil {
			return nil, err
		}
		c.windows = append(c.windows, read)
	}
	if len(c.windows) == 0 { // always open, except on holidays and in freezes
		c.windows = []window{{days: days{true, true, true, true, true, true, true}, to: 24 * time.Hour}}
	}
	if c.holidays, err = readHolidays(d.HolidayCountries, d.Holidays); err != nil {
		return nil, err
	}
	for _, f := range d.Freezes {
		read, err := c.readFreeze(f)
		if err != nil {
			return nil, err
		}
		c.freezes = append(c.freezes, read)
	}
	return c, nil
}

func readWindow(w entities.TimeWindow) (window, error) {
	set, err := parseDays(w.Days)
	if err != nil {
		return window{}, err
	}
	read := window{days: set, to: 24 * time.Hour}
	if strings.TrimSpace(w.Hours) == "" {
		return read, nil
	}
	from, to, ok := strings.Cut(w.Hours, "-")
	if !ok {
		return window{}, fmt.Errorf("hours are %q; expected 09:00-16:00", w.Hours)
	}
	if read.from, err = parseClock(from); err != nil {
		return window{}, err
	}
	if read.to, err = parseClock(to); err != nil {
		return window{}, err
	}
	switch {
	case read.from == read.to || read.from == 24*time.Hour:
		return window{}, fmt.Errorf("hours %s have no length; omit them for a whole day", w.Hours)
	case read.to < read.from:
		read.to += 24 * time.Hour // past midnight
	}
	return read, nil
}

func (c *calendar) readFreeze(f entities.Freeze) (span, error) {
	from, err := c.moment(f.From, 0)
	if err != nil {
		return span{}, fmt.Errorf("freeze from: %w", err)
	}
	to, err := c.moment(f.To, 1) // the last day is frozen to its end
	if err != nil {
		return span{}, fmt.Errorf("freeze to: %w", err)
	}
	day, err := c.moment(f.To, 0)
	if err != nil {
		return span{}, fmt.Errorf("freeze to: %w", err)
	}
	if to.Before(from) || to.Equal(from) && day.Before(from) { // a time that the clock skips is valid
		return span{}, fmt.Errorf("freeze from %s ends at %s, before it begins", f.From, f.To)
	}
	why := f.Reason
	if why == "" {
		why = fmt.Sprintf("freeze from %s to %s", f.From, f.To)
	}
	return span{from, to, oneLine(why, 120)}, nil
}

// moment parses a date, a local time or RFC 3339. A date means its midnight plus that number of days.
func (c *calendar) moment(text string, later int) (time.Time, error) {
	text = strings.TrimSpace(text)
	if d, err := parseDate(text); err == nil {
		return instant(d.plus(later).at(0), c.location), nil
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04"} {
		if t, err := time.Parse(layout, text); err == nil {
			return instant(t, c.location), nil
		}
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.In(c.location), nil
	}
	return time.Time{}, fmt.Errorf("invalid time %q; expected 2026-12-20, 2026-12-20T18:00 or RFC 3339", text)
}

// closed lists the holidays and freezes from the first to the last day, both included, sorted by start.
func (c *calendar) closed(first, last date) []span {
	out := slices.Clone(c.freezes)
	for d := first; !d.at(0).After(last.at(0)); d = d.plus(1) {
		if name, ok := c.holidays.nameOf(d); ok {
			out = append(out, span{instant(d.at(0), c.location), instant(d.plus(1).at(0), c.location), name})
		}
	}
	slices.SortStableFunc(out, func(a, b span) int { return a.from.Compare(b.from) })
	return out
}

// opened lists the windows that open from the first to the last day, both included, sorted by start; adjacent ones are merged. A window
// belongs to the day on which it opens. None opens on a holiday, not even for its part after midnight.
func (c *calendar) opened(first, last date) []span {
	var out []span
	for d := first; !d.at(0).After(last.at(0)); d = d.plus(1) {
		if _, holiday := c.holidays.nameOf(d); holiday {
			continue
		}
		for _, w := range c.windows {
			if !w.days[d.weekday()] {
				continue
			}
			s := span{from: instant(d.at(w.from), c.location), to: instant(d.at(w.to), c.location)}
			if s.from.Before(s.to) { // not a window that the clock skips
				out = append(out, s)
			}
		}
	}
	return merged(out)
}

// merged sorts spans and merges adjacent ones.
func merged(spans []span) []span {
	slices.SortStableFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	var out []span
	for _, s := range spans {
		if n := len(out); n > 0 && !out[n-1].to.Before(s.from) {
			if s.to.After(out[n-1].to) {
				out[n-1].to = s.to
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// without removes the closed spans from spans; both are sorted.
func without(spans, closed []span) []span {
	var out []span
	for _, s := range spans {
		for _, c := range closed {
			if !c.from.Before(s.to) {
				break
			}
			if s.from.Before(c.from) {
				out = append(out, span{from: s.from, to: c.from})
			}
			if s.from.Before(c.to) {
				s.from = c.to
			}
			if !s.from.Before(s.to) {
				break
			}
		}
		if s.from.Before(s.to) {
			out = append(out, s)
		}
	}
	return out
}

const (
	horizonYears = 5  // a later opening counts as never
	stride       = 28 // days per search step
)

// openSpan returns the whole first open span that ends after now; it may have begun before now. ok is false if there is none up to the
// horizon. A span that reaches the horizon has no end.
func (c *calendar) openSpan(now time.Time) (open span, ok bool) {
	horizon := dateOf(now.In(c.location)).plus(horizonYears * 366)
	var found []span
	// It starts two days earlier: a window of yesterday may still be open, and another may touch it.
	for first := dateOf(now.In(c.location)).plus(-2); first.at(0).Before(horizon.at(0)); first = first.plus(stride) {
		last := first.plus(stride - 1)
		opens := without(c.opened(first, last), c.closed(first, last.plus(2)))
		found = merged(append(found, opens...))
		found = slices.DeleteFunc(found, func(s span) bool { return !s.to.After(now) })
		// The first span is complete if it ends before the possible start of the next step's spans.
		if len(found) > 0 && found[0].to.Before(instant(last.at(24*time.Hour), c.location)) {
			return found[0], true
		}
	}
	if len(found) == 0 {
		return span{}, false
	}
	found[0].to = time.Time{}
	return found[0], true
}

// closedReason returns the reason why the calendar is closed at a moment: a current holiday or freeze, or the one that closes the next
// window. Empty: the moment is between windows.
func (c *calendar) closedReason(now time.Time) string {
	if reason := c.closureAt(now); reason != "" {
		return reason
	}
	open := calendar{location: c.location, windows: c.windows}
	next, ok := open.openSpan(now)
	if !ok {
		return ""
	}
	if next.from.Before(now) {
		next.from = now
	}
	return c.closureAt(next.from)
}

func (c *calendar) closureAt(at time.Time) string {
	day := dateOf(at.In(c.location))
	for _, s := range c.closed(day.plus(-1), day) {
		if !at.Before(s.from) && at.Before(s.to) {
			return s.why
		}
	}
	return ""
}
