package compile

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/stats"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// Defaults and bounds of comparisons.
const (
	defaultAlpha      = 0.01
	defaultTolerance  = 0.1
	defaultMinSamples = 20
	defaultMinCounts  = 200              // requests: fewer only show an outage
	minStep           = 15 * time.Second // default; Prometheus seldom scrapes more often
	maxSamples        = 1000             // of each group, because every sample is compared with every other
)

// compare sets the defaults of a comparison with a control group, and checks it.
func (f *fieldCompiler) compare(at string, c *config.CompareProtection) *entities.CompareCheck {
	query := checkComparedQuery(c)
	enough := defaultMinSamples
	if c.Prometheus.Total != "" {
		enough = defaultMinCounts
	}
	alpha := numberRange{func(v float64) bool { return v > 0 && v < 1 }, "more than 0, and less than 1"}
	tolerance := numberRange{func(v float64) bool { return v >= 0 && v < 1000 }, "at least 0, and less than 1000"}
	if c.Direction == "decrease" {
		tolerance = numberRange{func(v float64) bool { return v >= 0 && v <= 1 }, "at least 0, and at most 1: a value cannot fall by more"}
	}
	source, control := at+".prometheus", at+".control"
	check := &entities.CompareCheck{
		URL: f.text(source+".url", c.Prometheus.URL, checkURL), Token: f.token(source+".token", c.Prometheus.Token),
		Query: f.text(source+".query", c.Prometheus.Query, query), Total: f.text(source+".total", c.Prometheus.Total, query),
		Control: f.text(control+".query", c.Control.Query, query), ControlTotal: f.text(control+".total", c.Control.Total, query),
		Direction: cmp.Or(string(c.Direction), "increase"), Comparisons: f.positiveInt(at+".looks", c.Looks, 1),
		Alpha: f.fraction(at+".alpha", c.Alpha, defaultAlpha, alpha), Tolerance: f.fraction(at+".tolerance", c.Tolerance, defaultTolerance, tolerance),
		MinSamples: f.positiveInt(at+".minSamples", c.MinSamples, enough), DropNaN: c.NaNStrategy == "drop",
		For: f.period(at+".for", c.For, span{time.Minute, time.Millisecond}), InconclusivePasses: c.Inconclusive == "pass", EmptyPasses: c.Empty == "pass",
	}
	if c.Control.Offset != "" {
		check.Offset = f.period(control+".offset", c.Control.Offset, span{0, time.Second})
	}
	check.Deadline = f.period(at+".deadline", c.Deadline, span{2 * check.For, time.Millisecond})
	check.Step = f.period(at+".step", c.Step, span{max(minStep, (2 * check.For / time.Duration(3*check.MinSamples)).Truncate(time.Millisecond)), time.Millisecond})
	if !f.d.Faulty(at) {
		f.checkComparable(at, c, check)
	}
	return check
}

// checkComparable rejects comparisons that are impossible or can never have a result.
func (f *fieldCompiler) checkComparable(at string, c *config.CompareProtection, check *entities.CompareCheck) {
	refuse := func(at, code, message, expected string) {
		f.reportUnscoped(at, strict.Fault{Code: code, Message: message, Expected: expected})
	}
	within, both := int(check.Deadline/max(check.Step, 1)), c.Control.Query != ""
	switch {
	case both == (check.Offset > 0):
		refuse(at+".control", "one-of", "the control group needs either a query or an offset", `one of "query" and "offset"`)
	case both && (c.Control.Total == "") != (c.Prometheus.Total == ""), !both && c.Control.Total != "":
		refuse(at+".control", "one-of", "samples cannot be compared with shares", `"total" for both, or for none`)
	case check.Deadline < check.For:
		refuse(at+".deadline", "bad-value", fmt.Sprintf("%s is before the first evaluation", check.Deadline), fmt.Sprintf("at least %s", check.For))
	case c.Prometheus.Total != "" && c.Step.Or(0) > 0:
		refuse(at+".step", "one-of", "shares cover the whole time, without steps", `no "step" with "total"`)
	case c.Prometheus.Total != "":
	case c.Step.Or(0) > check.For:
		refuse(at+".step", "bad-value", fmt.Sprintf("%s is longer than the sampling", check.Step), fmt.Sprintf("at most %s", check.For))
	case within < check.MinSamples:
		refuse(at, "bad-value", fmt.Sprintf("there are %d samples by the deadline, and minSamples is %d: there would be no result", within, check.MinSamples), `a shorter "step", a later "deadline" or fewer "minSamples"`)
	case within > maxSamples:
		refuse(at, "bad-value", fmt.Sprintf("there are %d samples by the deadline", within), fmt.Sprintf(`at most %d, by a longer "step"`, maxSamples))
	}
}

