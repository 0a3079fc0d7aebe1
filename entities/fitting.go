package entities

import "encoding/json"

// Fitting are the first of some things, as many as fit into so many bytes of JSON.
func Fitting[T any](all []T, bytes int) []T {
	for n, one := range all {
		if bytes -= sizeOf(one); bytes < 0 {
			return all[:n:n]
		}
	}
	return all
}

// FittingLast are the last of them that fit.
func FittingLast[T any](all []T, bytes int) []T {
	for n := len(all) - 1; n >= 0; n-- {
		if bytes -= sizeOf(all[n]); bytes < 0 {
			return all[n+1:]
		}
	}
	return all
}

// sizeOf is how many bytes of JSON one of a list takes. What no JSON can hold takes all there is.
func sizeOf(v any) int {
	raw, err := json.Marshal(v)
	if err != nil {
		return 1 << 30
	}
	return len(raw) + len(",")
}
