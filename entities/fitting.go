package entities

import "encoding/json"

// Fitting returns the first elements of a list, as many as fit into a number of bytes of JSON.
func Fitting[T any](all []T, bytes int) []T {
	for n, one := range all {
		if bytes -= sizeOf(one); bytes < 0 {
			return all[:n:n]
		}
	}
	return all
}

// FittingLast returns the last elements that fit.
func FittingLast[T any](all []T, bytes int) []T {
	for n := len(all) - 1; n >= 0; n-- {
		if bytes -= sizeOf(all[n]); bytes < 0 {
			return all[n+1:]
		}
	}
	return all
}

// sizeOf returns the size of a value as JSON. A value that cannot be marshalled never fits.
func sizeOf(v any) int {
	raw, err := json.Marshal(v)
	if err != nil {
		return 1 << 30
	}
	return len(raw) + len(",")
}
