package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
)

// Duration formats a duration in at most two units: 20s, 9m, 2h 5m, 2d 22h.
func Duration(d time.Duration) string {
	if d < 0 {
		d = -d
	}
	d = d.Round(time.Second)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 24*time.Hour:
		return pair(d, time.Hour, "h", time.Minute, "m")
	default:
		return pair(d, 24*time.Hour, "d", time.Hour, "h")
	}
}

func pair(d, big time.Duration, bigName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d%s", d/big, bigName)
	if rest := d % big / small; rest > 0 {
		text += fmt.Sprintf(" %d%s", rest, smallName)
	}
	return text
}

// clock formats t relative to ref, in ref's time zone: 10:50 CET on the same day, Mon 10:50 CET within six days, else Nov 12 10:50 CET,
// with the year if it differs. Seconds are for past events, or imminent ones.
func clock(t, ref time.Time, seconds bool) string {
	return stamp(t, ref, seconds) + t.In(ref.Location()).Format(" MST")
}

// stamp is clock without the zone, for log lines under a heading that names it.
func stamp(t, ref time.Time, seconds bool) string {
	t = t.In(ref.Location())
	layout := "15:04"
	if seconds {
		layout = "15:04:05"
	}
	day := func(x time.Time) time.Time {
		y, m, d := x.Date()
		return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	}
	days := int(day(t).Sub(day(ref)) / (24 * time.Hour))
	switch {
	case days == 0:
		return t.Format(layout)
	case days > -7 && days < 7:
		return t.Format("Mon " + layout)
	case t.Year() == ref.Year():
		return t.Format("Jan 2 " + layout)
	default:
		return t.Format("2006-01-02 " + layout)
	}
}

// ago writes "9m ago", or the absolute time if now is zero.
func ago(t, now time.Time) string {
	if now.IsZero() {
		return "at " + clock(t, now, false)
	}
	return Duration(now.Sub(t)) + " ago"
}

// since writes "since 10:41 (9m ago)", or nothing if the time is unknown.
func since(t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case now.IsZero():
		return "since " + clock(t, now, false)
	}
	return "since " + clock(t, now, false) + " (" + Duration(now.Sub(t)) + " ago)"
}

// at writes "at 10:53:40 (in 28s)", or "now" when it is due.
func at(t, now time.Time) string {
	if !t.After(now) {
		return "now"
	}
	return "at " + clock(t, now, t.Sub(now) < time.Hour) + " (in " + Duration(t.Sub(now)) + ")"
}

// joined joins the non-empty parts.
func joined(sep string, parts ...string) string {
	var nonEmpty []string
	for _, p := range parts {
		if p != "" {
			nonEmpty = append(nonEmpty, p)
		}
	}
	return strings.Join(nonEmpty, sep)
}

// shortest is the limit, in characters, from which on a message is cut in its middle: below it, its end says too little.
const shortest = 100

// oneLine puts a message on one line, and limits its length. A message keeps its end, which has its cause and the remedy.
func oneLine(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	r := []rune(text)
	switch {
	case len(r) <= limit:
		return text
	case limit < shortest:
		return string(r[:limit-1]) + "…"
	}
	head := limit / 3
	return string(r[:head]) + " … " + string(r[len(r)-(limit-head-len(" … ")):])
}

// plural writes "1 object", "2 objects".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// name returns the name of a service on the command line.
func name(s protocol.Status) string { return s.Application + "/" + s.Service }
