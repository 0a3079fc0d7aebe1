package stats

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The declared plan of the tests: 20 samples, one in a hundred, 10 %.
var plan = Plan{Direction: Increase, Alpha: 0.01, Tolerance: 0.1, MinSamples: 20}

func planWith(change func(*Plan)) Plan {
	p := plan
	change(&p)
	return p
}

// p of an increase is how many of all ways to deal out the samples give such a U or a larger one.
func TestMannWhitneyMatchesAllPermutations_D26(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.IntRange(-2, 3).Draw(t, "value")) }) // with many ties
		first := rapid.SliceOfN(value, 1, 6).Draw(t, "first")
		second := rapid.SliceOfN(value, 1, 6).Draw(t, "second")
		require.InDelta(t, permutationP(first, second), rank(first, second).increase(), 1e-12)
	})
}

// permutationP deals out all samples in every way.
func permutationP(first, second []float64) float64 {
	all := slices.Concat(first, second)
	u := func(of uint) (twice int) {
		for i, a := range all {
			for j, b := range all {
				switch {
				case of>>i&1 == 0 || of>>j&1 == 1:
				case a > b:
					twice += 2
				case a == b:
					twice++
				}
			}
		}
		return twice
	}
	observed, tail, ways := u(1<<len(first)-1), 0, 0
	for of := range uint(1) << len(all) {
		if bits.OnesCount(of) != len(first) {
			continue
		}
		if ways++; u(of) >= observed {
			tail++
		}
	}
	return float64(tail) / float64(ways)
}

// The approximation, used from about 40 samples in each group, gives the p of the exact test or a slightly larger one, so it is
// conservative.
func TestMannWhitneyApproximation_D26(t *testing.T) {
	t.Parallel()
	source := rand.New(rand.NewPCG(26, 1))
	for _, ties := range []float64{0, 1, 4} { // samples are whole multiples of 1/ties
		for range 10 {
			draw := func(shift float64) []float64 {
				return samples(40, func() float64 {
					v := source.NormFloat64() + shift
					if ties > 0 {
						v = math.Round(v*ties) / ties
					}
					return v
				})
			}
			r := rank(draw(0.5*source.Float64()), draw(0))
			exact, normal := r.exact(), r.normal()
			require.True(t, normal > 0.95*exact && normal < 1.3*exact+1e-4, "exact %g, approximated %g, ties %g", exact, normal, ties)
		}
	}
	require.False(t, rank(make([]float64, 40), make([]float64, 40)).isExact())
	require.True(t, rank(make([]float64, 35), make([]float64, 35)).isExact())
}

func samples(n int, draw func() float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = draw()
	}
	return out
}

// p of a share is how many of all ways to deal out the errors give so many or more.
func TestFisherMatchesAllPermutations_D26(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string) (Count, []float64) {
			total := rapid.IntRange(1, 6).Draw(t, what)
			of := rapid.IntRange(0, total).Draw(t, what+" of")
			outcomes := make([]float64, total)
			for i := range of {
				outcomes[i] = 1
			}
			return Count{of, total}, outcomes
		}
		first, a := draw("first")
		second, b := draw("second")
		require.InDelta(t, permutationP(a, b), fisher(first, second), 1e-9) // U counts errors where there are two values
	})
	for _, c := range []struct {
		first, second Count
		least, most   float64
	}{
		{Count{0, 1e9}, Count{1e6, 1e9}, 1, 1},
		{Count{5e5, 1e9}, Count{1e6, 1e9}, 0.999, 1},
		{Count{1e6, 1e9}, Count{1e6, 1e9}, 0.49, 0.51},
		{Count{1e6 + 5e3, 1e9}, Count{1e6, 1e9}, 1e-4, 3e-4}, // 3.53 standard deviations
		{Count{2e6, 1e9}, Count{1e6, 1e9}, 0, 0},
	} {
		p := fisher(c.first, c.second)
		require.True(t, p >= c.least && p <= c.most, "%v %v: %g", c.first, c.second, p)
	}
}

