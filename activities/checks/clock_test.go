package checks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A year that no table of a time zone reaches has its last day too, leap years included, in which the bounds of a time zone end a day
// early.
func TestInstantsOfFarYears_A20(t *testing.T) {
	for _, zone := range []string{"UTC", "Europe/Paris", "America/New_York", "Australia/Sydney", "Asia/Kolkata", "Pacific/Auckland"} {
		in, err := time.LoadLocation(zone)
		require.NoError(t, err)
		for year := 2026; year < 2110; year++ {
			for at := time.Date(year, 12, 29, 0, 0, 0, 0, time.UTC); at.Year() == year || at.YearDay() < 4; at = at.Add(6 * time.Hour) {
				want := time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), 0, 0, 0, in)
				require.True(t, instant(at, in).Equal(want), "%s in %s: %s", at, zone, instant(at, in))
			}
		}
	}
}
