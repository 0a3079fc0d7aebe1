package checks_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
)

// nights are dates on which clocks change, and one on which none does.
var nights = map[string][]string{
	"Europe/Paris":        {"2026-03-29", "2026-10-25", "2028-02-29"},
	"America/New_York":    {"2026-03-08", "2026-11-01", "2026-12-31"},
	"Australia/Lord_Howe": {"2026-04-05", "2026-10-04", "2026-06-30"},
	"Africa/Cairo":        {"2026-04-24", "2026-10-29"}, // at midnight
	"Pacific/Apia":        {"2011-12-30", "2011-09-24"}, // a skipped day
}

const days = 9 // number of days that the brute force searches

// bruteForce is a calendar that is evaluated minute by minute. It knows the highest time that wall clocks have shown so far, and nothing
// else of time zones.
type bruteForce struct {
	def  entities.AllowedTimes
	rows []bruteForceWindow
}

type bruteForceWindow struct {
	days     []time.Weekday
	from, to time.Duration
}

func (s bruteForce) open(t, highest time.Time) bool {
	day := highest.Truncate(24 * time.Hour)
	if slices.Contains(s.def.Holidays, day.Format(time.DateOnly)) {
		return false
	}
	for _, f := range s.def.Freezes {
		from, err := time.Parse("2006-01-02T15:04", f.From)
		to, err2 := time.Parse(time.DateOnly, f.To)
		if err != nil || err2 != nil {
			panic(fmt.Sprint(err, err2))
		}
		if !highest.Before(from) && highest.Before(to.AddDate(0, 0, 1)) {
			return false
		}
	}
	for _, w := range s.rows {
		for _, begins := range []time.Time{day, day.AddDate(0, 0, -1)} {
			if slices.Contains(w.days, begins.Weekday()) && !slices.Contains(s.def.Holidays, begins.Format(time.DateOnly)) &&
				!highest.Before(begins.Add(w.from)) && highest.Before(begins.Add(w.to)) {
				return true
			}
		}
	}
	return false
}

// next tries every minute. It returns whether the calendar is open now, and the next minute at which that changes.
func (s bruteForce) next(in *time.Location, now time.Time) (open bool, change time.Time) {
	var highest time.Time
	for t := now.AddDate(0, 0, -3); t.Before(now.AddDate(0, 0, days)); t = t.Add(time.Minute) {
		local := t.In(in)
		wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC)
		if wall.After(highest) {
			highest = wall
		}
		isOpen := s.open(t, highest)
		switch {
		case t.Equal(now):
			open = isOpen
		case t.After(now) && isOpen != open:
			return open, t
		}
	}
	return open, time.Time{}
}

func drawCalendar(t *rapid.T, zone string, night time.Time) bruteForce {
	s := bruteForce{def: entities.AllowedTimes{TimeZone: zone}}
	minute := rapid.Custom(func(t *rapid.T) time.Duration {
		// Most of them are in the hours in which clocks change.
		hour := rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 23)).Draw(t, "hour")
		return time.Duration(hour)*time.Hour + time.Duration(rapid.SampledFrom([]int{0, 1, 10, 29, 30, 59}).Draw(t, "minute"))*time.Minute
	})
	clock := func(d time.Duration) string { return fmt.Sprintf("%02d:%02d", int(d.Hours()), int(d.Minutes())%60) }
	for range rapid.IntRange(1, 3).Draw(t, "windows") {
		first, last := rapid.IntRange(0, 6).Draw(t, "first"), rapid.IntRange(0, 6).Draw(t, "last")
		w := bruteForceWindow{from: minute.Draw(t, "from"), to: minute.Draw(t, "to")}
		for d := first; ; d = (d + 1) % 7 {
			w.days = append(w.days, time.Weekday(d))
			if d == last {
				break
			}
		}
		text := entities.TimeWindow{Days: time.Weekday(first).String()[:3] + "-" + time.Weekday(last).String()}
		switch {
		case w.from == w.to:
			w.from, w.to = 0, 24*time.Hour
		default:
			text.Hours = clock(w.from) + "-" + clock(w.to)
		}
		if w.to < w.from {
			w.to += 24 * time.Hour
		}
		s.rows, s.def.Windows = append(s.rows, w), append(s.def.Windows, text)
	}
	day := func(t *rapid.T, label string) time.Time {
		return night.AddDate(0, 0, rapid.IntRange(-4, 4).Draw(t, label))
	}
	for range rapid.IntRange(0, 2).Draw(t, "holidays") {
		s.def.Holidays = append(s.def.Holidays, day(t, "holiday").Format(time.DateOnly))
	}
	for range rapid.IntRange(0, 2).Draw(t, "freezes") {
		from := day(t, "freeze").Add(minute.Draw(t, "freeze at"))
		to := from.AddDate(0, 0, rapid.IntRange(0, 3).Draw(t, "freeze for"))
		s.def.Freezes = append(s.def.Freezes, entities.Freeze{From: from.Format("2006-01-02T15:04"), To: to.Format(time.DateOnly)})
	}
	return s
}

// The state and its next change are the same as those found by trying every minute.
func TestTimesAgainstEveryMinute_A20(t *testing.T) {
	t.Parallel()
	zones := slices.Sorted(func(yield func(string) bool) {
		for zone := range nights {
			if !yield(zone) {
				return
			}
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		in, err := time.LoadLocation(zone)
		require.NoError(t, err)
		night, err := time.Parse(time.DateOnly, rapid.SampledFrom(nights[zone]).Draw(t, "night"))
		require.NoError(t, err)
		s := drawCalendar(t, zone, night)
		now := night.Add(time.Duration(rapid.IntRange(-3*24*60, 3*24*60).Draw(t, "now")) * time.Minute)

		r, err := checks.Times(s.def, now)
		require.NoError(t, err)
		open, change := s.next(in, now)
		require.Equal(t, open, r.Verdict == entities.Pass, "%s at %s: %s", zone, now, r.Reason)
		if change.IsZero() {
			require.False(t, !r.Next.IsZero() && r.Next.Before(now.AddDate(0, 0, days)), "no change within %d days, but Next is %s", days, r.Next)
			return
		}
		require.Equal(t, change.UTC().Format(time.RFC3339), r.Next.Format(time.RFC3339), "%s", r.Reason)
		then, err := checks.Times(s.def, r.Next)
		require.NoError(t, err)
		require.NotEqual(t, r.Verdict, then.Verdict, "the verdict does not change at Next")
	})
}
