package stats

import (
	"math"
	"slices"
)

// ranked is the ranks of two groups together, doubled, so that the mean rank of equal samples is an integer.
type ranked struct {
	ranks []int   // of all samples, ascending
	n     int     // samples of the first group
	sum   int     // of the first group's ranks
	ties  float64 // the sum of t³ - t over runs of t equal samples
}

func rank(first, second []float64) ranked {
	type sample struct {
		value float64
		first bool
	}
	all := make([]sample, 0, len(first)+len(second))
	for _, v := range first {
		all = append(all, sample{v, true})
	}
	for _, v := range second {
		all = append(all, sample{v, false})
	}
	slices.SortFunc(all, func(a, b sample) int {
		switch {
		case a.value < b.value:
			return -1
		case a.value > b.value:
			return 1
		}
		return 0
	})
	r := ranked{n: len(first)}
	for from := 0; from < len(all); {
		to := from
		for to < len(all) && all[to].value == all[from].value {
			to++
		}
		rank := from + 1 + to // twice the mean of from+1 … to
		for _, s := range all[from:to] {
			if r.ranks = append(r.ranks, rank); s.first {
				r.sum += rank
			}
		}
		t := float64(to - from)
		r.ties += t*t*t - t
		from = to
	}
	return r
}

// maxExactWork limits the work of an exact test, in additions. 35 samples in each group are below it.
const maxExactWork = 1e7

// isExact reports whether p is computed exactly. It is, unless that takes too long.
func (r ranked) isExact() bool {
	return float64(len(r.ranks))*float64(r.n)*float64(r.maxSum()) <= maxExactWork
}

// maxSum returns the largest possible rank sum of the first group.
func (r ranked) maxSum() int {
	most := 0
	for _, rank := range r.ranks[len(r.ranks)-r.n:] {
		most += rank
	}
	return most
}

// increase returns the probability that the first group has such large ranks by chance.
func (r ranked) increase() float64 {
	if r.isExact() {
		return r.exact()
	}
	return r.normal()
}

// exact counts the ways to choose the first group out of all ranks, by their number and sum. So it handles ties too.
func (r ranked) exact() float64 {
	most := r.maxSum()
	count := make([][]float64, r.n+1)
	for k := range count {
		count[k] = make([]float64, most+1)
	}
	count[0][0] = 1
	for _, rank := range r.ranks {
		for k := r.n; k > 0; k-- {
			for sum := most; sum >= rank; sum-- {
				count[k][sum] += count[k-1][sum-rank]
			}
		}
	}
	var tail, all float64
	for sum, c := range count[r.n] {
		if all += c; sum >= r.sum {
			tail += c
		}
	}
	return tail / all
}

// normal approximates the distribution of U, corrected for ties and continuity.
func (r ranked) normal() float64 {
	n, total := float64(r.n), float64(len(r.ranks))
	m := total - n
	variance := n * m / 12 * (total + 1 - r.ties/(total*(total-1)))
	if variance <= 0 {
		return 1 // all are equal
	}
	return upper((r.u() - n*m/2 - 0.5) / math.Sqrt(variance))
}

// u returns how many pairs of the groups have the greater sample in the first one; equal ones count half.
func (r ranked) u() float64 { return float64(r.sum)/2 - float64(r.n)*float64(r.n+1)/2 }

// superiority returns the probability that a sample of the first group is greater than one of the second.
func (r ranked) superiority() float64 {
	return r.u() / (float64(r.n) * float64(len(r.ranks)-r.n))
}

// upper returns the probability that a normal variable is greater than z.
func upper(z float64) float64 { return math.Erfc(z/math.Sqrt2) / 2 }

// quantile returns the z that a normal variable exceeds with probability p.
func quantile(p float64) float64 { return math.Sqrt2 * math.Erfcinv(2*p) }