// Every unusual input has its verdict.
func TestVerdicts_D26(t *testing.T) {
	t.Parallel()
	flat := func(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }
	rising := func(from float64, n int) []float64 {
		i := from - 1
		return samples(n, func() float64 { i++; return i })
	}
	nan := append(flat(1, 20), math.NaN(), math.Inf(1))
	drop := planWith(func(p *Plan) { p.Drop = true })
	either := planWith(func(p *Plan) { p.Direction = Either })
	for _, c := range []struct {
		name              string
		plan              Plan
		released, control []float64
		says              string
	}{
		{"the same", plan, rising(100, 20), rising(100, 20), "no increase shown, 110 against 110 (+0 %, tolerance 10 %), 20 samples against 20, p 0.511 (level 0.01 = 0.01 / 1), exact Mann-Whitney"},
		{"worse", plan, rising(130, 20), rising(100, 20), "increased, 140 against 110 (+27.4 %, tolerance 10 %), 20 samples against 20, p 7.25e-12 (level 0.01 = 0.01 / 1), exact Mann-Whitney"},
		{"better", plan, rising(100, 20), rising(130, 20), "no increase shown, 110 against 140 (-21.5 %, tolerance 10 %), 20 samples against 20, p 1 (level 0.01 = 0.01 / 1), exact Mann-Whitney"},
		{"lower is worse", planWith(func(p *Plan) { p.Direction = Decrease }), rising(100, 20), rising(130, 20), "decreased, 110 against 140 (-21.5 %, tolerance 10 %)…"},
		{"either, lower", either, rising(100, 20), rising(130, 20), "decreased, 110 against 140 (-21.5 %, tolerance 10 %), 20 samples against 20, p 1.45e-11 (level 0.01…"},
		{"either, the same", either, rising(100, 20), rising(100, 20), "no change shown, 110 against 110 (+0 %, tolerance 10 %), 20 samples against 20, p 1 (level 0.01…"},
		{"shared by thirty", planWith(func(p *Plan) { p.Comparisons, p.Tolerance = 30, 0.05 }), rising(107, 20), rising(100, 20), "no increase shown, 116 against 110 (+6.39 %, tolerance 5 %), 20 samples against 20, p 0.000661 (level 0.000333 = 0.01 / 30), exact Mann-Whitney; about 37 of each would show such a change"},
		{"significant but small", plan, rising(1030, 20), rising(1000, 20), "changed within the tolerance, 1.04e+03 against 1.01e+03 (+2.97 %, tolerance 10 %)…"},
		{"constant", plan, flat(7, 20), flat(7, 20), "no increase shown, 7 against 7 (+0 %, tolerance 10 %), 20 samples against 20, p 1 (level…"},
		{"two constants", plan, flat(8, 20), flat(7, 20), "increased, 8 against 7 (+14.3 %, tolerance 10 %)…"},
		{"exactly the tolerance", plan, flat(1.1, 20), flat(1, 20), "increased, 1.1 against 1 (+10 %, tolerance 10 %)…"},
		{"from nothing", plan, flat(8, 20), flat(0, 20), "increased, 8 against 0 (+Inf %, tolerance 10 %)…"},
		{"from below zero", plan, flat(-7, 20), flat(-8, 20), "increased, -7 against -8 (+12.5 %, tolerance 10 %)…"},
		{"too few", plan, flat(8, 7), flat(7, 40), "too few samples, 8 against 7 (+14.3 %, tolerance 10 %), 7 samples against 40; at least 20 of each are needed"},
		{"too few for p", planWith(func(p *Plan) { p.MinSamples = 3 }), flat(8, 4), flat(7, 4), "too few samples, 8 against 7 (+14.3 %, tolerance 10 %), 4 samples against 4; at least 5 of each are needed"},
		{"repeated", plan, slices.Concat(flat(9, 10), flat(8, 10)), slices.Concat(flat(7, 20)), "too few samples, 8.5 against 7 (+21.4 %, tolerance 10 %), 20 samples against 20, equivalent to 0 independent ones (correlation 0.99); at least 3980 of each are needed"},
		{"non-numbers are dropped", drop, nan, flat(1, 20), "no increase shown, 1 against 1 (+0 %, tolerance 10 %), 20 samples against 20, 2 dropped, p 1 (level…"},
		{"non-numbers", plan, nan, flat(1, 20), "ERROR 2 of 22 samples of the release are not finite numbers"},
		{"only non-numbers", drop, nan[20:], flat(1, 20), "ERROR no samples of the release that are finite numbers: 2 are not"},
		{"nothing", plan, nil, flat(1, 20), "ERROR no samples of the release"},
		{"no control group", plan, flat(1, 20), nil, "ERROR no samples of the control group"},
	} {
		e, err := Samples(c.plan, c.released, c.control)
		requireText(t, c.name, e, err, c.says)
	}
	for _, c := range []struct {
		name              string
		plan              Plan
		released, control Count
		says              string
	}{
		{"no errors", plan, Count{0, 500}, Count{0, 500}, "no increase shown, 0 against 0 (+0 %, tolerance 10 %), 500 requests against 500, p 1 (level 0.01 = 0.01 / 1), exact Fisher"},
		{"more errors", plan, Count{30, 500}, Count{5, 500}, "increased, 0.06 against 0.01 (+500 %, tolerance 10 %), 500 requests against 500, p 8.16e-06 (level…"},
		{"a few more", plan, Count{8, 500}, Count{5, 500}, "no increase shown, 0.016 against 0.01 (+60 %, tolerance 10 %), 500 requests against 500, p 0.289 (level 0.01 = 0.01 / 1), exact Fisher; about 7149 of each would show such a change"},
		{"less traffic does not matter", plan, Count{30, 500}, Count{60, 1000}, "no increase shown, 0.06 against 0.06 (+0 %, tolerance 10 %), 500 requests against 1000, p 0.541 (level…"},
		{"fewer successes", planWith(func(p *Plan) { p.Direction = Decrease }), Count{400, 500}, Count{495, 500}, "decreased, 0.8 against 0.99 (-19.2 %, tolerance 10 %)…"},
		{"too few", plan, Count{9, 10}, Count{1, 500}, "too few requests, 0.9 against 0.002 (+4.49e+04 %, tolerance 10 %), 10 requests against 500; at least 20 of each are needed"},
		{"no requests of the release", plan, Count{0, 0}, Count{1, 500}, "too few requests, 0 against 0.002 (-100 %, tolerance 10 %), 0 requests against 500; at least 20 of each are needed"},
		{"no requests", plan, Count{}, Count{}, "too few requests, 0 against 0 (+0 %, tolerance 10 %), 0 requests against 0; at least 20 of each are needed"},
		{"more than all", plan, Count{11, 10}, Count{1, 500}, "ERROR 11 of 10 is not a valid count"},
	} {
		e, err := Counts(c.plan, c.released, c.control)
		requireText(t, c.name, e, err, c.says)
	}
	_, err := Samples(plan, nil, flat(1, 20))
	require.ErrorIs(t, err, ErrNoSamples)
}

