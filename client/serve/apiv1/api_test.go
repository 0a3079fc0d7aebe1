package apiv1

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/api"
	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

var update = flag.Bool("update", false, "write docs/openapi.json")

const committed = "../../../docs/openapi.json"

func mounted(t *testing.T, o Options) *http.ServeMux {
	t.Helper()
	mux := http.NewServeMux()
	o.Now = time.Now
	Mount(mux, o)
	return mux
}

func send(t *testing.T, mux http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w
}

// The committed document is that of the server.
func TestOpenAPIIsCommitted(t *testing.T) {
	w := send(t, mounted(t, Options{}), http.MethodGet, "/api/v1/openapi.json", "")
	require.Equal(t, http.StatusOK, w.Code)
	var indented bytes.Buffer
	require.NoError(t, json.Indent(&indented, w.Body.Bytes(), "", " "))
	indented.WriteByte('\n')
	if *update {
		require.NoError(t, os.WriteFile(committed, indented.Bytes(), 0o644))
	}
	want, err := os.ReadFile(committed)
	require.NoError(t, err)
	have := strings.Split(indented.String(), "\n")
	for n, line := range strings.Split(string(want), "\n") { // the whole document would hide what differs
		require.Less(t, n, len(have), "the server's document is shorter; write it with: go test ./client/serve/apiv1 -update")
		require.Equal(t, line, have[n], "line %d; write it with: go test ./client/serve/apiv1 -update", n+1)
	}
}

// A verb that people use has an operation as soon as the table has it; verbs of workflows have none.
func TestEveryVerbHasAnOperation(t *testing.T) {
	document := Mount(http.NewServeMux(), Options{Now: time.Now})
	expected := map[string]bool{}
	for path, rows := range map[string][]verb.Row{
		"/applications/{application}/services/{service}": verb.Service(),
		"/applications/{application}":                    verb.Application(),
		"/runtimes/{runtime}":                            verb.Runtime(),
		"/installation":                                  verb.Installation(),
	} {
		for _, row := range verb.OfPeople(rows) {
			expected[prefix+path+"/"+row.Name] = true
		}
	}
	require.Greater(t, len(expected), 30)
	for path, item := range document.Paths {
		if item.Post != nil {
			require.True(t, expected[path], path)
			delete(expected, path)
			require.NotContains(t, item.Post.RequestBody.Content["application/json"].Schema.Properties, "token", path)
			require.Len(t, item.Post.RequestBody.Content, 1, path)
		}
	}
	require.Empty(t, expected)
	require.NotContains(t, document.Paths, prefix+servicePath+"/"+protocol.Reserve)
	require.NotContains(t, document.Paths, prefix+"/runtimes/{runtime}/"+protocol.SignalKeep)
}

