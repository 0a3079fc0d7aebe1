// Package stats compares what was released with a control group (D26): samples by the Mann-Whitney U test, counts by Fisher's
// exact test. Both ask whether there is a change for the worse at all, and how large it is. It is arithmetic upon what somebody
// else has read: no clock, no network, no random.
package stats

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Direction is in which direction a change is one for the worse.
type Direction string

// The directions.
const (
	Increase Direction = "increase"
	Decrease Direction = "decrease"
	Either   Direction = "either"
)

// Plan is what is declared before anybody looks.
type Plan struct {
	Direction Direction
	// Alpha is how often, at most, a release that changes nothing is taken for worse, by any of the comparisons: 0.01 is one in a
	// hundred. Comparisons is how many share it: metrics times looks (Bonferroni).
	Alpha       float64
	Comparisons int
	// Tolerance is the least change that counts, relative to the control group: 0.1 is 10 %.
	Tolerance float64
	// MinSamples is how many samples each group has at least, or requests, where these are counted.
	MinSamples int
	// Drop leaves samples out that are no finite number; otherwise they are an error.
	Drop bool
}

// Level is at which p a single comparison tells of a change.
func (p Plan) Level() float64 { return p.Alpha / float64(max(p.Comparisons, 1)) }

// Least is how many samples each group needs at the very least: so many that p can fall to the level, and MinSamples.
func (p Plan) Least() int {
	n := max(p.MinSamples, 1)
	for p.sided(1/ways(2*n, n)) > p.Level() && n < enough {
		n++
	}
	return n
}

// enough samples for any level that a float64 can tell from zero.
const enough = 600

// sided is p of a test in one direction as it counts: for either direction two tests are made.
func (p Plan) sided(one float64) float64 {
	if p.Direction == Either {
		return min(1, 2*one)
	}
	return min(1, one)
}

