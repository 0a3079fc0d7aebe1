package loosen

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
)

// values compares two definitions of a check of one kind, by their content.
func values(kind entities.CheckKind, o, n *entities.CheckDefinition) []string {
	switch kind {
	case entities.CheckAllowedTimes:
		return compareDefinitions(o.AllowedTimes, n.AllowedTimes, times)
	case entities.CheckDeniedVersions:
		return compareDefinitions(o.DeniedVersions, n.DeniedVersions, denied)
	case entities.CheckDeniedCommits:
		return compareDefinitions(o.DeniedCommits, n.DeniedCommits, deniedCommits)
	case entities.CheckPrometheus:
		return compareDefinitions(o.Prometheus, n.Prometheus, query)
	case entities.CheckAlertmanager:
		return compareDefinitions(o.Alertmanager, n.Alertmanager, alerts)
	case entities.CheckHTTP:
		return compareDefinitions(o.HTTP, n.HTTP, answers)
	case entities.CheckAlways:
		return compareDefinitions(o.Always, n.Always, verdicts)
	case entities.CheckCEL:
		return compareDefinitions(o.CEL, n.CEL, expressions)
	case entities.CheckCommand, entities.CheckJob, entities.CheckTask, entities.CheckSelection:
		return compareDefinitions(o.Command, n.Command, runs)
	}
	return textIf(differ([]any{o.Capacity, o.Compare, o.Dependency, o.ConfigRollout}, []any{n.Capacity, n.Compare, n.Dependency, n.ConfigRollout}), "evaluated differently")
}

// runs compares two commands. The location of a command does not matter.
func runs(o, n *entities.CheckRun) []string {
	return textIf(differ(*o, *n), "evaluated differently")
}

// compareDefinitions compares two definitions by a function. If only one of them exists, they differ.
func compareDefinitions[D any](o, n *D, by func(o, n *D) []string) []string {
	if o == nil || n == nil {
		return textIf(o != n, "evaluated differently")
	}
	return by(o, n)
}

func denied(o, n *entities.DeniedVersions) []string {
	return listText("does not deny ", difference(o.Versions, n.Versions))
}

func deniedCommits(o, n *entities.DeniedCommits) []string {
	return listText("does not deny ", difference(o.Commits, n.Commits))
}

func verdicts(o, n *entities.AlwaysCheck) []string {
	return textIf(n.Verdict == entities.Pass && o.Verdict != entities.Pass, "always passes")
}

func expressions(o, n *entities.CELCheck) []string {
	out := textIf(o.Expression != n.Expression, "evaluated by another expression")
	return append(out, textIf(o.Fails && !n.Fails, "waits instead of failing")...)
}

func textIf(condition bool, text string) []string {
	if condition {
		return []string{text}
	}
	return nil
}

func listText(text string, of []string) []string {
	if len(of) == 0 {
		return nil
	}
	return []string{text + strings.Join(of, ", ")}
}

func times(o, n *entities.AllowedTimes) []string {
	out := textIf(o.TimeZone != n.TimeZone, "in the time zone "+n.TimeZone+" instead of "+o.TimeZone)
	for _, f := range o.Freezes {
		if slices.ContainsFunc(n.Freezes, func(by entities.Freeze) bool { return covers(by, f) }) {
			continue
		}
		text := "no freeze from " + f.From + " to " + f.To
		if f.Reason != "" {
			text += " (" + f.Reason + ")"
		}
		out = append(out, text)
	}
	out = append(out, listText("open on holidays of ", difference(o.HolidayCountries, n.HolidayCountries))...)
	out = append(out, listText("open on ", difference(o.Holidays, n.Holidays))...)
	if len(n.Windows) == 0 {
		return append(out, textIf(len(o.Windows) > 0, "open at any time")...)
	}
	if len(o.Windows) == 0 {
		return out
	}
	for _, w := range n.Windows {
		if !slices.Contains(o.Windows, w) {
			out = append(out, strings.TrimSpace("open "+strings.TrimSpace(w.Days+" "+w.Hours)))
		}
	}
	return out
}

// covers reports whether one freeze contains another. Times of the same form are compared as text. Times of different forms are not
// comparable.
func covers(by, f entities.Freeze) bool {
	comparable := len(by.From) == len(f.From) && len(by.To) == len(f.To) && !strings.ContainsAny(by.From+by.To+f.From+f.To, "Z+")
	return by.From == f.From && by.To == f.To || comparable && by.From <= f.From && by.To >= f.To
}

func query(o, n *entities.PrometheusQuery) []string {
	out := textIf(o.Query != n.Query, "runs another query")
	out = append(out, textIf(o.URL != n.URL, "queries "+n.URL+" instead of "+o.URL)...)
	if o.LessThan != nil && (n.LessThan == nil || *n.LessThan > *o.LessThan) {
		out = append(out, "less than "+number(n.LessThan)+" instead of "+number(o.LessThan))
	}
	if o.GreaterThan != nil && (n.GreaterThan == nil || *n.GreaterThan < *o.GreaterThan) {
		out = append(out, "greater than "+number(n.GreaterThan)+" instead of "+number(o.GreaterThan))
	}
	return append(out, textIf(n.Empty == "pass" && o.Empty != "pass", "passes without a sample")...)
}

func number(n *float64) string {
	if n == nil {
		return "anything"
	}
	return fmt.Sprint(*n)
}

// alerts compares two alert queries. Fewer matchers select more alerts.
func alerts(o, n *entities.Alerts) []string {
	out := textIf(o.URL != n.URL, "queries "+n.URL+" instead of "+o.URL)
	for _, label := range slices.Sorted(maps.Keys(n.Matchers)) {
		if v := n.Matchers[label]; o.Matchers[label] != v {
			out = append(out, "only alerts with "+label+"="+v)
		}
	}
	return out
}

func answers(o, n *entities.HTTPCheck) []string {
	out := textIf(o.URL != n.URL, "queries "+n.URL+" instead of "+o.URL)
	out = append(out, textIf(differ(o.Headers, n.Headers), "sends other headers")...)
	old := o.Statuses
	if len(old) == 0 {
		for s := 200; s < 300; s++ {
			old = append(old, s)
		}
	}
	if len(n.Statuses) == 0 {
		return append(out, textIf(len(o.Statuses) > 0, "any status of 200 to 299 passes")...)
	}
	for _, s := range n.Statuses {
		if !slices.Contains(old, s) {
			out = append(out, fmt.Sprintf("status %d passes", s))
		}
	}
	return out
}
