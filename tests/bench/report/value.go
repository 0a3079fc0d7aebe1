package report

import (
	"fmt"
	"sort"
	"strconv"
	"time"
)

// Of makes a value in any unit.
func Of(number float64, unit string) Value { return Value{number, unit} }

// Dur makes a value of a duration.
func Dur(d time.Duration) Value { return Value{d.Seconds(), Seconds} }

// Ref is a value as a reference or a goal.
func Ref(v Value) *Value { return &v }

// String prints a number with about three digits and its unit: 8.21 ms, 62.3 KiB, 17 events.
func (v Value) String() string {
	switch v.Unit {
	case Seconds:
		return seconds(v.Number)
	case Bytes:
		return bytes(v.Number)
	case Cores:
		return digits(v.Number*100) + "% of a core"
	case Times:
		return strconv.FormatFloat(v.Number, 'f', -1, 64) + "×"
	}
	return digits(v.Number) + " " + v.Unit
}

func seconds(s float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}} {
		if s >= u.size {
			return digits(s/u.size) + " " + u.name
		}
	}
	return digits(s*1e9) + " ns"
}

func bytes(n float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size {
			return digits(n/u.size) + " " + u.name
		}
	}
	return digits(n) + " B"
}

// digits keeps three significant digits of a fraction and all of a large number.
func digits(n float64) string {
	switch a := max(n, -n); {
	case n == float64(int64(n)) || a >= 100:
		return fmt.Sprintf("%.0f", n)
	case a >= 10:
		return fmt.Sprintf("%.1f", n)
	case a >= 1:
		return fmt.Sprintf("%.2f", n)
	}
	return fmt.Sprintf("%.3g", n)
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