func requireText(t *testing.T, name string, e Evidence, err error, want string) {
	t.Helper()
	got := e.String()
	if err != nil {
		got = "ERROR " + err.Error()
	}
	require.Less(t, len(got), 300)
	if begin, open := cutEllipsis(want); open {
		require.Greater(t, len(got), len(begin), name)
		got, want = got[:len(begin)], begin
	}
	assert.Equal(t, want, got, name)
}

func cutEllipsis(s string) (string, bool) {
	const dots = "…"
	if len(s) > len(dots) && s[len(s)-len(dots):] == dots {
		return s[:len(s)-len(dots)], true
	}
	return s, false
}

// The reported number of needed samples is sufficient.
func TestNeeded_D26(t *testing.T) {
	t.Parallel()
	for _, alpha := range []float64{0.05, 0.01, 0.001, 1e-6} {
		for _, direction := range []Direction{Increase, Either} {
			p := Plan{Direction: direction, Alpha: alpha, MinSamples: 1}
			n := p.MinNeeded()
			judged := func(n int) Outcome {
				e, err := Samples(p, slices.Repeat([]float64{2}, n), slices.Repeat([]float64{1}, n))
				require.NoError(t, err)
				return e.Outcome
			}
			require.Equal(t, Worse, judged(n), "%g: %d", alpha, n)
			require.Equal(t, Inconclusive, judged(n-1), "%g: %d", alpha, n)
		}
	}
	// With the number of samples that an undecided comparison reports as needed, about four of five such comparisons show the change.
	source := rand.New(rand.NewPCG(26, 2))
	p := planWith(func(p *Plan) { p.Tolerance = 0 })
	n := noether(p, 0.65)
	found := 0
	for range 500 {
		shift := math.Sqrt2 * quantile(0.35) // for one sample to exceed another one with 0.65
		e, err := Samples(p, samples(n, func() float64 { return source.NormFloat64() + shift }), samples(n, source.NormFloat64))
		require.NoError(t, err)
		if e.Outcome == Worse {
			found++
		}
	}
	require.InDelta(t, power, float64(found)/500, 0.05, "of %d samples each", n)
}

