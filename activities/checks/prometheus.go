package checks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// prometheus passes while every sample of an instant query is within its bounds (A20). A missing sample, one that is not a finite number,
// and an answer from incomplete data are an ERROR: unknown never passes.
type prometheus struct{ sources Sources }

func (c prometheus) Evaluate(ctx context.Context, a Request) (entities.CheckReading, error) {
	d := a.Definition.Prometheus
	switch {
	case d == nil:
		return incomplete(a)
	case d.LessThan == nil && d.GreaterThan == nil:
		return unevaluated("it has no bound; expected lessThan or greaterThan")
	case d.Empty != "" && d.Empty != "error" && d.Empty != "pass":
		return unevaluated("empty is %q; expected error or pass", d.Empty)
	}
	samples, err := promServer{sources: c.sources, url: d.URL, token: d.Token}.query(ctx, d.Query)
	switch {
	case err != nil:
		return entities.CheckReading{}, err
	case len(samples) == 0 && d.Empty == "pass":
		return pass("the query returned no samples, which is declared to pass")
	case len(samples) == 0:
		return entities.CheckReading{}, errNoSample
	}
	return bounded(d, samples)
}

// errNoSample means that the query has no data.
var errNoSample = errors.New("the query returned no samples")

// bounded evaluates the worst sample: the one furthest outside of the bounds, or else the one nearest to them.
func bounded(d *entities.PrometheusQuery, samples []sample) (entities.CheckReading, error) {
	worst, how, smallest := samples[0], "", math.Inf(1)
	for _, s := range samples {
		if err := s.finite(); err != nil {
			return entities.CheckReading{}, err
		}
		margin, bound := marginOf(d, s.value)
		if how == "" || margin < smallest {
			worst, how, smallest = s, bound, margin
		}
	}
	if smallest > 0 {
		return pass("%s %s", worst, how)
	}
	return wait("%s, expected %s", worst, how)
}

// marginOf returns the distance of a value to the nearer bound, negative outside, and that bound. A value on the bound is outside.
func marginOf(d *entities.PrometheusQuery, value float64) (margin float64, bound string) {
	margin = math.Inf(1)
	if d.LessThan != nil {
		margin, bound = *d.LessThan-value, "less than "+number(*d.LessThan)
	}
	if d.GreaterThan != nil && (bound == "" || value-*d.GreaterThan < margin) {
		margin, bound = value-*d.GreaterThan, "greater than "+number(*d.GreaterThan)
	}
	return margin, bound
}

// sample is one value with its labels.
type sample struct {
	labels map[string]string
	value  float64
}

func (s sample) String() string {
	if name := s.seriesName(); name != "" {
		return name + " " + number(s.value)
	}
	return number(s.value)
}

// finite returns an error for a sample that has no finite value. Usually a query divided by zero, which says nothing about the release.
func (s sample) finite() error {
	switch {
	case math.IsNaN(s.value):
		return fmt.Errorf("%s is not a number (NaN)", s)
	case math.IsInf(s.value, 0):
		return fmt.Errorf("%s is not a finite number; expected a query that does not divide by zero", s)
	}
	return nil
}

// seriesName returns the series of the sample: name{label="value"}.
func (s sample) seriesName() string {
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(s.labels)) {
		if name != "__name__" {
			labels = append(labels, name+"="+strconv.Quote(s.labels[name]))
		}
	}
	text := s.labels["__name__"]
	if len(labels) > 0 {
		text += "{" + strings.Join(labels, ",") + "}"
	}
	return oneLine(text, MaxReason/2)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// promServer is a Prometheus server, or another server with its HTTP API.
type promServer struct {
	sources Sources
	url     string
	token   *entities.Value
	at      time.Time // of an instant query; zero: now
	partial *string   // is set to the warning in an answer; nil: an answer with a warning is an error
}

// promAnswer is the answer of /api/v1/query and query_range.
type promAnswer struct {
	Status    string   `json:"status"`
	ErrorType string   `json:"errorType"`
	Error     string   `json:"error"`
	Warnings  []string `json:"warnings"`
	IsPartial bool     `json:"isPartial"` // of VictoriaMetrics: a storage node did not answer
	Data      struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
	hide func(string) string // removes secrets from text
}

// query runs an instant query. A scalar is one sample without labels.
func (p promServer) query(ctx context.Context, query string) ([]sample, error) {
	values := url.Values{}
	if !p.at.IsZero() {
		values.Set("time", p.at.UTC().Format(time.RFC3339Nano))
	}
	return runQuery(ctx, p, "query", query, values, promAnswer.samples)
}

// between runs a query at the end of each step between two times, and returns the samples of its only series.
func (p promServer) between(ctx context.Context, query string, from, to time.Time, step time.Duration) ([]float64, error) {
	all, err := runQuery(ctx, p, "query_range", query, url.Values{
		"start": {from.Add(step).UTC().Format(time.RFC3339Nano)}, "end": {to.UTC().Format(time.RFC3339Nano)},
		"step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)},
	}, promAnswer.series)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	if len(all) > 1 {
		return nil, severalSeriesError(len(all))
	}
	if limit := int(to.Sub(from)/step) + 1; len(all[0]) > limit {
		return nil, fmt.Errorf("%d samples; expected at most %d", len(all[0]), limit)
	}
	return all[0], nil
}