// fisher returns the probability of so many in the first group by chance, given the total of both: the upper tail of the hypergeometric
// distribution.
func fisher(first, second Count) float64 {
	of, total := first.Of+second.Of, first.Total+second.Total
	if first.Of*total <= of*first.Total { // not more than expected: one minus the lower tail, whose terms are distinguishable from zero
		if first.Of == 0 || second.Of == second.Total {
			return 1
		}
		return 1 - fisher(Count{first.Total - first.Of + 1, first.Total}, Count{second.Total - second.Of - 1, second.Total})
	}
	// Each term follows from the one before.
	term := math.Exp(logBinomial(of, first.Of) + logBinomial(total-of, first.Total-first.Of) - logBinomial(total, first.Total))
	sum := 0.0
	for k := first.Of; k <= min(of, first.Total); k++ {
		sum += term
		term *= float64(of-k) / float64(k+1) * float64(first.Total-k) / float64(second.Total-of+k+1)
		if term < sum*1e-17 {
			break
		}
	}
	return min(1, sum)
}

// logBinomial returns the logarithm of the binomial coefficient: k of n.
func logBinomial(n, k int) float64 {
	gamma := func(v int) float64 { l, _ := math.Lgamma(float64(v) + 1); return l }
	return gamma(n) - gamma(k) - gamma(n-k)
}

func combinations(n, k int) float64 { return math.Exp(logBinomial(n, k)) }

// correlation returns the lag-1 autocorrelation, by ranks, of the differences between the groups. Effects on both groups, such as a busy
// hour, cancel out. It is 0 unless it exceeds the value that nine of ten independent series stay below. It is corrected for the low bias
// with few samples (Kendall 1954), and is at most 0.99.
func correlation(first, second []float64) float64 {
	differences := make([]float64, min(len(first), len(second)))
	for i := range differences {
		differences[i] = first[i] - second[i]
	}
	sorted := slices.Sorted(slices.Values(differences))
	n := float64(len(sorted))
	var before, with, all float64
	for i, d := range differences {
		from, _ := slices.BinarySearch(sorted, d)
		to := from
		for to < len(sorted) && sorted[to] == d {
			to++
		}
		rank := float64(from+to)/2 - n/2 // relative to their mean
		if all += rank * rank; i > 0 {
			with += rank * before
		}
		before = rank
	}
	if all == 0 || with/all <= quantile(0.1)/math.Sqrt(n) {
		return 0
	}
	return min(with/all+(1+4*with/all)/n, 0.99)
}

// shift is the Hodges-Lehmann estimate: the median of all differences.
func shift(first, second []float64) float64 {
	differences := make([]float64, 0, len(first)*len(second))
	for _, a := range first {
		for _, b := range second {
			differences = append(differences, a-b)
		}
	}
	return median(differences)
}

// median sorts its argument.
func median(samples []float64) float64 {
	slices.Sort(samples)
	n := len(samples)
	return samples[(n-1)/2]/2 + samples[n/2]/2
}

func relativeTo(difference, to float64) float64 {
	if difference == 0 {
		return 0
	}
	return difference / math.Abs(to) // relative to zero: infinite
}

// power is the probability of showing a change that Needed is computed for.
const power = 0.8

// needed rounds up. It returns 0 for an impractically large number.
func needed(n float64) int {
	if math.IsNaN(n) || n > 1e9 {
		return 0
	}
	return int(math.Ceil(n))
}

// z is the sum of the quantiles of the level and the power.
func (p Plan) z() float64 {
	level := p.Level()
	if p.Direction == Either {
		level /= 2
	}
	return quantile(level) + quantile(1-power)
}

// noether returns how many samples each group needs if samples of the first are greater with a given probability (Noether 1987).
func noether(p Plan, superiority float64) int {
	z, d := p.z(), superiority-0.5
	return needed(z * z / (6 * d * d))
}

// proportions returns how many requests each group needs to show a difference of two shares.
func proportions(p Plan, a, b float64) int {
	z, d := p.z(), a-b
	return needed(z * z * (a*(1-a) + b*(1-b)) / (d * d))
}