// metrics are ten kinds of samples as services have them.
func metrics(source *rand.Rand) []func() float64 {
	poisson := func(mean float64) float64 {
		k, p := 0.0, source.Float64()
		for limit := math.Exp(-mean); p > limit; k++ {
			p *= source.Float64()
		}
		return k
	}
	return []func() float64{
		source.NormFloat64,
		source.Float64,
		source.ExpFloat64,
		func() float64 { return math.Exp(source.NormFloat64()) },                // latencies
		func() float64 { return math.Exp(2 * source.NormFloat64()) },            // with a long tail
		func() float64 { return math.Round(source.NormFloat64()) },              // many ties
		func() float64 { return poisson(0.3) },                                  // mostly zero
		func() float64 { return poisson(20) },                                   // requests
		func() float64 { return math.Tan(math.Pi * (source.Float64() - 0.5)) },  // no mean
		func() float64 { return float64(source.IntN(2)*10) + source.Float64() }, // two peaks
	}
}

// Ten metrics, each compared three times as its samples grow: a release that changes nothing is judged worse by any of the thirty
// comparisons with a probability of at most alpha.
func TestFalseAlarms_D26(t *testing.T) {
	t.Parallel()
	const alpha, releases = 0.05, 400
	for _, direction := range []Direction{Increase, Either} {
		t.Run(string(direction), func(t *testing.T) {
			t.Parallel()
			p := Plan{Direction: direction, Alpha: alpha, Comparisons: 30, MinSamples: 8}
			source := rand.New(rand.NewPCG(26, 3))
			alarms := 0
			for range releases {
				alarm := false
				for _, draw := range metrics(source) {
					released, control := samples(40, draw), samples(40, draw)
					for _, n := range []int{8, 16, 40} {
						e, err := Samples(p, released[:n], control[:n])
						require.NoError(t, err)
						alarm = alarm || e.Outcome == Worse
					}
				}
				if alarm {
					alarms++
				}
			}
			t.Logf("%d of %d releases, alpha %g", alarms, releases, alpha)
			require.LessOrEqual(t, float64(alarms)/releases, alpha)
			require.NotZero(t, alarms, "it never alarms")
		})
	}
}

// Samples at short intervals are correlated. Counted as independent they give many times as many false alarms as alpha; corrected, about as
// many; and with too few effective samples the result is inconclusive.
func TestFalseAlarmsOfCorrelatedSamples_D26(t *testing.T) {
	t.Parallel()
	const releases = 1000
	source := rand.New(rand.NewPCG(26, 6))
	autoregressive := func(by float64) func() func() float64 {
		return func() func() float64 {
			x := source.NormFloat64()
			return func() float64 { x = by*x + math.Sqrt(1-by*by)*source.NormFloat64(); return x }
		}
	}
	rate := func(steps int) func() func() float64 { // over that many past steps
		return func() func() float64 {
			last := samples(steps, source.ExpFloat64)
			return func() float64 {
				last = append(last[1:], source.ExpFloat64())
				sum := 0.0
				for _, v := range last {
					sum += v
				}
				return sum
			}
		}
	}
	scraped := func(steps int) func() func() float64 { // once in that many steps
		return func() func() float64 {
			n, v := source.IntN(steps), source.NormFloat64()
			return func() float64 {
				if n++; n%steps == 0 {
					v = source.NormFloat64()
				}
				return v
			}
		}
	}
	for _, c := range []struct {
		name   string
		series func() func() float64
	}{
		{"independent", autoregressive(0)},
		{"correlated", autoregressive(0.5)},
		{"strongly correlated", autoregressive(0.8)},
		{"rate over two", rate(2)},
		{"rate over five", rate(5)},
		{"scraped every other", scraped(2)},
		{"scraped every fourth", scraped(4)},
	} {
		p := planWith(func(p *Plan) { p.Tolerance = 0 })
		alarms, uncorrected, conclusive := 0, 0, 0
		for range releases {
			released, control := samples(60, c.series()), samples(60, c.series())
			e, err := Samples(p, released, control)
			require.NoError(t, err)
			if e.Outcome != Inconclusive {
				conclusive++
			}
			if e.Outcome == Worse {
				alarms++
			}
			if rank(released, control).increase() <= p.Level() {
				uncorrected++
			}
		}
		t.Logf("%s: %d of %d releases, without the correction %d; %d were conclusive", c.name, alarms, releases, uncorrected, conclusive)
		require.LessOrEqual(t, float64(alarms)/releases, 2*p.Alpha, c.name)
		if c.name == "independent" {
			require.Greater(t, conclusive, releases*99/100)
		} else {
			require.Greater(t, float64(uncorrected)/releases, 2*p.Alpha, c.name)
		}
	}
}

