// Package stats compares a release with a control group (D26): samples by the Mann-Whitney U test, counts by Fisher's exact test. Both test
// whether there is a change for the worse, and how large it is. It is pure arithmetic on given samples: no clock, no network, no random.
package stats

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Direction is the direction in which a change is for the worse.
type Direction string

// The directions.
const (
	Increase Direction = "increase"
	Decrease Direction = "decrease"
	Either   Direction = "either"
)

// Plan is declared before the data is examined.
type Plan struct {
	Direction Direction
	// Alpha is the maximum probability that a release without any change counts as worse, over all comparisons: 0.01 is one in a hundred.
	// Comparisons is how many comparisons share it: metrics times evaluations (Bonferroni).
	Alpha       float64
	Comparisons int
	// Tolerance is the smallest change that counts, relative to the control group: 0.1 is 10 %.
	Tolerance float64
	// MinSamples is the minimum of samples, or of requests for counts, in each group.
	MinSamples int
	// Drop ignores samples that are not finite numbers; otherwise they are an error.
	Drop bool
}

// Level is the p-value at which a single comparison is significant.
func (p Plan) Level() float64 { return p.Alpha / float64(max(p.Comparisons, 1)) }

// MinNeeded is the minimum of samples in each group: enough for p to reach the level, and at least MinSamples.
func (p Plan) MinNeeded() int {
	n := max(p.MinSamples, 1)
	for p.sided(1/combinations(2*n, n)) > p.Level() && n < maxNeeded {
		n++
	}
	return n
}

// maxNeeded samples for any level that a float64 can distinguish from zero.
const maxNeeded = 600

// sided converts a one-sided p-value: for either direction two tests are made.
func (p Plan) sided(one float64) float64 {
	if p.Direction == Either {
		return min(1, 2*one)
	}
	return min(1, one)
}

// pValue returns the p-value for a change for the worse, and whether the change is an increase. The functions return one-sided p-values.
func (p Plan) pValue(increase, decrease func() float64) (p1 float64, up bool) {
	switch p.Direction {
	case Decrease:
		return p.sided(decrease()), false
	case Either:
		more, less := increase(), decrease()
		return p.sided(min(more, less)), more <= less
	}
	return p.sided(increase()), true
}

// Outcome of a comparison.
type Outcome string

// The outcomes. Same: no change for the worse was shown, or none as large as the tolerance. It is no proof that there is none.
const (
	Same         Outcome = "same"
	Worse        Outcome = "worse"
	Inconclusive Outcome = "inconclusive" // too few samples
)

// Group is one of the two compared groups.
type Group struct {
	Samples int     // or requests
	Centre  float64 // the median, or the share
	Dropped int     // samples that are not numbers
}

// Evidence is a comparison with all its inputs and results.
type Evidence struct {
	Outcome     Outcome
	Test        string // its name, for people
	Released    Group
	Control     Group
	Correlation float64 // of samples with the previous ones; 0: not distinguishable from chance
	P, Level    float64 // 0 with too few samples
	Effect      float64 // of the release, relative to the control group: 0.1 is 10 % more; ±Inf: from zero
	Plan        Plan
	Significant bool // P is at most Level
	// Needed is how many samples each group needs: to be judged at all, or to show such an effect in 4 of 5 cases. 0: the present number is
	// enough, or no number is.
	Needed int
}

// ErrNoSamples says that a group has no samples at all: missing data is no evidence (D26).
var ErrNoSamples = errors.New("no samples")

// Samples compares samples, in the order of time. Autocorrelated samples count as the equivalent number of independent ones. The effect is
// the Hodges-Lehmann shift (the median of all differences between the groups) relative to the control group's median. Errors: ErrNoSamples,
// and samples that are not finite numbers, unless they are dropped.
func Samples(p Plan, released, control []float64) (Evidence, error) {
	e := Evidence{Plan: p, Test: "Mann-Whitney"}
	var err error
	if released, e.Released, err = p.group("of the release", released); err != nil {
		return e, err
	}
	if control, e.Control, err = p.group("of the control group", control); err != nil {
		return e, err
	}
	e.Effect = relativeTo(shift(released, control), e.Control.Centre)
	e.Correlation = correlation(released, control)
	least := 1 / combinations(e.effectiveSamples(len(released))+e.effectiveSamples(len(control)), e.effectiveSamples(len(released)))
	if e.effectiveSamples(min(len(released), len(control))) < p.MinSamples || p.sided(least) > p.Level() {
		e.Outcome, e.Needed = Inconclusive, e.actualSamples(p.MinNeeded())
		return e, nil
	}
	u := rank(released, control)
	if e.Test = "Mann-Whitney"; u.isExact() {
		e.Test = "exact Mann-Whitney"
	}
	e.judge(func() float64 { return e.correctP(u.increase(), least) }, func() float64 { return e.correctP(rank(control, released).increase(), least) })
	if e.Outcome == Same && e.exceeds() {
		e.Needed = e.actualSamples(noether(p, u.superiority()))
	}
	return e, nil
}

// inflation is the factor by which correlation increases the variance of a mean, compared with independent samples.
func (e *Evidence) inflation() float64 { return (1 + e.Correlation) / (1 - e.Correlation) }

// effectiveSamples returns how many independent samples contain as much information as n of these.
func (e *Evidence) effectiveSamples(n int) int { return int(float64(n)/e.inflation() + rounding) }

// actualSamples returns how many of these samples contain as much information as n independent ones.
func (e *Evidence) actualSamples(n int) int { return needed(float64(n) * e.inflation()) }