// one is p in the directions that are for the worse, of the test that yields that of an increase, and whether it is an increase.
func (p Plan) one(increase, decrease func() float64) (p1 float64, up bool) {
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

// The outcomes. Same is that no change for the worse was shown, or none of the size of the tolerance: no proof that there is none.
const (
	Same         Outcome = "same"
	Worse        Outcome = "worse"
	Inconclusive Outcome = "inconclusive" // too few samples
)

// Group is one of the two groups that are compared.
type Group struct {
	Samples int     // or requests
	Centre  float64 // the median, or the share
	Dropped int     // samples that were no number
}

// Evidence is a comparison with all that it rests upon.
type Evidence struct {
	Outcome       Outcome
	Test          string // by its name, for people
	Released      Group
	Control       Group
	Correlation   float64 // of samples with the ones before them; 0: none that could be told from chance
	P, Level      float64 // 0 where there are too few samples
	Effect        float64 // of what was released, relative to the control group: 0.1 is 10 % more; ±Inf: from nothing
	Plan          Plan
	Distinguished bool // P is at most Level
	// Needed is how many samples each group needs: to be judged at all, or for such an effect to be shown in 4 of 5 cases. 0: as
	// many as there are, or no number of them would do.
	Needed int
}

// ErrNone is that a group has no samples at all: missing data is no evidence (D26).
var ErrNone = errors.New("no samples")

// Samples compares samples, in the order of time. Where these repeat each other they count for as many as they are worth. The
// effect is the Hodges-Lehmann shift (the median of all differences between the groups) relative to the control group's median.
// Errors: ErrNone, and samples that are no finite number, unless they are dropped.
func Samples(p Plan, released, control []float64) (Evidence, error) {
	e := Evidence{Plan: p, Test: "Mann-Whitney"}
	var err error
	if released, e.Released, err = p.group("of what was released", released); err != nil {
		return e, err
	}
	if control, e.Control, err = p.group("of the control group", control); err != nil {
		return e, err
	}
	e.Effect = relative(shift(released, control), e.Control.Centre)
	e.Correlation = correlation(released, control)
	least := 1 / ways(e.worth(len(released))+e.worth(len(control)), e.worth(len(released)))
	if e.worth(min(len(released), len(control))) < p.MinSamples || p.sided(least) > p.Level() {
		e.Outcome, e.Needed = Inconclusive, e.asMany(p.Least())
		return e, nil
	}
	u := newRanked(released, control)
	if e.Test = "Mann-Whitney"; u.exactly() {
		e.Test = "exact Mann-Whitney"
	}
	e.judge(func() float64 { return e.correlated(u.increase(), least) }, func() float64 { return e.correlated(newRanked(control, released).increase(), least) })
	if e.Outcome == Same && e.exceeds() {
		e.Needed = e.asMany(noether(p, u.superiority()))
	}
	return e, nil
}

// inflation is how much larger the variance of a mean is than of as many samples that do not repeat each other.
func (e *Evidence) inflation() float64 { return (1 + e.Correlation) / (1 - e.Correlation) }

// worth is how many samples that do not repeat each other tell as much as n of these do.
func (e *Evidence) worth(n int) int { return int(float64(n)/e.inflation() + rounding) }

// asMany is how many of these samples are worth n.
func (e *Evidence) asMany(n int) int { return needed(float64(n) * e.inflation()) }

// correlated is p where samples repeat each other: its deviation is as much less as that of a mean is larger, and it is never
// below the least that so many could give.
func (e *Evidence) correlated(p, least float64) float64 {
	if e.Correlation == 0 {
		return p
	}
	return max(upper(quantile(p)/math.Sqrt(e.inflation())), least)
}

// group are the samples of a group that are finite numbers, and their median.
func (p Plan) group(of string, samples []float64) ([]float64, Group, error) {
	numbers := slices.DeleteFunc(slices.Clone(samples), func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	dropped := len(samples) - len(numbers)
	switch {
	case dropped > 0 && !p.Drop:
		return nil, Group{}, fmt.Errorf("%d of %d samples %s are no finite number", dropped, len(samples), of)
	case len(numbers) == 0 && dropped > 0:
		return nil, Group{}, fmt.Errorf("%w %s that are finite numbers: %d are not", ErrNone, of, dropped)
	case len(numbers) == 0:
		return nil, Group{}, fmt.Errorf("%w %s", ErrNone, of)
	}
	return numbers, Group{Samples: len(numbers), Centre: median(slices.Clone(numbers)), Dropped: dropped}, nil
}

// Count is how many requests of a group were of some kind, such as errors.
type Count struct{ Of, Total int }

// Counts compares two shares. The effect is the difference of the shares relative to the control group's. A group without any
// request has too few. Errors: counts that are none.
func Counts(p Plan, released, control Count) (Evidence, error) {
	e := Evidence{Plan: p, Test: "exact Fisher"}
	for _, c := range []Count{released, control} {
		if c.Of < 0 || c.Of > c.Total {
			return e, fmt.Errorf("%d of %d are no counts", c.Of, c.Total)
		}
	}
	e.Released, e.Control = released.group(), control.group()
	e.Effect = relative(e.Released.Centre-e.Control.Centre, e.Control.Centre)
	if min(released.Total, control.Total) < p.MinSamples || p.sided(1/ways(released.Total+control.Total, released.Total)) > p.Level() {
		e.Outcome, e.Needed = Inconclusive, p.Least()
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

// judge tells of a change when it is both distinguished and as large as the tolerance.
func (e *Evidence) judge(increase, decrease func() float64) {
	var up bool
	e.Level = e.Plan.Level()
	e.P, up = e.Plan.one(increase, decrease)
	e.Distinguished = e.P <= e.Level
	if e.Outcome = Same; e.Distinguished && e.exceeds() && up == (e.Effect > 0) {
		e.Outcome = Worse
	}
}

// exceeds tells whether the effect is for the worse, and at least the tolerance.
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

// rounding is what 1.1 - 1 is off by.
const rounding = 1e-12

// String says all of it in one line, of less than 300 bytes.
func (e Evidence) String() string {
	what := "samples"
	if e.Test == "exact Fisher" {
		what = "requests"
	}
	text := fmt.Sprintf("%s, %s against %s (%s, tolerance %s), %d %s against %d", e.verdict(), number(e.Released.Centre), number(e.Control.Centre),
		percent(e.Effect), percent(e.Plan.Tolerance)[1:], e.Released.Samples, what, e.Control.Samples)
	if d := e.Released.Dropped + e.Control.Dropped; d > 0 {
		text += fmt.Sprintf(", %d dropped", d)
	}
	if e.Correlation > 0 {
		text += fmt.Sprintf(", worth %d as neighbours are alike (correlation %s)", e.worth(min(e.Released.Samples, e.Control.Samples)), number(e.Correlation))
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
	case e.Distinguished:
		return "changed within the tolerance"
	case e.Plan.Direction == Either:
		return "no change shown"
	}
	return "no " + string(e.Plan.Direction) + " shown"
}

func number(v float64) string { return fmt.Sprintf("%.3g", v) }

func percent(v float64) string { return fmt.Sprintf("%+.3g %%", 100*v) }