// An effect on both groups does not matter: a busy hour makes the samples correlated, but not the differences.
func TestBusyHour_D26(t *testing.T) {
	t.Parallel()
	source := rand.New(rand.NewPCG(26, 7))
	hour := func(by float64) []float64 {
		i := 0.0
		return samples(30, func() float64 { i++; return (10 + i) * by * (1 + 0.01*source.NormFloat64()) })
	}
	e, err := Samples(plan, hour(1), hour(1))
	require.NoError(t, err)
	require.Equal(t, Same, e.Outcome)
}

func TestFalseAlarmsOfCounts_D26(t *testing.T) {
	t.Parallel()
	const alpha, releases = 0.05, 2000
	p := Plan{Direction: Increase, Alpha: alpha, Comparisons: 1, MinSamples: 20}
	source := rand.New(rand.NewPCG(26, 4))
	alarms := 0
	for range releases {
		draw := func(n int) Count {
			c := Count{Total: n}
			for range n {
				if source.Float64() < 0.1 {
					c.Of++
				}
			}
			return c
		}
		e, err := Counts(p, draw(300), draw(1000))
		require.NoError(t, err)
		if e.Outcome == Worse {
			alarms++
		}
	}
	t.Logf("%d of %d releases, alpha %g", alarms, releases, alpha)
	require.LessOrEqual(t, float64(alarms)/releases, alpha)
	require.NotZero(t, alarms, "it never alarms")
}

// How many samples show which change, for samples that vary by a fifth, alpha 0.01 shared by ten comparisons, and a
// tolerance of 10 %. docs/validation.md has the table.
func TestPower_D26(t *testing.T) {
	t.Parallel()
	const releases = 200
	source := rand.New(rand.NewPCG(26, 5))
	p := planWith(func(p *Plan) { p.Comparisons = 10 })
	changes := []float64{0, 0.1, 0.2, 0.3, 0.5}
	found := map[string]float64{}
	for _, n := range []int{10, 20, 40, 80} {
		p.MinSamples = n * 2 / 3 // as by default
		row := fmt.Sprintf("| %d |", n)
		for _, change := range changes {
			draw := func(by float64) func() float64 {
				return func() float64 { return (1 + by) * math.Exp(0.2*source.NormFloat64()) }
			}
			worse := 0
			for range releases {
				e, err := Samples(p, samples(n, draw(change)), samples(n, draw(0)))
				require.NoError(t, err)
				if e.Outcome == Worse {
					worse++
				}
			}
			share := float64(worse) / releases
			found[fmt.Sprint(n, change)] = share
			row += fmt.Sprintf(" %.0f %% |", 100*share)
		}
		t.Log(row)
	}
	require.Zero(t, found[fmt.Sprint(20, 0.0)])
	require.Greater(t, found[fmt.Sprint(20, 0.3)], 0.7)
	require.Greater(t, found[fmt.Sprint(40, 0.2)], found[fmt.Sprint(20, 0.2)])
}
