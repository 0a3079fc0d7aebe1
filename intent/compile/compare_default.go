package compile

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// Defaults of default comparisons. They compare with the past, where other things change, too. So they only detect large changes.
const (
	defaultComparedFor    config.Duration = "30m"
	defaultComparedStep   config.Duration = "1m"
	defaultComparedOffset config.Duration = "168h"
	defaultComparedChange                 = 0.5
	minRestarts                           = 20 // container minutes
)

// defaultComparisons compiles the comparisons that a runtime makes for every release. Service and channel remain open until the
// evaluation.
func (c *compiler) defaultComparisons(d *strict.Decoder, given *config.DefaultComparisons) []entities.DefaultComparison {
	const at = "defaultComparisons"
	if given == nil || d.Faulty(at) {
		return nil
	}
	if given.Requests == "" && given.Pods == "" {
		c.report(d, at, strict.Fault{Code: "missing-field", Message: "nothing would be compared", Expected: `"requests", "pods" or both`})
	}
	// Problems are sorted afterwards.
	for field, text := range map[string]string{"requests": given.Requests, "pods": given.Pods, "failed": given.Failed} {
		if fault := rejectVersionInPast(text); fault != nil {
			c.report(d, at+"."+field, *fault)
		}
	}
	scope := placeholderScope
	scope.Owner = "a runtime"
	var out []entities.DefaultComparison
	for _, f := range []*fieldCompiler{{c: c, d: d}, {c: c, d: d, scope: &scope}} { // without and with substitutions
		out = nil
		tolerance := cmp.Or(given.Tolerance, &config.Number{V: defaultComparedChange})
		for _, q := range queries(f, at, given) {
			compared := config.CompareProtection{
				Prometheus: config.ComparedQuery{URL: given.Prometheus.URL, Token: given.Prometheus.Token, Query: q.query, Total: q.total},
				Control:    config.ControlGroup{Offset: cmp.Or(given.Offset, defaultComparedOffset)},
				For:        cmp.Or(given.For, defaultComparedFor),
				Tolerance:  tolerance, MinSamples: q.minCount, NaNStrategy: "drop", Inconclusive: "pass", Empty: "pass",
			}
			if q.total == "" {
				compared.Step = cmp.Or(given.Step, defaultComparedStep)
			}
			out = append(out, entities.DefaultComparison{Name: q.name, How: *f.compare(at, &compared)})
		}
	}
	return out
}

// defaultQuery is the query of a default comparison: samples, or counts if it has a total.
type defaultQuery struct {
	name, query, total string
	minCount           int // samples; 0: the default
}

func queries(f *fieldCompiler, at string, given *config.DefaultComparisons) []defaultQuery {
	labels := notEmpty("labels as in PromQL")
	requests, pods := f.text(at+".requests", given.Requests, labels), f.text(at+".pods", given.Pods, labels)
	failed := cmp.Or(f.text(at+".failed", given.Failed, labels), `code=~"5.."`)
	counter, histogram := cmp.Or(given.Counter, "http_requests_total"), cmp.Or(given.Histogram, "http_request_duration_seconds")
	step := cmp.Or(given.Step, defaultComparedStep).Or(time.Minute)
	var all []defaultQuery
	if requests != "" {
		all = append(all, defaultQuery{
			name:  "errors",
			query: fmt.Sprintf("sum(increase(%s{%s,%s}[$__range])) or vector(0)", counter, requests, failed),
			total: fmt.Sprintf("sum(increase(%s{%s}[$__range]))", counter, requests),
		}, defaultQuery{
			name:  "latency",
			query: fmt.Sprintf("histogram_quantile(0.95, sum by (le) (rate(%s_bucket{%s}[%dms])))", histogram, requests, step.Milliseconds()),
		})
	}
	if pods != "" {
		all = append(all, defaultQuery{
			name:     "restarts",
			query:    fmt.Sprintf("sum(increase(kube_pod_container_status_restarts_total{%s}[$__range])) or vector(0)", pods),
			total:    fmt.Sprintf("sum(count_over_time(kube_pod_container_info{%s}[$__range:1m]))", pods), // the container minutes
			minCount: minRestarts,
		})
	}
	return all
}

// defaultsOf returns the default comparisons of a channel on a runtime.
func (s *serviceCompiler) defaultsOf(channel string, ref runtimeRef) []entities.DefaultComparison {
	channels := s.config.Application.Spec.ReleaseChannels
	n := slices.IndexFunc(channels, func(c config.ReleaseChannel) bool { return string(c.Name) == channel })
	if n >= 0 && isFalse(channels[n].DefaultComparisons) {
		return nil
	}
	return s.compiler.runtimes[ref.name].Comparisons
}

// compareByDefault returns the default comparisons as postconditions of a service in a channel.
func (s *serviceCompiler) compareByDefault(in *substitute.Scope, defaults []entities.DefaultComparison, deadline time.Duration) []entities.Check {
	return strict.Map(defaults, func(c entities.DefaultComparison) entities.Check {
		c.How.Comparisons *= s.comparisons
		return entities.Check{
			ID: c.ID(), Kind: entities.CheckCompare, Interval: intervalOf(entities.CheckCompare),
			At: []entities.CheckAt{{Stage: entities.Postcondition, For: c.How.Deadline + deadline}},
			Definition: s.define(entities.CheckDefinition{
				Application: in.Application, Service: in.Service, Channel: in.Channel, ID: c.ID(), Kind: entities.CheckCompare, Compare: &c.How,
			}),
		}
	})
}
