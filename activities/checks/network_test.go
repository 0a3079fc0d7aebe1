package checks_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// serving starts a server with that handler, and returns its URL and the sources that query it.
func serving(t *testing.T, handle http.HandlerFunc) (string, checks.Sources) {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s.URL, checks.Sources{HTTP: s.Client(), Secrets: token}
}

func host(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	return u.Host
}

func TestHTTP_A20(t *testing.T) {
	t.Parallel()
	elsewhere, _ := serving(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "elsewhere") })
	server, sources := serving(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ready/v2":
			fmt.Fprint(w, "ok")
		case "/echo":
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprintf(w, "you sent\n%s", r.Header.Get("X-Key"))
		case "/away":
			http.Redirect(w, r, elsewhere, http.StatusFound)
		case "/here":
			http.Redirect(w, r, "/ready/v2", http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	row := func(path string, change func(*entities.HTTPCheck)) checks.Request {
		return newRequest(entities.CheckHTTP, func(d *entities.CheckDefinition) {
			d.HTTP = &entities.HTTPCheck{URL: server + path}
			change(d.HTTP)
		})
	}
	plain := func(*entities.HTTPCheck) {}
	keyed := func(h *entities.HTTPCheck) { h.Headers = map[string]entities.Value{"X-Key": {WorkerEnv: "TOKEN"}} }
	at := host(t, server)
	Conform(t, Kind{Kind: entities.CheckHTTP, Secrets: []string{secret, "pass-word"}, Rows: []Row{
		{Name: "good", Sources: sources, Request: row("/ready/${{ version }}", plain), Want: entities.Pass, Reason: at + " answered 200"},
		{Name: "not good", Sources: sources, Request: row("/else", plain), Want: entities.Wait, Reason: at + " answered 503"},
		{Name: "listed", Sources: sources, Request: row("/else", func(h *entities.HTTPCheck) { h.Statuses = []int{404, 503} }), Want: entities.Pass, Reason: at + " answered 503"},
		{Name: "not listed", Sources: sources, Request: row("/ready/v2", func(h *entities.HTTPCheck) { h.Statuses = []int{404} }), Want: entities.Wait, Reason: at + " answered 200: ok"},
		{Name: "a secret in the answer", Sources: sources, Request: row("/echo", keyed), Want: entities.Wait, Reason: at + " answered 418: you sent ***"},
		{Name: "text in a header", Sources: sources, Request: row("/echo", func(h *entities.HTTPCheck) {
			h.Headers = map[string]entities.Value{"X-Key": {Literal: "${{ fullVersion }}"}}
		}), Want: entities.Wait, Reason: at + " answered 418: you sent v2-i7"},
		{Name: "a redirect", Sources: sources, Request: row("/here", keyed), Want: entities.Pass, Reason: at + " answered 200"},
		{Name: "a redirect to another host", Sources: sources, Request: row("/away", plain), Want: entities.Pass, Reason: at + " answered 200"},
		{Name: "a redirect to another host with a secret", Sources: sources, Request: row("/away", keyed), Want: entities.Error, Reason: at + ": it redirects to " + elsewhere + ", and secrets are not sent there"},
		{Name: "endless redirects", Sources: sources, Request: row("/round", plain), Want: entities.Error, Reason: at + ": more than 5 redirects"},
		{Name: "a missing secret", Sources: sources, Request: row("/echo", func(h *entities.HTTPCheck) {
			h.Headers = map[string]entities.Value{"X-Key": {WorkerEnv: "NONE"}}
		}), Want: entities.Error, Reason: "header X-Key cannot be resolved from the worker's environment variable NONE, which is not set"},
		{Name: "no listener", Sources: sources, Request: row("", func(h *entities.HTTPCheck) { h.URL = "http://bob:pass-word@127.0.0.1:1/?key=pass-word" }), Want: entities.Error, Reason: "127.0.0.1:1: dial tcp 127.0.0.1:1: …"},
		{Name: "no URL", Sources: sources, Request: row("", func(h *entities.HTTPCheck) { h.URL = "ftp://bob:pass-word@x" }), Want: entities.Error, Reason: "invalid URL; expected http://… or https://…"},
	}})
}

// An answer that does not come in time is an ERROR.
func TestHTTPInTime_D16(t *testing.T) {
	t.Parallel()
	a := newRequest(entities.CheckHTTP, func(d *entities.CheckDefinition) {
		d.HTTP = &entities.HTTPCheck{URL: "http://slow.example", Timeout: time.Millisecond}
	})
	r := checks.Evaluate(t.Context(), Hanging(func() {}), a)
	require.Equal(t, "ERROR slow.example: no answer within 1ms", string(r.Verdict)+" "+r.Reason)
}

// prom answers queries as Prometheus does.
func prom(t *testing.T, answers map[string]string) (string, checks.Sources) {
	t.Helper()
	return serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/query" {
			http.NotFound(w, r)
			return
		}
		if query := r.PostFormValue("query"); answers[query] == "" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"status":"error","errorType":"bad_data","error":%q}`, "parse error in "+query+" "+r.Header.Get("Authorization"))
		} else {
			fmt.Fprintf(w, `{"status":"success",%s}`, strings.TrimPrefix(`"data":`+answers[query], `"data":!`))
		}
	})
}

// noted is an answer with more fields, such as warnings.
func noted(fields, data string) string { return "!" + fields + `,"data":` + data }

func vector(samples ...string) string {
	for i, s := range samples {
		labels, value, _ := strings.Cut(s, " ")
		samples[i] = fmt.Sprintf(`{"metric":%s,"value":[1763.5,%q]}`, labels, value)
	}
	return `{"resultType":"vector","result":[` + strings.Join(samples, ",") + `]}`
}

func TestPrometheus_A20(t *testing.T) {
	t.Parallel()
	server, sources := prom(t, map[string]string{
		`errors{v="v2"}`: vector(`{"__name__":"errors","zone":"eu"} 0.004`, `{"__name__":"errors","zone":"us"} 0.02`),
		"scalar":         `{"resultType":"scalar","result":[1763.5,"0.004"]}`,
		"bound":          vector(`{} 0.01`),
		"nan":            vector(`{"zone":"eu"} 0.001`, `{"zone":"us"} NaN`),
		"infinite":       vector(`{} +Inf`),
		"negative":       vector(`{"zone":"eu"} 0.001`, `{"zone":"us"} -Inf`),
		"scalar_inf":     `{"resultType":"scalar","result":[1763.5,"+Inf"]}`,
		"partial":        noted(`"warnings":["store 1 did not answer `+secret+`"]`, vector(`{} 0.001`)),
		"partial_empty":  noted(`"warnings":["store 1 did not answer"]`, vector()),
		"second_warning": noted(`"warnings":["PromQL info: metric might not be a counter","PromQL warning: block missing"]`, vector(`{} 0.001`)),
		"hint":           noted(`"warnings":["PromQL info: metric might not be a counter"],"infos":["PromQL info: x"],"isPartial":false`, vector(`{} 0.001`)),
		"victoria":       noted(`"isPartial":true`, vector(`{} 0.001`)),
		"empty":          vector(),
		"echo":           vector(`{"token":"` + secret + `"} 0.001`),
		"matrix":         `{"resultType":"matrix","result":[]}`,
		"histogram":      `{"resultType":"vector","result":[{"metric":{"zone":"eu"},"histogram":[1,{}]}]}`,
		"malformed":      `{"resultType":"vector","result":[{"value":[1]}]}`,
	})
	row := func(query string, change func(*entities.PrometheusQuery)) checks.Request {
		return newRequest(entities.CheckPrometheus, func(d *entities.CheckDefinition) {
			d.Prometheus = &entities.PrometheusQuery{URL: server + "/", Query: query, LessThan: new(0.01), Token: &entities.Value{WorkerEnv: "TOKEN"}}
			change(d.Prometheus)
		})
	}
	plain := func(*entities.PrometheusQuery) {}
	at := host(t, server)
	Conform(t, Kind{Kind: entities.CheckPrometheus, Secrets: []string{secret}, Rows: []Row{
		{Name: "the worst is named", Sources: sources, Request: row(`errors{v="${{ version }}"}`, plain), Want: entities.Wait, Reason: `errors{zone="us"} 0.02, expected less than 0.01`},
		{Name: "all within", Sources: sources, Request: row(`errors{v="v2"}`, func(q *entities.PrometheusQuery) { q.LessThan = new(0.05) }), Want: entities.Pass, Reason: `errors{zone="us"} 0.02 less than 0.05`},
		{Name: "greater", Sources: sources, Request: row(`errors{v="v2"}`, func(q *entities.PrometheusQuery) { q.LessThan, q.GreaterThan = nil, new(0.01) }), Want: entities.Wait, Reason: `errors{zone="eu"} 0.004, expected greater than 0.01`},
		{Name: "between", Sources: sources, Request: row(`errors{v="v2"}`, func(q *entities.PrometheusQuery) { q.LessThan, q.GreaterThan = new(0.1), new(0.01) }), Want: entities.Wait, Reason: `errors{zone="eu"} 0.004, expected greater than 0.01`},
		{Name: "scalar", Sources: sources, Request: row("scalar", plain), Want: entities.Pass, Reason: "0.004 less than 0.01"},
		{Name: "on the bound", Sources: sources, Request: row("bound", plain), Want: entities.Wait, Reason: "0.01, expected less than 0.01"},
		{Name: "infinite", Sources: sources, Request: row("infinite", plain), Want: entities.Error, Reason: "+Inf is not a finite number; expected a query that does not divide by zero"},
		{Name: "infinite and greater", Sources: sources, Request: row("infinite", func(q *entities.PrometheusQuery) { q.LessThan, q.GreaterThan = nil, new(0.95) }), Want: entities.Error, Reason: "+Inf is not a finite number; …"},
		{Name: "negative infinity", Sources: sources, Request: row("negative", plain), Want: entities.Error, Reason: `{zone="us"} -Inf is not a finite number; …`},
		{Name: "an infinite scalar", Sources: sources, Request: row("scalar_inf", func(q *entities.PrometheusQuery) { q.LessThan, q.GreaterThan = nil, new(0.95) }), Want: entities.Error, Reason: "+Inf is not a finite number; …"},
		{Name: "partial data", Sources: sources, Request: row("partial", plain), Want: entities.Error, Reason: at + " warns: store 1 did not answer ***; expected an answer from complete data"},
		{Name: "no sample in partial data", Sources: sources, Request: row("partial_empty", func(q *entities.PrometheusQuery) { q.Empty = "pass" }), Want: entities.Error, Reason: at + " warns: store 1 did not answer; …"},
		{Name: "a warning after a hint", Sources: sources, Request: row("second_warning", plain), Want: entities.Error, Reason: at + " warns: PromQL warning: block missing; …"},
		{Name: "a hint", Sources: sources, Request: row("hint", plain), Want: entities.Pass, Reason: "0.001 less than 0.01"},
		{Name: "partial data of VictoriaMetrics", Sources: sources, Request: row("victoria", plain), Want: entities.Error, Reason: at + " warns: the data is partial; …"},
		{Name: "no number", Sources: sources, Request: row("nan", plain), Want: entities.Error, Reason: `{zone="us"} NaN is not a number (NaN)`},
		{Name: "no sample", Sources: sources, Request: row("empty", plain), Want: entities.Error, Reason: "the query returned no samples"},
		{Name: "no sample passes", Sources: sources, Request: row("empty", func(q *entities.PrometheusQuery) { q.Empty = "pass" }), Want: entities.Pass, Reason: "the query returned no samples, which is declared to pass"},
		{Name: "a label that has the token", Sources: sources, Request: row("echo", plain), Want: entities.Pass, Reason: `{token="***"} 0.001 less than 0.01`},
		{Name: "matrix", Sources: sources, Request: row("matrix", plain), Want: entities.Error, Reason: at + ": the query returned a matrix; expected a vector or a scalar"},
		{Name: "histogram", Sources: sources, Request: row("histogram", plain), Want: entities.Error, Reason: at + `: {zone="eu"} is a histogram; expected numbers`},
		{Name: "malformed", Sources: sources, Request: row("malformed", plain), Want: entities.Error, Reason: at + ": malformed vector: …"},
		{Name: "refused, with the token in the answer", Sources: sources, Request: row("(", plain), Want: entities.Error, Reason: at + " answered 400: bad_data: parse error in ( Bearer ***"},
		{Name: "a literal token is secret too", Sources: sources, Request: row("(", func(q *entities.PrometheusQuery) { q.Token = &entities.Value{Literal: secret} }), Want: entities.Error, Reason: at + " answered 400: bad_data: parse error in ( Bearer ***"},
		{Name: "no Prometheus", Sources: sources, Request: row("bound", func(q *entities.PrometheusQuery) { q.URL = server + "/else" }), Want: entities.Error, Reason: at + " answered 404, not like a Prometheus: 404 page not found"},
		{Name: "no bound", Sources: sources, Request: row("bound", func(q *entities.PrometheusQuery) { q.LessThan = nil }), Want: entities.Error, Reason: "it has no bound; expected lessThan or greaterThan"},
		{Name: "no query", Sources: sources, Request: row(" ", plain), Want: entities.Error, Reason: "it has no query"},
		{Name: "an invalid value of empty", Sources: sources, Request: row("bound", func(q *entities.PrometheusQuery) { q.Empty = "fine" }), Want: entities.Error, Reason: `empty is "fine"; expected error or pass`},
	}})
}

func TestCapacity_A20_D19(t *testing.T) {
	t.Parallel()
	server, sources := prom(t, map[string]string{
		"max_over_time((sum(use))[86400000ms:60000ms])":  vector(`{} 120`),
		"max_over_time((sum(use))[3600000ms:3000ms])":    vector(`{} 90`),
		"max_over_time((by_zone)[86400000ms:60000ms])":   vector(`{"zone":"eu"} 1`, `{"zone":"us"} 2`),
		"max_over_time((nothing)[86400000ms:60000ms])":   vector(),
		"max_over_time((undefined)[86400000ms:60000ms])": vector(`{} NaN`),
		"max_over_time((infinite)[86400000ms:60000ms])":  vector(`{} -Inf`),
		"max_over_time((partial)[86400000ms:60000ms])":   noted(`"warnings":["store 1 did not answer"]`, vector(`{} 1`)),
		"of(v2)": `{"resultType":"scalar","result":[1,"100"]}`,
		"of(v0)": `{"resultType":"scalar","result":[1,"+Inf"]}`,
	})
	sources.Payloads = World{Stored: map[string]entities.Payload{
		"after": {Parameters: map[string]any{"replicas": json.Number("12"), "name": "x", "endless": "Inf"}},
	}}
	row := func(change func(*entities.CapacityCheck)) checks.Request {
		return newRequest(entities.CheckCapacity, func(d *entities.CheckDefinition) {
			d.Capacity = &entities.CapacityCheck{URL: server, Use: "sum(use)", Parameter: "replicas", Per: 10}
			change(d.Capacity)
		})
	}
	Conform(t, Kind{Kind: entities.CheckCapacity, Rows: []Row{
		{Name: "equal capacity passes", Sources: sources, Request: row(func(*entities.CapacityCheck) {}), Want: entities.Pass, Reason: "capacity would be 120; the maximum use in the last 24h0m0s was 120"},
		{Name: "less waits", Sources: sources, Request: row(func(c *entities.CapacityCheck) { c.Per = 9.5 }), Want: entities.Wait, Reason: "capacity would be 114, less than the maximum use of 120 in the last 24h0m0s"},
		{Name: "a unit serves one", Sources: sources, Request: row(func(c *entities.CapacityCheck) { c.Per = 0 }), Want: entities.Wait, Reason: "capacity would be 12, less than the maximum use of 120 in the last 24h0m0s"},
		{Name: "leaving instances do not count", Sources: sources, Request: whileDraining(row(func(c *entities.CapacityCheck) { c.Per = 15 }), 2, 3), Want: entities.Pass, Reason: "capacity would be 120; the maximum use in the last 24h0m0s was 120"},
		{Name: "too many instances leave", Sources: sources, Request: whileDraining(row(func(*entities.CapacityCheck) {}), 2, 3), Want: entities.Wait, Reason: "capacity would be 80, less than the maximum use of 120 in the last 24h0m0s"},
		{Name: "of the last hour", Sources: sources, Request: row(func(c *entities.CapacityCheck) { c.Per, c.Over = 8, time.Hour }), Want: entities.Pass, Reason: "capacity would be 96; the maximum use in the last 1h0m0s was 90"},
		{Name: "by a query", Sources: sources, Request: row(func(c *entities.CapacityCheck) { c.Parameter, c.Capacity = "", "of(${{ version }})" }), Want: entities.Wait, Reason: "capacity would be 100, less than the maximum use of 120 in the last 24h0m0s"},
		{Name: "several series", Sources: sources, Request: row(func(c *entities.CapacityCheck) { c.Use = "by_zone" }), Want: entities.Error, Reason: "use: the query returned 2 series; expected one, by sum() or max()"},
		{Name: "no sample", Sources: sources, Request: row(func(c *entities.CapacityCheck) { c.Use = "nothing" }), Want: entities.Error, Reason: "use: the query returned no samples"},
		{Name: "no number", Sources: sources, Request: row(func(c *entities.CapacityCheck) { c.Use = "undefined" }), Want: entities.Error, Reason: "use: NaN is not a number (NaN)"},
		{Name: "an infinite use", Sources: sources, Request: row(func(c *entities.CapacityCheck) { c.Use = "infinite" }), Want: entities.Error, Reason: "use: -Inf is not a finite number; …"},
		{Name: "an infinite capacity", Sources: sources, Request: row(func(c *entities.CapacityCheck) { c.Parameter, c.Capacity = "", "of(v0)" }), Want: entities.Error, Reason: "capacity: +Inf is not a finite number; …"},
		{Name: "partial data", Sources: sources, Request: row(func(c *entities.CapacityCheck) { c.Use = "partial" }), Want: entities.Error, Reason: "use: " + host(t, server) + " warns: store 1 did not answer; …"},
		{Name: "an infinite parameter", Sources: sources, Request: row(func(c *entities.CapacityCheck) { c.Parameter = "endless" }), Want: entities.Error, Reason: "parameter endless is not a number"},
		{Name: "no such parameter", Sources: sources, Request: row(func(c *entities.CapacityCheck) { c.Parameter = "copies" }), Want: entities.Error, Reason: "there is no parameter copies"},
		{Name: "a parameter that is not a number", Sources: sources, Request: row(func(c *entities.CapacityCheck) { c.Parameter = "name" }), Want: entities.Error, Reason: "parameter name is not a number"},
		{Name: "both", Sources: sources, Request: row(func(c *entities.CapacityCheck) { c.Capacity = "of(v2)" }), Want: entities.Error, Reason: "expected exactly one of a query, a parameter and an object for the new capacity"},
	}})
}

// whileDraining returns the request while only some of the instances stay, and the others leave a runtime that is being drained.
func whileDraining(a checks.Request, stay, of int) checks.Request {
	a.Evaluation.Remaining, a.Evaluation.Total = stay, of
	return a
}

// If an autoscaler decides, the number of running replicas counts, not the declared one.
func TestCapacityOfRunningObjects_A20_D19(t *testing.T) {
	t.Parallel()
	server, sources := prom(t, map[string]string{"max_over_time((sum(use))[86400000ms:60000ms])": vector(`{} 120`)})
	row := func(name string, want entities.Verdict, says string, change func(*protocol.ChannelStatus)) Row {
		channel := protocol.ChannelStatus{
			Name: "prod", Status: string(entities.StatusPreconditions), Target: "v1",
			Objects: []entities.Object{
				{Name: "web", Type: "Deployment", Versions: []entities.ObjectVersion{
					{Version: "v1", Active: true, Replicas: 12, AvailableReplicas: 11}, {Version: "v0", Replicas: 1, AvailableReplicas: 1},
				}},
				{Name: "batch", Type: "Deployment", Versions: []entities.ObjectVersion{{Version: "v1", AvailableReplicas: 100}}},
			},
		}
		if change != nil {
			change(&channel)
		}
		with := sources
		with.Services = World{Statuses: map[string]protocol.Status{"web": {Channels: []protocol.ChannelStatus{channel}}}}
		return Row{Name: name, Sources: with, Want: want, Reason: says, Request: newRequest(entities.CheckCapacity, func(d *entities.CheckDefinition) {
			d.Capacity = &entities.CapacityCheck{URL: server, Use: "sum(use)", Object: "web", Per: 10}
		})}
	}
	Conform(t, Kind{Kind: entities.CheckCapacity, Rows: []Row{
		row("equal capacity passes", entities.Pass, "capacity would be 120; the maximum use in the last 24h0m0s was 120", nil),
		row("less waits", entities.Wait, "capacity would be 110, less than the maximum use of 120 in the last 24h0m0s", func(c *protocol.ChannelStatus) { c.Objects[0].Versions = c.Objects[0].Versions[:1] }),
		row("no release yet", entities.Wait, "capacity would be 0, less than the maximum use of 120 in the last 24h0m0s", func(c *protocol.ChannelStatus) { c.Target, c.Objects = "", nil }),
		row("unknown", entities.Error, "the state of web in prod is unknown", func(c *protocol.ChannelStatus) { c.Status = string(entities.StatusUnknown) }),
		row("no such object", entities.Error, "web in prod has no object web; expected one of batch", func(c *protocol.ChannelStatus) { c.Objects = c.Objects[1:] }),
		row("more objects than listed", entities.Error, "web in prod has 3 objects more than its status lists; expected a query instead", func(c *protocol.ChannelStatus) { c.Omitted = 3 }),
	}})
}

func TestAlertmanager_A20(t *testing.T) {
	t.Parallel()
	const quiet = `,"status":{"state":"active","silencedBy":[],"inhibitedBy":[]}}`
	answers := map[string]string{
		`service="two" version="v2"`: `[` +
			`{"labels":{"alertname":"Slow"},"startsAt":"2026-11-23T08:30:00Z"` + quiet + `,` +
			`{"labels":{"alertname":"Errors"},"annotations":{"summary":"too many\nerrors of ` + secret + `"},"startsAt":"2026-11-23T09:15:00+01:00"` + quiet + `]`,
		`service="none"`:     `[]`,
		`service="silenced"`: `[{"labels":{"alertname":"Slow"},"startsAt":"2026-11-23T08:30:00Z","status":{"state":"suppressed","silencedBy":["x"]}}]`,
		`service="unnamed"`:  `[{"labels":{"zone":"eu"},"startsAt":"2026-11-23T08:30:00Z"` + quiet + `]`,
		`service="\"odd\""`:  `{}`,
	}
	server, sources := serving(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		answer, ok := answers[strings.Join(q["filter"], " ")]
		if !ok || r.URL.Path != "/api/v2/alerts" || q.Get("active") != "true" || q.Get("silenced") != "false" || q.Get("inhibited") != "false" {
			http.Error(w, fmt.Sprintf("%s %s", r.URL, r.Header.Get("Authorization")), http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, answer)
	})
	row := func(matchers map[string]string) checks.Request {
		return newRequest(entities.CheckAlertmanager, func(d *entities.CheckDefinition) {
			d.Alertmanager = &entities.Alerts{URL: server, Matchers: matchers, Token: &entities.Value{WorkerEnv: "TOKEN"}}
		})
	}
	at := host(t, server)
	Conform(t, Kind{Kind: entities.CheckAlertmanager, Secrets: []string{secret}, Rows: []Row{
		{
			Name: "the oldest is named", Sources: sources, Request: row(map[string]string{"version": "${{ version }}", "service": "two"}), Want: entities.Wait,
			Reason: "alert Errors is active since 2026-11-23 08:15:00 UTC: too many errors of *** (and 1 more)",
		},
		{Name: "none", Sources: sources, Request: row(map[string]string{"service": "none"}), Want: entities.Pass, Reason: `no alert is active for service="none"`},
		{Name: "silenced", Sources: sources, Request: row(map[string]string{"service": "silenced"}), Want: entities.Pass, Reason: `no alert is active for service="silenced"`},
		{Name: "without a name", Sources: sources, Request: row(map[string]string{"service": "unnamed"}), Want: entities.Wait, Reason: `alert {zone="eu"} is active since 2026-11-23 08:30:00 UTC`},
		{Name: "no list", Sources: sources, Request: row(map[string]string{"service": `"odd"`}), Want: entities.Error, Reason: at + " did not answer like an Alertmanager: {}"},
		{Name: "refused, with the token in the answer", Sources: sources, Request: row(map[string]string{"service": "else"}), Want: entities.Error, Reason: at + " answered 400: /api/v2/alerts?active=true&filter=service%3D%22else%22&inhibited=false&silenced=false Bearer ***"},
		{Name: "no matchers", Sources: sources, Request: row(nil), Want: entities.Error, Reason: "it has no matchers, so every alert would block this release"},
	}})
}
