package checks_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
)

func parseTime(t *testing.T, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return v
}

// office is Monday to Thursday in Paris.
func office() entities.AllowedTimes {
	return entities.AllowedTimes{TimeZone: "Europe/Paris", Windows: []entities.TimeWindow{{Days: "Mon-Thu", Hours: "09:00-16:00"}}}
}

func newYear() entities.AllowedTimes {
	d := office()
	d.Freezes = []entities.Freeze{{From: "2026-12-19", To: "2027-01-03", Reason: "New Year freeze: office closed"}}
	return d
}

func daily(zone, hours string) entities.AllowedTimes {
	return entities.AllowedTimes{TimeZone: zone, Windows: []entities.TimeWindow{{Hours: hours}}}
}

func changed(d entities.AllowedTimes, change func(*entities.AllowedTimes)) entities.AllowedTimes {
	change(&d)
	return d
}

func TestTimes_A20(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		def  entities.AllowedTimes
		now  string
		want string // verdict, next, reason
	}{
		{"in the window", office(), "2026-11-23T10:00:00+01:00", "PASS 2026-11-23T15:00:00Z open until Mon 16:00 CET"},
		{"as it opens", office(), "2026-11-23T09:00:00+01:00", "PASS 2026-11-23T15:00:00Z open until Mon 16:00 CET"},
		{"right before", office(), "2026-11-23T08:59:59+01:00", "WAIT 2026-11-23T08:00:00Z opens Mon 09:00 CET (outside its hours)"},
		{"as it closes", office(), "2026-11-23T16:00:00+01:00", "WAIT 2026-11-24T08:00:00Z opens Tue 09:00 CET (outside its hours)"},
		{"over the weekend", office(), "2026-11-26T16:00:00+01:00", "WAIT 2026-11-30T08:00:00Z opens Mon 09:00 CET (outside its hours)"},

		{"in a freeze over New Year", newYear(), "2026-12-31T10:00:00+01:00", "WAIT 2027-01-04T08:00:00Z opens Mon 4 Jan 2027 09:00 CET (New Year freeze: office closed)"},
		{"before it, when the next window is in it", newYear(), "2026-12-18T10:00:00+01:00", "WAIT 2027-01-04T08:00:00Z opens Mon 4 Jan 2027 09:00 CET (New Year freeze: office closed)"},
		{"its last day is frozen to the end", changed(newYear(), func(d *entities.AllowedTimes) { d.Windows = nil }), "2027-01-03T22:59:59Z", "WAIT 2027-01-03T23:00:00Z opens Mon 00:00 CET (New Year freeze: office closed)"},
		{"a freeze by local time ends then", changed(daily("Europe/Paris", ""), func(d *entities.AllowedTimes) {
			d.Freezes = []entities.Freeze{{From: "2026-12-20T18:00", To: "2026-12-21T09:30"}}
		}), "2026-12-20T20:00:00+01:00", "WAIT 2026-12-21T08:30:00Z opens Mon 09:30 CET (freeze from 2026-12-20T18:00 to 2026-12-21T09:30)"},
		{"a freeze by RFC 3339", changed(daily("Europe/Paris", ""), func(d *entities.AllowedTimes) {
			d.Freezes = []entities.Freeze{{From: "2026-12-20T18:00:00-05:00", To: "2026-12-21T00:00:00Z", Reason: "game day"}}
		}), "2026-12-20T23:30:00Z", "WAIT 2026-12-21T00:00:00Z opens Mon 01:00 CET (game day)"},
		{"a freeze in the middle of a window closes it", changed(office(), func(d *entities.AllowedTimes) {
			d.Freezes = []entities.Freeze{{From: "2026-11-23T12:00", To: "2026-11-23T13:00"}}
		}), "2026-11-23T10:00:00+01:00", "PASS 2026-11-23T11:00:00Z open until Mon 12:00 CET"},

		{"over midnight, before", daily("Europe/Paris", "22:00-06:00"), "2026-11-23T23:00:00+01:00", "PASS 2026-11-24T05:00:00Z open until Tue 06:00 CET"},
		{"over midnight, after", daily("Europe/Paris", "22:00-06:00"), "2026-11-24T05:00:00+01:00", "PASS 2026-11-24T05:00:00Z open until Tue 06:00 CET"},
		{"over midnight belongs to its first day", entities.AllowedTimes{TimeZone: "UTC", Windows: []entities.TimeWindow{{Days: "Thu", Hours: "22:00-06:00"}}}, "2026-11-27T05:00:00Z", "PASS 2026-11-27T06:00:00Z open until Fri 06:00 UTC"},
		{"windows that touch are one", entities.AllowedTimes{TimeZone: "UTC", Windows: []entities.TimeWindow{{Days: "Sat,Sun"}, {Days: "mon", Hours: "0:00-08:00"}}}, "2026-11-28T12:00:00Z", "PASS 2026-11-30T08:00:00Z open until Mon 08:00 UTC"},
		{"a holiday four weeks from now ends what is open all the time", changed(daily("UTC", "12:00-06:00"), func(d *entities.AllowedTimes) {
			d.Windows, d.Holidays = append(d.Windows, entities.TimeWindow{Hours: "03:00-15:00"}), []string{"2026-11-27"}
		}), "2026-11-01T10:00:00Z", "PASS 2026-11-27T00:00:00Z open until Fri 27 Nov 00:00 UTC"},
		{"no windows: always", entities.AllowedTimes{TimeZone: "UTC"}, "2026-11-28T12:00:00Z", "PASS - open, without a closing time within 5 years"},
		{"days over the end of the week", entities.AllowedTimes{TimeZone: "UTC", Windows: []entities.TimeWindow{{Days: "Sat-Mon"}}}, "2026-11-24T00:00:00Z", "WAIT 2026-11-28T00:00:00Z opens Sat 00:00 UTC (outside its hours)"},

		// 2026-03-29 in Paris: 01:59:59 CET, 03:00 CEST. 2026-10-25: 02:59:59 CEST, 02:00 CET.
		{"Paris, a night without 02:30", daily("Europe/Paris", "02:30-05:00"), "2026-03-29T01:59:00+01:00", "WAIT 2026-03-29T01:00:00Z opens Sun 03:00 CEST (outside its hours; the clock goes from 02:00 to 03:00)"},
		{"Paris, it is open from the jump on", daily("Europe/Paris", "02:30-05:00"), "2026-03-29T03:00:00+02:00", "PASS 2026-03-29T03:00:00Z open until Sun 05:00 CEST"},
		{"Paris, a window in the skipped hour", daily("Europe/Paris", "02:10-02:50"), "2026-03-29T01:00:00+01:00", "WAIT 2026-03-30T00:10:00Z opens Mon 02:10 CEST (outside its hours; no 02:10-02:50 on Sun 29 Mar: the clock goes from 02:00 to 03:00)"},
		{"Paris, a night with two: at the first", daily("Europe/Paris", "02:30-05:00"), "2026-10-25T02:29:00+02:00", "WAIT 2026-10-25T00:30:00Z opens Sun 02:30 CEST (outside its hours)"},
		{"Paris, open through the second", daily("Europe/Paris", "02:30-05:00"), "2026-10-25T02:10:00+01:00", "PASS 2026-10-25T04:00:00Z open until Sun 05:00 CET"},
		{"Paris, once only", daily("Europe/Paris", "02:10-02:30"), "2026-10-25T02:10:00+01:00", "WAIT 2026-10-26T01:10:00Z opens Mon 02:10 CET (outside its hours; 02:10-02:30 comes twice on Sun 25 Oct, and was open the first time)"},
		{"Paris, a day of 25 hours", daily("Europe/Paris", "09:00-16:00"), "2026-10-24T16:00:00+02:00", "WAIT 2026-10-25T08:00:00Z opens Sun 09:00 CET (outside its hours)"},
		// 2026-03-08 in New York: 02:00 EST to 03:00 EDT. 2026-11-01: 02:00 EDT to 01:00 EST.
		{"New York, a night without 02:30", daily("America/New_York", "02:30-05:00"), "2026-03-08T01:00:00-05:00", "WAIT 2026-03-08T07:00:00Z opens Sun 03:00 EDT (outside its hours; the clock goes from 02:00 to 03:00)"},
		{"New York, a night with two 01:30", daily("America/New_York", "01:30-05:00"), "2026-11-01T01:00:00-04:00", "WAIT 2026-11-01T05:30:00Z opens Sun 01:30 EDT (outside its hours)"},
		{"New York, the second is not another opening", daily("America/New_York", "01:30-01:45"), "2026-11-01T01:00:00-05:00", "WAIT 2026-11-02T06:30:00Z opens Mon 01:30 EST (outside its hours)"},
		// Half an hour. 2026-10-04 in Lord Howe: 02:00 +10:30 to 02:30 +11. 2026-04-05: 02:00 +11 to 01:30 +10:30.
		{"Lord Howe, a night without 02:10", daily("Australia/Lord_Howe", "02:10-05:00"), "2026-10-04T01:00:00+10:30", "WAIT 2026-10-03T15:30:00Z opens Sun 02:30 +11 (outside its hours; the clock goes from 02:00 to 02:30)"},
		{"Lord Howe, a night with two 01:45", daily("Australia/Lord_Howe", "01:45-05:00"), "2026-04-05T01:00:00+11:00", "WAIT 2026-04-04T14:45:00Z opens Sun 01:45 +11 (outside its hours)"},
		{"Lord Howe, open through the second", daily("Australia/Lord_Howe", "01:45-05:00"), "2026-04-05T01:35:00+10:30", "PASS 2026-04-04T18:30:00Z open until Sun 05:00 +1030"},
		// 2011-12-30 did not exist in Apia.
		{"Apia, a skipped day", daily("Pacific/Apia", "09:00-16:00"), "2011-12-29T17:00:00-10:00", "WAIT 2011-12-30T19:00:00Z opens Sat 09:00 +14 (outside its hours; no 09:00-16:00 on Fri 30 Dec: the clock goes from Fri 30 Dec 00:00 to Sat 31 Dec 00:00)"},

		// 2026-03-29 in London: 01:00 GMT to 02:00 BST. 2026-04-24 in Cairo: 00:00 to 01:00.
		{"London, a weekly window in the skipped hour", entities.AllowedTimes{TimeZone: "Europe/London", Windows: []entities.TimeWindow{{Days: "Sun", Hours: "01:15-01:45"}}}, "2026-03-28T12:00:00Z", "WAIT 2026-04-05T00:15:00Z opens Sun 5 Apr 01:15 BST (outside its hours; no 01:15-01:45 on Sun 29 Mar: the clock goes from 01:00 to 02:00)"},
		{"London, after it was skipped", entities.AllowedTimes{TimeZone: "Europe/London", Windows: []entities.TimeWindow{{Days: "Sun", Hours: "01:15-01:45"}}}, "2026-03-29T02:00:00Z", "WAIT 2026-04-05T00:15:00Z opens Sun 5 Apr 01:15 BST (outside its hours)"},
		{"Cairo, midnight", daily("Africa/Cairo", "00:00-00:30"), "2026-04-23T20:00:00Z", "WAIT 2026-04-24T21:00:00Z opens Sat 00:00 EEST (outside its hours; no 00:00-00:30 on Fri 24 Apr: the clock goes from 00:00 to 01:00)"},
		{"Lord Howe, in the skipped half hour", daily("Australia/Lord_Howe", "02:10-02:20"), "2026-10-04T01:00:00+10:30", "WAIT 2026-10-04T15:10:00Z opens Mon 02:10 +11 (outside its hours; no 02:10-02:20 on Sun 4 Oct: the clock goes from 02:00 to 02:30)"},

		{"leap day", changed(daily("UTC", "09:00-16:00"), func(d *entities.AllowedTimes) { d.Holidays = []string{"2028-02-28"} }), "2028-02-28T10:00:00Z", "WAIT 2028-02-29T09:00:00Z opens Tue 09:00 UTC (holiday 2028-02-28)"},
		{"a freeze of leap day", changed(daily("UTC", ""), func(d *entities.AllowedTimes) {
			d.Freezes = []entities.Freeze{{From: "2028-02-29", To: "2028-02-29", Reason: "leap day"}}
		}), "2028-02-29T10:00:00Z", "WAIT 2028-03-01T00:00:00Z opens Wed 00:00 UTC (leap day)"},

		{"a holiday on a weekend is made up for on Friday", changed(office(), func(d *entities.AllowedTimes) {
			d.TimeZone, d.HolidayCountries, d.Windows[0].Days = "America/New_York", []string{"us"}, "Mon-Fri"
		}), "2026-07-02T17:00:00-04:00", "WAIT 2026-07-06T13:00:00Z opens Mon 09:00 EDT (holiday: Independence Day)"},
		{"New Year on a Saturday is made up for in December", changed(office(), func(d *entities.AllowedTimes) {
			d.TimeZone, d.HolidayCountries, d.Windows[0].Days = "America/New_York", []string{"US"}, "Mon-Fri"
		}), "2027-12-31T10:00:00-05:00", "WAIT 2028-01-03T14:00:00Z opens Mon 3 Jan 2028 09:00 EST (holiday: New Year's Day)"},
		{"Easter in France", changed(office(), func(d *entities.AllowedTimes) { d.HolidayCountries = []string{"FR"} }), "2026-04-06T10:00:00+02:00", "WAIT 2026-04-07T07:00:00Z opens Tue 09:00 CEST (holiday: Lundi de Pâques)"},
		{"Good Friday is not a holiday in France", changed(office(), func(d *entities.AllowedTimes) { d.HolidayCountries, d.Windows[0].Days = []string{"FR"}, "Fri" }), "2026-04-03T10:00:00+02:00", "PASS 2026-04-03T14:00:00Z open until Fri 16:00 CEST"},
		{"Epiphany in Bavaria", changed(office(), func(d *entities.AllowedTimes) { d.TimeZone, d.HolidayCountries = "Europe/Berlin", []string{"DE-BY"} }), "2026-01-06T10:00:00+01:00", "WAIT 2026-01-07T08:00:00Z opens Wed 09:00 CET (holiday: Heilige Drei Könige)"},
		{"Epiphany is not a holiday in Berlin", changed(office(), func(d *entities.AllowedTimes) { d.TimeZone, d.HolidayCountries = "Europe/Berlin", []string{"DE-BE"} }), "2026-01-06T10:00:00+01:00", "PASS 2026-01-06T15:00:00Z open until Tue 16:00 CET"},
		{"Boxing Day made up for in Britain", changed(office(), func(d *entities.AllowedTimes) { d.TimeZone, d.HolidayCountries = "Europe/London", []string{"GB"} }), "2026-12-28T10:00:00Z", "WAIT 2026-12-29T09:00:00Z opens Tue 09:00 GMT (holiday: Boxing Day)"},
		{"no window begins on a holiday or continues after it", changed(daily("UTC", "22:00-06:00"), func(d *entities.AllowedTimes) { d.Holidays = []string{"2026-12-24"} }), "2026-12-25T01:00:00Z", "WAIT 2026-12-25T22:00:00Z opens Fri 22:00 UTC (outside its hours)"},
		{"a window ends where a holiday begins", changed(daily("UTC", "22:00-06:00"), func(d *entities.AllowedTimes) { d.Holidays = []string{"2026-12-24"} }), "2026-12-23T23:00:00Z", "PASS 2026-12-24T00:00:00Z open until Thu 00:00 UTC"},

		{"never again", changed(office(), func(d *entities.AllowedTimes) {
			d.Freezes = []entities.Freeze{{From: "2026-01-01", To: "2099-12-31", Reason: "end of life"}}
		}), "2026-11-23T10:00:00+01:00", "FAIL - it does not open within 5 years (end of life)"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r, err := checks.Times(row.def, parseTime(t, row.now))
			require.NoError(t, err)
			next := "-"
			if !r.Next.IsZero() {
				next = r.Next.Format(time.RFC3339)
			}
			require.Equal(t, row.want, fmt.Sprintf("%s %s %s", r.Verdict, next, r.Reason))
		})
	}
}