// A bad request is refused before any workflow sees it, and the problem names the fault, its place and the expectation.
func TestBadRequests(t *testing.T) {
	const web = prefix + "/applications/shop/services/web"
	mux := mounted(t, Options{})
	for _, tt := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		detail                   string
	}{
		{"no such path", "GET", prefix + "/nothing", "", nil, 404, "no operation GET /api/v1/nothing; /api/v1/openapi.json lists them"},
		{"no such method", "DELETE", web, "", nil, 405, "DELETE /api/v1/applications/shop/services/web: expected GET"},
		{"a body that is null", "POST", web + "/pause", `null`, nil, 422, "body: expected object"},
		{"a verb of workflows", "POST", web + "/reserve", `{"id":"x"}`, nil, 404, "no operation POST"},
		{"an invalid name", "GET", prefix + "/applications/Shop", "", nil, 422, "path.application: expected string to be the name of an application"},
		{"a name that goes up", "GET", prefix + "/applications/%2e%2e%2finstallation", "", nil, 422, "path.application: expected string to be the name of an application"},
		{"an unknown parameter", "GET", prefix + "/services?foo=1", "", nil, 422, "query.foo: unknown query parameter"},
		{"an unknown status", "GET", prefix + "/services?status=GOOD", "", nil, 422, `status "GOOD": expected a status such as CONVERGED`},
		{"a quote in a status", "GET", prefix + "/services?status=X%27+OR+1%3D1", "", nil, 422, "expected a status such as CONVERGED"},
		{"a quote in an application", "GET", prefix + "/services?application=X%27+OR+1%3D1", "", nil, 422, "query.application: expected string to be the name of an application"},
		{"a limit of none", "GET", prefix + "/services?limit=0", "", nil, 422, "query.limit: expected number >= 1"},
		{"a forged cursor", "GET", prefix + "/services?after=%00", "", nil, 422, "expected the value of next in the page before"},
		{"a long wait", "GET", web + "/wait?timeout=2h", "", nil, 422, `query.timeout: "2h"; expected a duration up to 1m0s, such as 30s`},
		{"no JSON", "POST", web + "/pause", `{`, nil, 400, "body: unexpected end of JSON input"},
		{"a list", "POST", web + "/pause", `[]`, nil, 422, "body: expected object"},
		{"a form", "POST", web + "/pause", `by=ann`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "expected: Content-Type: application/json"},
		{"no type of the body", "POST", web + "/pause", `{"by":"ann"}`, []string{"Content-Type", ""}, 415, `the body has the type ""; expected: Content-Type: application/json`},
		{"nearly JSON", "POST", web + "/pause", `{"by":"ann"}`, []string{"Content-Type", "text/plain+json"}, 415, "expected: Content-Type: application/json"},
		{"a forged cursor of the history", "GET", web + "/history?after=AAAA", "", nil, 422, "expected the value of next in the page before"},
		{"a plan of no channel", "GET", prefix + "/applications/shop/plans/%ff", "", nil, 422, "path.channel"},
		{"a key of other characters", "POST", web + "/pause", `{"by":"ann"}`, []string{"Idempotency-Key", "k\xff"}, 422, "expected string to be printable ASCII"},
		{"nobody", "POST", web + "/pause", `{}`, nil, 422, `"by" is missing; expected the name of the caller`},
		{"a misspelt field", "POST", web + "/pause", `{"by":"ann","chanel":"x"}`, nil, 422, "body.chanel: unexpected property"},
		{"a field twice", "POST", web + "/pause", `{"by":"ann","by":"bob"}`, nil, 422, `payload of pause: field "by" occurs twice`},
		{"a token in the body", "POST", web + "/pause", `{"by":"ann","token":"x"}`, nil, 422, "body.token: unexpected property"},
		{"a token in the body, in capitals", "POST", web + "/pause", `{"by":"ann","TOKEN":"x"}`, nil, 422, "body.TOKEN: unexpected property"},
		{"no bearer", "POST", web + "/pause", `{"by":"ann"}`, []string{"Authorization", "Basic YTpi"}, 422, "the header Authorization is invalid; expected: Bearer TOKEN"},
		{"a long key", "POST", web + "/pause", `{"by":"ann"}`, []string{"Idempotency-Key", strings.Repeat("k", 257)}, 422, "header.Idempotency-Key: expected length <= 256"},
		{"too large", "POST", web + "/pause", `{"by":"` + strings.Repeat("a", verb.MaxPayload) + `"}`, nil, 413, ""},
		{"a bypass without a reason", "POST", web + "/bypass", `{"by":"ann","version":"v1","channel":"c","condition":"x"}`, nil, 422, `"reason" is missing: a bypass needs one`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := send(t, mux, tt.method, tt.path, tt.body, tt.header...)
			require.Equal(t, tt.status, w.Code, w.Body.String())
			require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
			var problem api.Problem
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem))
			require.Contains(t, problem.Detail, tt.detail)
			require.Equal(t, tt.status, problem.Status)
			require.NotEmpty(t, problem.Code)
			require.NotEmpty(t, problem.Title)
			require.Equal(t, 1, problem.Exit)
		})
	}
}

// A read-only server carries out no act.
func TestReadOnly(t *testing.T) {
	mux := mounted(t, Options{ReadOnly: true})
	w := send(t, mux, "POST", prefix+"/applications/shop/services/web/pause", `{"by":"ann"}`)
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Contains(t, w.Body.String(), "pause was not carried out: this server only reads; expected another one, or converge")
}

// fakeCalls answers as a test says. All other calls panic.
type fakeCalls struct {
	connection.API
	query  func(id, query string, into any) error
	update func(id, verb string, into any) error
}

func (f *fakeCalls) Query(_ context.Context, id, query string, into any) error {
	return f.query(id, query, into)
}

func (f *fakeCalls) Update(_ context.Context, id, verb, _ string, _, into any) error {
	return f.update(id, verb, into)
}