// checkComparedQuery checks a query. Queries for counts use the compared time range, queries for samples do not. A comparison with the past
// does not name a version that did not exist then.
func checkComparedQuery(c *config.CompareProtection) func(string) *strict.Fault {
	const ranged = "$__range"
	return func(query string) *strict.Fault {
		switch {
		case strings.TrimSpace(query) == "":
			return notEmpty("a query in PromQL")(query)
		case c.Prometheus.Total != "" && !strings.Contains(query, ranged):
			return &strict.Fault{Code: "bad-value", Message: "this query does not count over the compared time", Expected: "a query with [$__range], as in sum(increase(errors_total[$__range]))"}
		case c.Prometheus.Total == "" && strings.Contains(query, ranged):
			return &strict.Fault{Code: "bad-value", Message: "a query for samples cannot use $__range", Expected: `a time such as 1m, or "total" too`}
		case c.Control.Offset != "" && c.Control.Query == "":
			return rejectVersionInPast(query)
		}
		return nil
	}
}

// rejectVersionInPast rejects a query of the past that names the new version.
func rejectVersionInPast(text string) *strict.Fault {
	return strict.FaultUnless(!strings.Contains(text, "${{ version }}") && !strings.Contains(text, "${{ fullVersion }}"), "bad-value",
		"%s did not exist at that time", "this version", "a query without the version, because it also queries the past")
}

// numberRange is the range of valid numbers.
type numberRange struct {
	contains func(float64) bool
	expected string
}

// positiveInt returns a positive integer.
func (f *fieldCompiler) positiveInt(at string, n, fallback int) int {
	if n < 1 && f.d.Has(at) && !f.d.Faulty(at) {
		f.reportUnscoped(at, strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%d is not possible here", n), Expected: "at least 1"})
	}
	if n < 1 {
		return fallback
	}
	return n
}

// fraction returns a number within the allowed range.
func (f *fieldCompiler) fraction(at string, n *config.Number, fallback float64, allowed numberRange) float64 {
	v := f.number(at, n)
	if v == nil {
		return fallback
	}
	if !allowed.contains(*v) {
		f.reportSubstituted(at, n.Text, strict.Fault{Code: "bad-value", Message: substitute.AsText(*v) + " is not possible here", Expected: allowed.expected})
	}
	return *v
}

// comparison divides alpha between all comparisons of a channel. It rejects a comparison that could then never be significant, or that
// is evaluated before there is anything to compare.
func (s *serviceCompiler) comparison(f *fieldCompiler, in *substitute.Scope, use protectionUse, check *entities.CompareCheck) {
	refuse := func(fault strict.Fault) {
		s.reportIn(use.d, use.at, in.Channel, substitute.ScopedFault{InChannel: true, Fault: fault})
	}
	if !use.after {
		refuse(strict.Fault{Code: "bad-value", Message: "there is nothing to compare before the objects are stable", Expected: `the comparison under "postconditions"`})
	}
	check.Comparisons *= s.comparisons
	plan := stats.Plan{Direction: stats.Direction(check.Direction), Alpha: check.Alpha, Comparisons: check.Comparisons, MinSamples: check.MinSamples}
	if minDeadline := plan.MinNeeded(); minDeadline > check.MinSamples && check.Alpha > 0 && !f.d.Faulty(f.at) {
		refuse(strict.Fault{
			Code: "bad-value", Message: fmt.Sprintf("%d samples cannot show a difference with alpha %g over %d", check.MinSamples, check.Alpha, check.Comparisons),
			Expected: fmt.Sprintf(`"minSamples" of at least %d`, minDeadline),
		})
	}
}

// postconditionTimeout returns how long a postcondition may wait. A comparison waits until its deadline plus the usual time for an
// evaluation.
func (s *serviceCompiler) postconditionTimeout(in *substitute.Scope, use protectionUse, check *entities.Check, fallback time.Duration) time.Duration {
	comparison := s.compiler.definitions.checks[check.Definition].Compare
	if comparison == nil {
		return use.within.Or(fallback)
	}
	within := use.within.Or(comparison.Deadline + fallback)
	if within <= comparison.Deadline {
		s.reportIn(use.d, use.at+".within", in.Channel, substitute.ScopedFault{InChannel: true, Fault: strict.Fault{
			Code: "bad-value", Message: fmt.Sprintf("%s ends before the comparison, whose deadline is %s", within, comparison.Deadline), Expected: "a longer time, or none",
		}})
	}
	return within
}
