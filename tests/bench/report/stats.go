package report

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Quantile is the value below which that part of the samples lies, 0 without samples. The samples
// stay as they are.
func Quantile(samples []time.Duration, part float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[int(part*float64(len(sorted)-1)+0.5)]
}

// Median is the middle of the samples.
func Median(samples []time.Duration) time.Duration { return Quantile(samples, 0.5) }

// resamplings is how often RatioInterval draws: enough for two stable digits.
const resamplings = 1000

// RatioInterval is where the ratio of the medians of a to b lies in 19 of 20 repetitions, by
// drawing again from the samples. The same samples give the same interval.
func RatioInterval(a, b []time.Duration) (low, high float64) {
	if len(a) == 0 || len(b) == 0 {
		return 0, 0
	}
	random := rand.New(rand.NewPCG(1, 2)) // the same draws in every run
	ratios := make([]float64, resamplings)
	for i := range ratios {
		ratios[i] = float64(Median(redraw(random, a))) / float64(max(Median(redraw(random, b)), 1))
	}
	slices.Sort(ratios)
	return ratios[resamplings/40], ratios[resamplings-1-resamplings/40]
}

func redraw(random *rand.Rand, samples []time.Duration) []time.Duration {
	out := make([]time.Duration, len(samples))
	for i := range out {
		out[i] = samples[random.IntN(len(samples))]
	}
	return out
}