func (f *fakeCalls) Services(context.Context, string) ([]connection.ServiceName, error) {
	return nil, nil
}

func (f *fakeCalls) EndedServices(context.Context, string) ([]connection.ServiceName, error) {
	return nil, nil
}

func (f *fakeCalls) Applications(context.Context) ([]string, error) { return nil, nil }

// A release that was accepted is answered, also if the wait for it fails.
func TestAcceptedReleaseIsAnswered(t *testing.T) {
	calls := &fakeCalls{
		query: func(string, string, any) error { return fmt.Errorf("service/shop/web is %w", connection.ErrPaused) },
		update: func(_, _ string, into any) error {
			return json.Unmarshal([]byte(`{"id":"7","version":"v7","incarnation":1}`), into)
		},
	}
	w := send(t, mounted(t, Options{Calls: calls}), "POST", prefix+"/applications/shop/services/web/release?wait=5s", `{"by":"ann","version":"v7"}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.JSONEq(t, `{"id":"7","version":"v7","incarnation":1,"outcome":{"over":false,"exit":1,"why":"the outcome is unknown: service/shop/web is paused by an operator"}}`, w.Body.String())
}

// An act that found no workflow is never answered as if it had been carried out.
func TestActWithoutAWorkflow(t *testing.T) {
	calls := &fakeCalls{
		query:  func(string, string, any) error { return nil }, // it runs again
		update: func(id, _ string, _ any) error { return fmt.Errorf("%s: %w", id, connection.ErrNotFound) },
	}
	for _, path := range []string{"/applications/shop", "/applications/shop/services/web", "/installation", "/runtimes/eks"} {
		w := send(t, mounted(t, Options{Calls: calls}), "POST", prefix+path+"/resume", `{"by":"ann"}`)
		require.Equal(t, http.StatusNotFound, w.Code, w.Body.String())
	}
}

// A page begins where the one before ended, also while another trail is not read.
func TestHistoryCursorKeepsItsPlace(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	entry := func(minute int, of string, n int64) read.HistoryEntry {
		return read.HistoryEntry{Of: of, AuditEntry: entities.AuditEntry{N: n, At: at.Add(time.Duration(minute) * time.Minute)}}
	}
	all := []read.HistoryEntry{entry(1, "", 1), entry(2, "application/shop", 1), entry(3, "", 2), entry(4, "application/shop", 2), entry(5, "", 3)}
	own := []read.HistoryEntry{all[0], all[2], all[4]}
	cursor := historyCursor{At: all[3].At, Of: all[3].Of, N: all[3].N}
	require.Equal(t, 3, cursor.before(all))
	require.Equal(t, 2, cursor.before(own), "own 1 and own 2 come before it")
	require.Equal(t, 3, cursor.before(append(all, entry(6, "", 4))), "a new entry changes no place")
	require.Zero(t, historyCursor{At: at}.before(all))
	var decoded historyCursor
	require.NoError(t, decodeCursor(encodeCursor(cursor), &decoded))
	require.Equal(t, cursor, decoded)
}

func TestETags(t *testing.T) {
	tagged := WithETags(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			http.Error(w, "no", http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte("hello"))
	}))
	first := send(t, tagged, http.MethodGet, "/", "")
	tag := first.Header().Get("ETag")
	require.Len(t, tag, 34)
	require.Equal(t, "hello", first.Body.String())
	for _, list := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
		again := send(t, tagged, http.MethodGet, "/", "", "If-None-Match", list)
		require.Equal(t, http.StatusNotModified, again.Code, list)
		require.Empty(t, again.Body.String())
	}
	require.Equal(t, http.StatusOK, send(t, tagged, http.MethodGet, "/", "", "If-None-Match", `"other"`).Code)
	require.Empty(t, send(t, tagged, http.MethodGet, "/missing", "").Header().Get("ETag"))
	require.Empty(t, send(t, tagged, http.MethodPost, "/", "").Header().Get("ETag"))
}

// A store that the server may not open is no fault that passes: sending the request again does not help.
func TestStoreElsewhere(t *testing.T) {
	_, err := read.Store{}.Readable("s3://elsewhere")
	var p *api.Problem
	require.ErrorAs(t, problemOf(err), &p)
	require.Equal(t, http.StatusConflict, p.Status)
	require.Equal(t, api.StoreElsewhere, p.Code)
	require.Contains(t, p.Detail, "s3://elsewhere")
}
