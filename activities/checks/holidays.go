package checks

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rickar/cal/v2"
	"github.com/rickar/cal/v2/at"
	"github.com/rickar/cal/v2/au"
	"github.com/rickar/cal/v2/be"
	"github.com/rickar/cal/v2/br"
	"github.com/rickar/cal/v2/ca"
	"github.com/rickar/cal/v2/ch"
	"github.com/rickar/cal/v2/cz"
	"github.com/rickar/cal/v2/de"
	"github.com/rickar/cal/v2/dk"
	"github.com/rickar/cal/v2/ecb"
	"github.com/rickar/cal/v2/es"
	"github.com/rickar/cal/v2/fr"
	"github.com/rickar/cal/v2/gb"
	"github.com/rickar/cal/v2/gr"
	"github.com/rickar/cal/v2/hr"
	"github.com/rickar/cal/v2/ie"
	"github.com/rickar/cal/v2/it"
	"github.com/rickar/cal/v2/jp"
	"github.com/rickar/cal/v2/lt"
	"github.com/rickar/cal/v2/lv"
	"github.com/rickar/cal/v2/nl"
	"github.com/rickar/cal/v2/no"
	"github.com/rickar/cal/v2/nz"
	"github.com/rickar/cal/v2/pl"
	"github.com/rickar/cal/v2/ro"
	"github.com/rickar/cal/v2/se"
	"github.com/rickar/cal/v2/si"
	"github.com/rickar/cal/v2/sk"
	"github.com/rickar/cal/v2/ua"
	"github.com/rickar/cal/v2/us"
	"github.com/rickar/cal/v2/za"
)

// countries returns the public holidays in the library, by ISO 3166 code; ECB is the European Central Bank's (TARGET).
func countries() map[string][]*cal.Holiday {
	all := map[string][]*cal.Holiday{
		"AT": at.Holidays, "BE": be.Holidays, "BR": br.Holidays, "CA": ca.Holidays, "CH": ch.Holidays, "CZ": cz.Holidays,
		"DE": de.Holidays, "DK": dk.Holidays, "ECB": ecb.Holidays, "ES": es.Holidays, "FR": fr.Holidays, "GB": gb.Holidays,
		"GR": gr.Holidays, "HR": hr.Holidays, "IE": ie.Holidays, "IT": it.Holidays, "JP": jp.Holidays, "LT": lt.Holidays,
		"LV": lv.Holidays, "NL": nl.Holidays, "NO": no.Holidays, "NZ": nz.Holidays, "PL": pl.Holidays, "RO": ro.Holidays,
		"SE": se.Holidays, "SI": si.Holidays, "SK": sk.Holidays, "UA": ua.Holidays, "US": us.Holidays, "ZA": za.Holidays,
	}
	maps.Copy(all, regions())
	return all
}

// regions returns the regions with their own holidays, which include those of the country.
func regions() map[string][]*cal.Holiday {
	return map[string][]*cal.Holiday{
		"AU-ACT": au.HolidaysACT, "AU-NSW": au.HolidaysNSW, "AU-NT": au.HolidaysNT, "AU-QLD": au.HolidaysQLD,
		"AU-SA": au.HolidaysSA, "AU-TAS": au.HolidaysTAS, "AU-VIC": au.HolidaysVIC, "AU-WA": au.HolidaysWA,
		"CH-BE": ch.HolidaysBE, "CH-BS": ch.HolidaysBS, "CH-GE": ch.HolidaysGE, "CH-LU": ch.HolidaysLU, "CH-SG": ch.HolidaysSG,
		"CH-TI": ch.HolidaysTI, "CH-VD": ch.HolidaysVD, "CH-ZG": ch.HolidaysZG, "CH-ZH": ch.HolidaysZH,
		"DE-BB": de.HolidaysBB, "DE-BE": de.HolidaysBE, "DE-BW": de.HolidaysBW, "DE-BY": de.HolidaysBY, "DE-HB": de.HolidaysHB,
		"DE-HE": de.HolidaysHE, "DE-HH": de.HolidaysHH, "DE-MV": de.HolidaysMV, "DE-NI": de.HolidaysNI, "DE-NW": de.HolidaysNW,
		"DE-RP": de.HolidaysRP, "DE-SH": de.HolidaysSH, "DE-SL": de.HolidaysSL, "DE-SN": de.HolidaysSN, "DE-ST": de.HolidaysST,
		"DE-TH": de.HolidaysTH,
	}
}

// HolidayCountries lists the valid codes of AllowedTimes, sorted.
func HolidayCountries() []string { return slices.Sorted(maps.Keys(countries())) }

// holidays returns the days on which no window opens.
type holidays struct {
	listed map[date]bool
	rules  []*cal.Holiday
	years  map[int]map[date]string // cache
}

func readHolidays(codes, dates []string) (holidays, error) {
	h := holidays{listed: map[date]bool{}, years: map[int]map[date]string{}}
	for _, text := range dates {
		d, err := parseDate(strings.TrimSpace(text))
		if err != nil {
			return h, fmt.Errorf("invalid date %q of a holiday; expected 2026-12-24", text)
		}
		h.listed[d] = true
	}
	if len(codes) == 0 {
		return h, nil
	}
	all := countries()
	for _, code := range codes {
		rules, ok := all[strings.ToUpper(strings.TrimSpace(code))]
		if !ok {
			return h, fmt.Errorf("holidays of %q are unknown; expected some of %s", code, strings.Join(HolidayCountries(), " "))
		}
		h.rules = append(h.rules, rules...)
	}
	return h, nil
}

// nameOf reports whether a day is a holiday, and its name. A weekend holiday and its substitute day are both holidays.
func (h holidays) nameOf(d date) (string, bool) {
	if h.listed[d] {
		return "holiday " + d.String(), true
	}
	if len(h.rules) == 0 {
		return "", false
	}
	year, ok := h.years[d.year]
	if !ok {
		year = h.year(d.year)
		h.years[d.year] = year
	}
	name, ok := year[d]
	return "holiday: " + name, ok
}

// year also reads the adjacent years: the substitute day of a New Year on a Saturday may be December 31.
func (h holidays) year(year int) map[date]string {
	out := map[date]string{}
	for y := year - 1; y <= year+1; y++ {
		for _, rule := range h.rules {
			actual, observed := rule.Calc(y)
			if !actual.IsZero() {
				out[dateOf(actual)] = rule.Name
			}
			if !observed.IsZero() {
				out[dateOf(observed)] = rule.Name
			}
		}
	}
	return out
}
