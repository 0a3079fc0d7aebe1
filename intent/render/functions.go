package render

import (
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"
)

// doubles replace the template functions that use a clock, a random source or the machine. They return different values in the two
// renderings. This detects charts whose objects depend on them. It accepts charts that only mention them in a default.
type doubles struct{ second bool }

func (d doubles) pick(first, second string) string {
	if d.second {
		return second
	}
	return first
}

// now returns times that differ in every part, down to the second and the day of the week.
func (d doubles) now() time.Time {
	if d.second {
		return time.Date(2042, time.November, 30, 23, 58, 57, 0, time.UTC)
	}
	return time.Date(2001, time.February, 3, 4, 5, 6, 0, time.UTC)
}

func (d doubles) random(n int) string { return strings.Repeat(d.pick("k", "w"), max(n, 0)) }

// certificate is the result of the functions that create certificates.
type certificate struct{ Cert, Key string }

// functions returns replacements for the functions of the same names.
func (d doubles) functions() template.FuncMap {
	text := func(...any) string { return d.random(16) }
	made := func(...any) certificate { return certificate{d.random(16), d.random(16)} }
	all := template.FuncMap{
		"now": d.now, "ago": func(any) string { return d.pick("1h", "2m") },
		"toDate":     func(layout, text string) time.Time { t, _ := time.ParseInLocation(layout, text, time.UTC); return t },
		"mustToDate": func(layout, text string) (time.Time, error) { return time.ParseInLocation(layout, text, time.UTC) },
		"date":       func(layout string, date any) string { return d.date(layout, date, "UTC") },
		"htmlDate":   func(date any) string { return d.date(time.DateOnly, date, "UTC") },
		"dateInZone": d.date, "date_in_zone": d.date,
		"htmlDateInZone": func(date any, zone string) string { return d.date(time.DateOnly, date, zone) },
		"shuffle":        func(text string) string { return d.pick(text, reversed(text)) },
		"randInt": func(least, end int) int {
			if d.second {
				return max(end-1, least)
			}
			return least
		},
		"keys": sortedKeys, "values": sortedValues,
	}
	for _, name := range []string{"randAlphaNum", "randAlpha", "randAscii", "randNumeric", "randBytes"} {
		all[name] = func(n int) string { return d.random(n) }
	}
	for _, name := range []string{"uuidv4", "bcrypt", "htpasswd", "genPrivateKey", "encryptAES"} {
		all[name] = text
	}
	for _, name := range []string{"genCA", "genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey"} {
		all[name] = made
	}
	return all
}

// date formats a time. A value that is not a time means now. The machine's time zone is UTC.
func (d doubles) date(layout string, date any, zone string) string {
	var at time.Time
	switch x := date.(type) {
	case time.Time:
		at = x
	case *time.Time:
		at = *x
	case int64:
		at = time.Unix(x, 0)
	case int:
		at = time.Unix(int64(x), 0)
	case int32:
		at = time.Unix(int64(x), 0)
	default:
		at = d.now()
	}
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		location = time.UTC
	}
	return at.In(location).Format(layout)
}

func reversed(text string) string {
	runes := []rune(text)
	slices.Reverse(runes)
	return string(runes)
}

// sortedKeys and sortedValues do not depend on the order of a map.
func sortedKeys(all ...map[string]any) []string {
	var names []string
	for _, one := range all {
		names = slices.AppendSeq(names, maps.Keys(one))
	}
	slices.Sort(names)
	return names
}

func sortedValues(one map[string]any) []any {
	values := make([]any, 0, len(one))
	for _, name := range sortedKeys(one) {
		values = append(values, one[name])
	}
	return values
}