// An invalid calendar is an ERROR whose reason says what was expected.
func TestInvalidTimes_A20_D16(t *testing.T) {
	t.Parallel()
	window := func(days, hours string) entities.AllowedTimes {
		return entities.AllowedTimes{TimeZone: "UTC", Windows: []entities.TimeWindow{{Days: days, Hours: hours}}}
	}
	freeze := func(from, to string) entities.AllowedTimes {
		return entities.AllowedTimes{TimeZone: "UTC", Freezes: []entities.Freeze{{From: from, To: to}}}
	}
	for _, row := range []struct {
		def  entities.AllowedTimes
		says string
	}{
		{entities.AllowedTimes{}, "it has no time zone; expected a name such as Europe/Paris or UTC"},
		{entities.AllowedTimes{TimeZone: "Local"}, "it has no time zone; expected a name such as Europe/Paris or UTC"},
		{entities.AllowedTimes{TimeZone: "Europe/Atlantis"}, `time zone "Europe/Atlantis" is unknown; expected a name such as Europe/Paris`},
		{window("Mon-Thr", ""), `invalid day of the week "Thr"; expected Mon, Mon-Thu or Sat,Sun`},
		{window("", "9-16"), `invalid time of day "9"; expected 09:00`},
		{window("", "09:00"), `hours are "09:00"; expected 09:00-16:00`},
		{window("", "09:00-25:00"), `invalid time of day "25:00"; expected 09:00`},
		{window("", "24:00-06:00"), "hours 24:00-06:00 have no length; omit them for a whole day"},
		{window("", "09:00-09:00"), "hours 09:00-09:00 have no length; omit them for a whole day"},
		{freeze("soon", "2026-12-20"), `freeze from: invalid time "soon"; expected 2026-12-20, 2026-12-20T18:00 or RFC 3339`},
		{freeze("2026-12-20", ""), `freeze to: invalid time ""; expected 2026-12-20, 2026-12-20T18:00 or RFC 3339`},
		{freeze("2026-12-20", "2026-12-19"), "freeze from 2026-12-20 ends at 2026-12-19, before it begins"},
		{freeze("2026-02-29", "2026-03-01"), `freeze from: invalid time "2026-02-29"; expected 2026-12-20, 2026-12-20T18:00 or RFC 3339`},
		{entities.AllowedTimes{TimeZone: "UTC", Holidays: []string{"24.12."}}, `invalid date "24.12." of a holiday; expected 2026-12-24`},
	} {
		_, err := checks.Times(row.def, parseTime(t, "2026-11-23T10:00:00Z"))
		require.EqualError(t, err, row.says)
	}
	_, err := checks.Times(entities.AllowedTimes{TimeZone: "UTC", HolidayCountries: []string{"XX"}}, parseTime(t, "2026-11-23T10:00:00Z"))
	require.ErrorContains(t, err, `holidays of "XX" are unknown; expected some of AT AU-ACT`)
	require.Contains(t, checks.HolidayCountries(), "DE-BY")
}