func severalSeriesError(n int) error {
	return fmt.Errorf("the query returned %d series; expected one, by sum() or max()", n)
}

// runQuery runs a query and parses its answer. It removes secrets that the answer repeats.
func runQuery[T any](ctx context.Context, p promServer, path, query string, values url.Values, read func(promAnswer) ([]T, error)) ([]T, error) {
	if strings.TrimSpace(query) == "" {
		return nil, errors.New("it has no query")
	}
	values.Set("query", query)
	r := httpRequest{
		sources: p.sources, method: http.MethodPost, url: strings.TrimRight(p.url, "/") + "/api/v1/" + path, token: p.token,
		body: func() (io.Reader, string) {
			return strings.NewReader(values.Encode()), "application/x-www-form-urlencoded"
		},
	}
	got, err := r.do(ctx)
	if err != nil {
		return nil, err
	}
	var a promAnswer
	if err := json.Unmarshal(got.body, &a); err != nil || a.Status != "success" {
		if a.Error != "" {
			return nil, fmt.Errorf("%s answered %d: %s: %s", r.hostName(), got.status, oneLine(a.ErrorType, 40), oneLine(r.secrets.hide(a.Error), maxExcerpt))
		}
		return nil, fmt.Errorf("%s answered %d, not like a Prometheus: %s", r.hostName(), got.status, oneLine(got.text, maxExcerpt))
	}
	a.hide = r.secrets.hide
	all, err := read(a)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", r.hostName(), r.secrets.hide(err.Error()))
	}
	warning := a.warning()
	if warning != "" {
		warning = r.hostName() + " warns: " + oneLine(r.secrets.hide(warning), maxExcerpt)
	}
	switch {
	case warning == "":
	case p.partial != nil:
		*p.partial = warning
	default:
		return nil, fmt.Errorf("%s; expected an answer from complete data", warning)
	}
	return all, nil
}

// warning returns the first warning of the answer, or "", for example that data is incomplete. Before Prometheus 3, hints on the query
// were warnings too.
func (a promAnswer) warning() string {
	for _, w := range a.Warnings {
		if !strings.HasPrefix(w, "PromQL info:") {
			return w
		}
	}
	if a.IsPartial {
		return "the data is partial"
	}
	return ""
}

// series returns the samples of each series of a matrix.
func (a promAnswer) series() ([][]float64, error) {
	var all []struct {
		Values     []promPoint       `json:"values"`
		Histograms []json.RawMessage `json:"histograms"`
	}
	if a.Data.ResultType != "matrix" {
		return nil, fmt.Errorf("the query returned a %s; expected a matrix", oneLine(a.Data.ResultType, 40))
	}
	if err := json.Unmarshal(a.Data.Result, &all); err != nil {
		return nil, fmt.Errorf("malformed matrix: %w", err)
	}
	var out [][]float64
	for _, s := range all {
		if len(s.Histograms) > 0 {
			return nil, errors.New("the query returned histograms; expected numbers")
		}
		values := make([]float64, len(s.Values))
		for i, point := range s.Values {
			values[i] = point.value
		}
		out = append(out, values)
	}
	return out, nil
}

func (a promAnswer) samples() ([]sample, error) {
	switch a.Data.ResultType {
	case "scalar":
		var point promPoint
		if err := json.Unmarshal(a.Data.Result, &point); err != nil {
			return nil, fmt.Errorf("malformed scalar: %w", err)
		}
		return []sample{{value: point.value}}, nil
	case "vector":
		var series []struct {
			Metric map[string]string `json:"metric"`
			Value  *promPoint        `json:"value"`
		}
		if err := json.Unmarshal(a.Data.Result, &series); err != nil {
			return nil, fmt.Errorf("malformed vector: %w", err)
		}
		var out []sample
		for _, s := range series {
			if s.Value == nil {
				return nil, fmt.Errorf("%s is a histogram; expected numbers", sample{labels: s.Metric}.seriesName())
			}
			for name, value := range s.Metric {
				s.Metric[name] = a.hide(value)
			}
			out = append(out, sample{labels: s.Metric, value: s.Value.value})
		}
		return out, nil
	}
	return nil, fmt.Errorf("the query returned a %s; expected a vector or a scalar", oneLine(a.Data.ResultType, 40))
}

// promPoint is [time, "value"].
type promPoint struct{ value float64 }

// UnmarshalJSON implements json.Unmarshaler.
func (p *promPoint) UnmarshalJSON(data []byte) error {
	var pair []json.RawMessage
	var text string
	if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("%d parts; expected a time and a value", len(pair))
	}
	if err := json.Unmarshal(pair[1], &text); err != nil {
		return err
	}
	value, err := strconv.ParseFloat(text, 64)
	p.value = value
	return err
}
