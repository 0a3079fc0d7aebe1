package compile

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/converge-engine/converge/intent/config"

	_ "time/tzdata"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// the same time zones on every machine

var (
	hoursRE   = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]-(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`)
	countryRE = regexp.MustCompile(`^[A-Z]{2}(-[A-Z0-9]{1,3})?$`)
	weekdays  = "Mon Tue Wed Thu Fri Sat Sun"
)

func (f *filling) allowedTimes(at string, a *config.AllowedTimes) *entities.AllowedTimes {
	times := &entities.AllowedTimes{
		TimeZone:         f.text(at+".timeZone", a.TimeZone, checkTimeZone),
		HolidayCountries: f.texts(at+".holidayCountries", a.HolidayCountries, checkCountry),
		Holidays:         f.texts(at+".holidays", a.Holidays, checkDate),
	}
	if len(a.Windows)+len(a.HolidayCountries)+len(a.Holidays)+len(a.Freezes) == 0 && !f.d.Faulty(at) {
		f.once(at, strict.Fault{Code: "missing-field", Message: "it is always open", Expected: `"windows", "holidayCountries", "holidays" or "freezes"`})
	}
	for i, w := range a.Windows {
		path := strict.Index(at+".windows", i)
		if w.Days == "" && w.Hours == "" && !f.d.Faulty(path) {
			f.once(path, strict.Fault{Code: "missing-field", Message: "the window is always open", Expected: `"days", "hours" or both`})
		}
		times.Windows = append(times.Windows, entities.TimeWindow{
			Days: f.text(path+".days", w.Days, checkDays), Hours: f.text(path+".hours", w.Hours, checkHours),
		})
	}
	for i, z := range a.Freezes {
		times.Freezes = append(times.Freezes, f.freeze(strict.Index(at+".freezes", i), z, times.TimeZone))
	}
	return times
}

func (f *filling) freeze(at string, z config.Freeze, zone string) entities.Freeze {
	freeze := entities.Freeze{
		From: f.text(at+".from", z.From, checkMoment), To: f.text(at+".to", z.To, checkMoment), Reason: f.text(at+".reason", z.Reason, nil),
	}
	place, err := time.LoadLocation(zone)
	if err != nil {
		return freeze // told
	}
	from, _, fromOK := moment(freeze.From, place)
	to, day, toOK := moment(freeze.To, place)
	if day {
		to = to.AddDate(0, 0, 1)
	}
	if fromOK && toOK && !from.Before(to) {
		f.late(at, z.From+z.To, strict.Fault{Code: "bad-value", Message: fmt.Sprintf("the freeze from %s to %s is empty", freeze.From, freeze.To), Expected: "an end after its beginning"})
	}
	return freeze
}

// moment reads a day, a local time or a time with its zone; day tells whether it was the first.
func moment(text string, in *time.Location) (t time.Time, day, ok bool) {
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339} {
		if t, err := time.ParseInLocation(layout, text, in); err == nil {
			return t, layout == time.DateOnly, true
		}
	}
	return time.Time{}, false, false
}

func checkTimeZone(text string) *strict.Fault {
	if _, err := time.LoadLocation(text); err == nil && text != "" && text != "Local" {
		return nil
	}
	return &strict.Fault{Code: "bad-value", Message: fmt.Sprintf("there is no time zone %q", strict.Clip(text)), Expected: "a name such as Europe/Paris or UTC"}
}

func checkCountry(text string) *strict.Fault {
	if countryRE.MatchString(text) {
		return nil
	}
	return &strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%q is no country", strict.Clip(text)), Expected: "two capital letters, as in FR, or with a region, as in DE-BY"}
}

func checkDate(text string) *strict.Fault {
	if _, err := time.Parse(time.DateOnly, text); err == nil {
		return nil
	}
	return &strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%q is no day", strict.Clip(text)), Expected: "one such as 2026-12-24"}
}

func checkMoment(text string) *strict.Fault {
	if _, _, ok := moment(text, time.UTC); ok {
		return nil
	}
	return &strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%q is no day and no time", strict.Clip(text)), Expected: "such as 2026-12-20, 2026-12-20T18:00 or 2026-12-20T18:00:00Z"}
}

func checkDays(text string) *strict.Fault {
	for _, part := range strings.Split(text, ",") {
		first, last, _ := strings.Cut(strings.TrimSpace(part), "-")
		for _, day := range []string{first, cmp.Or(last, first)} {
			if len(day) != 3 || !strings.Contains(weekdays, day) {
				return &strict.Fault{
					Code: "bad-value", Message: fmt.Sprintf("%q is no list of days", strict.Clip(text)), Expected: "such as Mon-Thu or Sat,Sun",
					Suggestion: nearestDay(text, day),
				}
			}
		}
	}
	return nil
}

// nearestDay is the text with a day that was written in another way.
func nearestDay(text, day string) string {
	for _, known := range strings.Fields(weekdays) {
		if len(day) >= 3 && strings.EqualFold(day[:3], known) {
			return strings.Replace(text, day, known, 1)
		}
	}
	return ""
}

func checkHours(text string) *strict.Fault {
	from, to, _ := strings.Cut(text, "-")
	if hoursRE.MatchString(text) && from != to {
		return nil
	}
	return &strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%q is no span of the day", strict.Clip(text)), Expected: `such as "09:00-16:00", or over midnight "22:00-06:00"`}
}
