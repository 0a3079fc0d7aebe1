package loosen

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
)

// values compares how a check of one kind is judged, by what it compares with.
func values(o, n *entities.CheckDefinition) []string {
	switch {
	case o.AllowedTimes != nil && n.AllowedTimes != nil:
		return times(o.AllowedTimes, n.AllowedTimes)
	case o.DeniedVersions != nil && n.DeniedVersions != nil:
		return each("does not deny ", without(o.DeniedVersions.Versions, n.DeniedVersions.Versions))
	case o.Prometheus != nil && n.Prometheus != nil:
		return query(o.Prometheus, n.Prometheus)
	case o.Alertmanager != nil && n.Alertmanager != nil:
		return alerts(o.Alertmanager, n.Alertmanager)
	case o.HTTP != nil && n.HTTP != nil:
		return answers(o.HTTP, n.HTTP)
	case o.Always != nil && n.Always != nil:
		if n.Always.Verdict == entities.Pass && o.Always.Verdict != entities.Pass {
			return []string{"always passes"}
		}
		return nil
	case o.Command != nil && n.Command != nil: // where it lies is not what it says
		return otherwise(differ(o.Command, n.Command), "runs something else")
	}
	return otherwise(differ([]any{o.Capacity, o.Dependency}, []any{n.Capacity, n.Dependency}), "judged by other values")
}

func otherwise(so bool, text string) []string {
	if so {
		return []string{text}
	}
	return nil
}

func each(text string, of []string) []string {
	if len(of) == 0 {
		return nil
	}
	return []string{text + strings.Join(of, ", ")}
}

func times(o, n *entities.AllowedTimes) []string {
	out := otherwise(o.TimeZone != n.TimeZone, "in the time of "+n.TimeZone+" instead of "+o.TimeZone)
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
	out = append(out, each("open on holidays of ", without(o.HolidayCountries, n.HolidayCountries))...)
	out = append(out, each("open on ", without(o.Holidays, n.Holidays))...)
	if len(n.Windows) == 0 {
		return append(out, otherwise(len(o.Windows) > 0, "open at any time")...)
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

// covers: one span holds another. Times of one form are ordered as texts; those of two forms are not compared.
func covers(by, f entities.Freeze) bool {
	comparable := len(by.From) == len(f.From) && len(by.To) == len(f.To) && !strings.ContainsAny(by.From+by.To+f.From+f.To, "Z+")
	return by.From == f.From && by.To == f.To || comparable && by.From <= f.From && by.To >= f.To
}

func query(o, n *entities.PrometheusQuery) []string {
	out := otherwise(o.Query != n.Query, "asks another query")
	out = append(out, otherwise(o.URL != n.URL, "asks "+n.URL+" instead of "+o.URL)...)
	if o.LessThan != nil && (n.LessThan == nil || *n.LessThan > *o.LessThan) {
		out = append(out, "less than "+number(n.LessThan)+" instead of "+number(o.LessThan))
	}
	if o.GreaterThan != nil && (n.GreaterThan == nil || *n.GreaterThan < *o.GreaterThan) {
		out = append(out, "greater than "+number(n.GreaterThan)+" instead of "+number(o.GreaterThan))
	}
	return append(out, otherwise(n.Empty == "pass" && o.Empty != "pass", "passes without a sample")...)
}

func number(n *float64) string {
	if n == nil {
		return "anything"
	}
	return fmt.Sprint(*n)
}

// alerts: with fewer matchers more alerts are of concern.
func alerts(o, n *entities.Alerts) []string {
	out := otherwise(o.URL != n.URL, "asks "+n.URL+" instead of "+o.URL)
	for _, label := range slices.Sorted(maps.Keys(n.Matchers)) {
		if v := n.Matchers[label]; o.Matchers[label] != v {
			out = append(out, "only alerts with "+label+"="+v)
		}
	}
	return out
}

func answers(o, n *entities.HTTPCheck) []string {
	out := otherwise(o.URL != n.URL, "asks "+n.URL+" instead of "+o.URL)
	out = append(out, otherwise(differ(o.Headers, n.Headers), "asks with other headers")...)
	old := o.Statuses
	if len(old) == 0 {
		for s := 200; s < 300; s++ {
			old = append(old, s)
		}
	}
	if len(n.Statuses) == 0 {
		return append(out, otherwise(len(o.Statuses) > 0, "any status of 200 to 299 passes")...)
	}
	for _, s := range n.Statuses {
		if !slices.Contains(old, s) {
			out = append(out, fmt.Sprintf("status %d passes", s))
		}
	}
	return out
}
