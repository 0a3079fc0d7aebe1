package compile

import (
	"cmp"
	"fmt"
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
	mostSamples       = 1000 // of each group: all are compared with all
)

// compare fills in a comparison with a control group, and checks it.
func (f *filling) compare(at string, c *config.CompareProtection) *entities.CompareCheck {
	query := notEmpty("a query in PromQL")
	source, control := at+".prometheus", at+".control"
	check := &entities.CompareCheck{
		URL: f.text(source+".url", c.Prometheus.URL, checkURL), Token: f.token(source+".token", c.Prometheus.Token),
		Query: f.text(source+".query", c.Prometheus.Query, query), Total: f.text(source+".total", c.Prometheus.Total, query),
		Control: f.text(control+".query", c.Control.Query, query), ControlTotal: f.text(control+".total", c.Control.Total, query),
		Direction: cmp.Or(string(c.Direction), "increase"), Comparisons: f.whole(at+".looks", c.Looks, 1),
		Alpha: f.fraction(at+".alpha", c.Alpha, defaultAlpha, 1), Tolerance: f.fraction(at+".tolerance", c.Tolerance, defaultTolerance, 1000),
		MinSamples: f.whole(at+".minSamples", c.MinSamples, defaultMinSamples), DropNaN: c.NaNStrategy == "drop",
		For: f.period(at+".for", c.For, span{time.Minute, time.Millisecond}), InconclusivePasses: c.Inconclusive == "pass",
	}
	if c.Control.Offset != "" {
		check.Offset = f.period(control+".offset", c.Control.Offset, span{0, time.Second})
	}
	check.Deadline = f.period(at+".deadline", c.Deadline, span{2 * check.For, time.Millisecond})
	check.Step = f.period(at+".step", c.Step, span{(2 * check.For / time.Duration(3*check.MinSamples)).Truncate(time.Millisecond), time.Millisecond})
	if !f.d.Faulty(at) {
		f.comparable(at, c, check)
	}
	return check
}

// comparable refuses what cannot be compared, or never.
func (f *filling) comparable(at string, c *config.CompareProtection, check *entities.CompareCheck) {
	refuse := func(at, code, message, expected string) {
		f.once(at, strict.Fault{Code: code, Message: message, Expected: expected})
	}
	within, both := int(check.Deadline/max(check.Step, 1)), c.Control.Query != ""
	switch {
	case both == (check.Offset > 0):
		refuse(at+".control", "one-of", "what it is compared with is said by a query or by an offset", `one of "query" and "offset"`)
	case both && (c.Control.Total == "") != (c.Prometheus.Total == ""), !both && c.Control.Total != "":
		refuse(at+".control", "one-of", "samples cannot be compared with shares", `"total" for both, or for none`)
	case check.Deadline < check.For:
		refuse(at+".deadline", "bad-value", fmt.Sprintf("%s is before the first look", check.Deadline), fmt.Sprintf("at least %s", check.For))
	case c.Prometheus.Total != "" && c.Step.Or(0) > 0:
		refuse(at+".step", "one-of", "shares are of all the time, without steps", `no "step" beside "total"`)
	case c.Prometheus.Total != "":
	case within < check.MinSamples:
		refuse(at, "bad-value", fmt.Sprintf("there are %d samples by the deadline, and minSamples is %d: it would never tell", within, check.MinSamples), `a shorter "step", a later "deadline" or fewer "minSamples"`)
	case within > mostSamples:
		refuse(at, "bad-value", fmt.Sprintf("there are %d samples by the deadline", within), fmt.Sprintf(`at most %d, by a longer "step"`, mostSamples))
	}
}

// whole is a number of things, one at least.
func (f *filling) whole(at string, n, otherwise int) int {
	if n < 1 && f.d.Has(at) && !f.d.Faulty(at) {
		f.once(at, strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%d is not possible here", n), Expected: "at least 1"})
	}
	if n < 1 {
		return otherwise
	}
	return n
}

// fraction is a number of at least 0 and less than a limit.
func (f *filling) fraction(at string, n *config.Number, otherwise, limit float64) float64 {
	v := f.number(at, n)
	if v == nil {
		return otherwise
	}
	if *v < 0 || *v >= limit {
		f.late(at, n.Text, strict.Fault{Code: "bad-value", Message: substitute.AsText(*v) + " is not possible here", Expected: fmt.Sprintf("at least 0, and less than %g", limit)})
	}
	return *v
}

// comparison shares alpha between all comparisons of a channel, and refuses one that then could never tell of anything, or
// that is asked when there is nothing to compare yet.
func (s *serviceCompiler) comparison(f *filling, in *substitute.Scope, use protectionUse, check *entities.CompareCheck) {
	refuse := func(fault strict.Fault) {
		s.reportIn(use.d, use.at, in.Channel, substitute.Trouble{InChannel: true, Fault: fault})
	}
	if !use.after {
		refuse(strict.Fault{Code: "bad-value", Message: "there is nothing to compare before the objects are stable", Expected: `this under "postconditions"`})
	}
	check.Comparisons *= s.comparisons
	plan := stats.Plan{Direction: stats.Direction(check.Direction), Alpha: check.Alpha, Comparisons: check.Comparisons, MinSamples: check.MinSamples}
	if least := plan.Least(); least > check.MinSamples && !f.d.Faulty(f.at) {
		refuse(strict.Fault{
			Code: "bad-value", Message: fmt.Sprintf("%d samples cannot tell of anything with alpha %g over %d", check.MinSamples, check.Alpha, check.Comparisons),
			Expected: fmt.Sprintf(`"minSamples" of at least %d`, least),
		})
	}
}

// within is how long a postcondition may wait: a comparison until its deadline, and as long as others for being evaluated.
func (s *serviceCompiler) within(in *substitute.Scope, use protectionUse, check *entities.Check, otherwise time.Duration) time.Duration {
	compared := s.compiler.definitions.checks[check.Definition].Compare
	if compared == nil {
		return use.within.Or(otherwise)
	}
	within := use.within.Or(compared.Deadline + otherwise)
	if within <= compared.Deadline {
		s.reportIn(use.d, use.at+".within", in.Channel, substitute.Trouble{InChannel: true, Fault: strict.Fault{
			Code: "bad-value", Message: fmt.Sprintf("%s ends before the comparison, whose deadline is %s", within, compared.Deadline), Expected: "a longer time, or none",
		}})
	}
	return within
}