// correctP corrects p for correlated samples: its deviation shrinks as the deviation of a mean grows. The result is never below the
// minimum for this number of samples.
func (e *Evidence) correctP(p, least float64) float64 {
	if e.Correlation == 0 {
		return p
	}
	return max(upper(quantile(p)/math.Sqrt(e.inflation())), least)
}

// group returns the samples that are finite numbers, and their median.
func (p Plan) group(of string, samples []float64) ([]float64, Group, error) {
	numbers := slices.DeleteFunc(slices.Clone(samples), func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	dropped := len(samples) - len(numbers)
	switch {
	case dropped > 0 && !p.Drop:
		return nil, Group{}, fmt.Errorf("%d of %d samples %s are not finite numbers", dropped, len(samples), of)
	case len(numbers) == 0 && dropped > 0:
		return nil, Group{}, fmt.Errorf("%w %s that are finite numbers: %d are not", ErrNoSamples, of, dropped)
	case len(numbers) == 0:
		return nil, Group{}, fmt.Errorf("%w %s", ErrNoSamples, of)
	}
	return numbers, Group{Samples: len(numbers), Centre: median(slices.Clone(numbers)), Dropped: dropped}, nil
}

// Count is how many requests of a group were of some kind, such as errors.
type Count struct{ Of, Total int }

// Counts compares two shares. The effect is the difference of the shares relative to the control group's share. A group without requests
// has too few. It returns an error for invalid counts.
func Counts(p Plan, released, control Count) (Evidence, error) {
	e := Evidence{Plan: p, Test: "exact Fisher"}
	for _, c := range []Count{released, control} {
		if c.Of < 0 || c.Of > c.Total {
			return e, fmt.Errorf("%d of %d is not a valid count", c.Of, c.Total)
		}
	}
	e.Released, e.Control = released.group(), control.group()
	e.Effect = relativeTo(e.Released.Centre-e.Control.Centre, e.Control.Centre)
	if min(released.Total, control.Total) < p.MinSamples || p.sided(1/combinations(released.Total+control.Total, released.Total)) > p.Level() {
		e.Outcome, e.Needed = Inconclusive, p.MinNeeded()
		return e, nil
	}
	e.judge(func() float64 { return fisher(released, control) }, func() float64 { return fisher(control, released) })
	if e.Outcome == Same && e.exceeds() {
		e.Needed = proportions(p, e.Released.Centre, e.Control.Centre)
	}
	return e, nil
}

func (c Count) group() Group {
	return Group{Samples: c.Total, Centre: float64(c.Of) / float64(max(c.Total, 1))}
}

// judge reports Worse if the change is both significant and at least as large as the tolerance.
func (e *Evidence) judge(increase, decrease func() float64) {
	var up bool
	e.Level = e.Plan.Level()
	e.P, up = e.Plan.pValue(increase, decrease)
	e.Significant = e.P <= e.Level
	if e.Outcome = Same; e.Significant && e.exceeds() && up == (e.Effect > 0) {
		e.Outcome = Worse
	}
}

// exceeds reports whether the effect is for the worse, and at least the tolerance.
func (e *Evidence) exceeds() bool {
	effect := e.Effect
	switch e.Plan.Direction {
	case Decrease:
		effect = -effect
	case Either:
		effect = math.Abs(effect)
	}
	return effect > 0 && effect >= e.Plan.Tolerance-rounding
}

// rounding is larger than the error of 1.1 - 1.
const rounding = 1e-12

// String formats all of it in one line, of less than 300 bytes.
func (e Evidence) String() string {
	unit := "samples"
	if e.Test == "exact Fisher" {
		unit = "requests"
	}
	text := fmt.Sprintf("%s, %s against %s (%s, tolerance %s), %d %s against %d", e.verdict(), number(e.Released.Centre), number(e.Control.Centre),
		percent(e.Effect), percent(e.Plan.Tolerance)[1:], e.Released.Samples, unit, e.Control.Samples)
	if d := e.Released.Dropped + e.Control.Dropped; d > 0 {
		text += fmt.Sprintf(", %d dropped", d)
	}
	if e.Correlation > 0 {
		text += fmt.Sprintf(", equivalent to %d independent ones (correlation %s)", e.effectiveSamples(min(e.Released.Samples, e.Control.Samples)), number(e.Correlation))
	}
	if e.Outcome == Inconclusive {
		return text + fmt.Sprintf("; at least %d of each are needed", e.Needed)
	}
	text += fmt.Sprintf(", p %s (level %s = %s / %d), %s", number(e.P), number(e.Level), number(e.Plan.Alpha), max(e.Plan.Comparisons, 1), e.Test)
	if e.Needed > 0 {
		text += fmt.Sprintf("; about %d of each would show such a change", e.Needed)
	}
	return text
}

func (e Evidence) verdict() string {
	switch {
	case e.Outcome == Inconclusive:
		return "too few " + map[bool]string{true: "requests", false: "samples"}[e.Test == "exact Fisher"]
	case e.Outcome == Worse && e.Effect < 0:
		return "decreased"
	case e.Outcome == Worse:
		return "increased"
	case e.Significant:
		return "changed within the tolerance"
	case e.Plan.Direction == Either:
		return "no change shown"
	}
	return "no " + string(e.Plan.Direction) + " shown"
}

func number(v float64) string { return fmt.Sprintf("%.3g", v) }

func percent(v float64) string { return fmt.Sprintf("%+.3g %%", 100*v) }
