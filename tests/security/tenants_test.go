package security

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/overview"
	"github.com/converge-engine/converge/client/preview"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/client/serve/access"
	"github.com/converge-engine/converge/client/serve/apiv1"
	"github.com/converge-engine/converge/client/serve/board"
	"github.com/converge-engine/converge/client/serve/session"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/idptest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker/deployment"
)

// tenant is an application that only its people may read, on the server of all.
func tenant(t *testing.T, people string) *stage.World {
	t.Helper()
	w := shared.World(t)
	w.Write(strings.Replace(stage.TwoChannels, "name: APP\n", "name: APP\nauthorization: [{verbs: [read], to: ["+people+"]}, {verbs: [approve], to: [carol@shop.dev]}]\n", 1) + stage.Web)
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	return w
}

// server is a server on which people sign in, with its document.
type server struct {
	t      *testing.T
	issuer *idptest.Issuer
	url    string
	paths  map[string]map[string]struct{} // methods by path, of the API
}

func newServer(t *testing.T, w *stage.World) server {
	t.Helper()
	s := server{t: t, issuer: idptest.New(t), paths: map[string]map[string]struct{}{}}
	sessions, err := session.New(session.Options{Issuer: s.issuer.URL, ClientID: "board", Audience: idptest.Audience, Keys: session.RandomKeys(), Now: time.Now})
	require.NoError(t, err)
	api := connection.Of(w.Client, w.Address, client.DefaultNamespace, converter.GetDefaultDataConverter())
	known := overview.New(api, time.Now)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go known.Run(ctx)
	readers, stores, previews, mux := access.New(api, time.Now), read.Store{Configured: w.Store}, preview.NewServed(), http.NewServeMux()
	board.Mount(mux, board.Options{Calls: api, Stores: stores, Overview: known, Now: time.Now, Sessions: sessions, Readers: readers, Previews: previews, Examine: func(context.Context) deployment.Report {
		return deployment.Report{Findings: []deployment.Finding{{Code: deployment.FailingChannel, What: "staging of " + w.App + "/web", Why: "the command fails", Next: "look"}}}
	}})
	document := apiv1.Mount(mux, apiv1.Options{Calls: api, Stores: stores, Overview: known, Now: time.Now, Readers: readers, Previews: previews, Stopping: ctx.Done()})
	data, err := document.MarshalJSON()
	require.NoError(t, err)
	var described struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(data, &described))
	for path, methods := range described.Paths {
		s.paths[path] = map[string]struct{}{}
		for method := range methods {
			s.paths[path][method] = struct{}{}
		}
	}
	h := httptest.NewServer(sessions.Require(mux))
	t.Cleanup(h.Close)
	t.Cleanup(cancel) // streams end before
	s.url = h.URL
	sessions.Base, err = url.Parse(h.URL)
	require.NoError(t, err)
	return s
}

// request is the answer to a person; "": to an unknown sender. A request that a busy worker did not answer in time is sent again.
func (s server) request(person, method, path, body string) (status int, text string) {
	s.t.Helper()
	temporaltest.WaitFor(s.t, stage.Patience, func() (bool, string) {
		status, text = s.requestOnce(person, method, path, body)
		return status != http.StatusServiceUnavailable, text
	})
	return status, text
}

func (s server) requestOnce(person, method, path, body string) (status int, text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), stage.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	r.Header.Set("Sec-Fetch-Mode", "cors")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	if person != "" {
		r.Header.Set("Authorization", "Bearer "+s.issuer.TokenOf(s.t, person))
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer answer.Body.Close()
	data := make([]byte, 1<<20)
	n, err := io.ReadAtLeast(answer.Body, data, 1) // of a stream, what it begins with
	if err == nil && !strings.HasSuffix(path, "/events") {
		var rest []byte
		rest, err = io.ReadAll(answer.Body)
		data = append(data[:n], rest...)
		n = len(data)
	}
	if err != nil {
		require.ErrorIs(s.t, err, io.EOF)
	}
	return answer.StatusCode, string(data[:n])
}

// filled is a path of the document for an application.
func filled(path, application string) string {
	for name, value := range map[string]string{"application": application, "service": "web", "number": "1", "channel": "staging", "runtime": application + "-rt"} {
		path = strings.ReplaceAll(path, "{"+name+"}", value)
	}
	return path
}

// Of two tenants none reads, counts or acts on the other's services, by any route; an unknown sender reads nothing. Who may approve may read.
func TestTenantsReadTheirOwn_G2(t *testing.T) {
	t.Parallel()
	first, second := tenant(t, "alice@shop.dev"), tenant(t, "bob@shop.dev")
	s := newServer(t, first)

	lists := []string{"/installation", "/api/v1/applications", "/api/v1/services", "/api/v1/approvals", "/services", "/", "/services?application=" + first.App, "/services?name=" + first.App, "/api/v1/services?name=" + first.App}
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		_, text := s.request("alice@shop.dev", http.MethodGet, "/api/v1/services?name="+first.App, "")
		return strings.Contains(text, `"total":1`), text
	})
	for _, path := range lists {
		status, text := s.request("bob@shop.dev", http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, status, path)
		require.NotContains(t, strings.ReplaceAll(text, `value="`+first.App, ""), first.App, path)
	}
	_, text := s.request("bob@shop.dev", http.MethodGet, "/api/v1/services?name="+first.App, "")
	require.Contains(t, text, `"total":0`)
	for _, person := range []string{"alice@shop.dev", "carol@shop.dev"} {
		_, text = s.request(person, http.MethodGet, "/api/v1/applications", "")
		require.Contains(t, text, first.App, person)
	}
	_, text = s.request("alice@shop.dev", http.MethodGet, "/api/v1/applications", "")
	require.NotContains(t, text, second.App)

	walked, acts := 0, 0
	for path, methods := range s.paths {
		if !strings.Contains(path, "{application}") {
			continue
		}
		for method := range methods {
			method = strings.ToUpper(method)
			query := ""
			switch path[strings.LastIndex(path, "/"):] {
			case "/diff":
				query = "?from=1"
			case "/changes":
				query = "?version=v2"
			}
			status, text := s.request("bob@shop.dev", method, filled(path, first.App)+query, `{"version":"v1","topic":"production","channel":"staging","reason":"x","by":"bob"}`)
			switch {
			case method == http.MethodGet:
				walked++
				require.Equal(t, http.StatusNotFound, status, "%s: %s", path, text)
				own, text := s.request("alice@shop.dev", method, filled(path, first.App)+query, "")
				require.True(t, own == http.StatusOK || own == http.StatusNotFound && strings.Contains(path, "/plans/"), "%s: %s", path, text)
			case status == http.StatusBadRequest || status == http.StatusUnprocessableEntity: // refused before any lookup
			default:
				acts++
				require.Equal(t, http.StatusNotFound, status, "%s: %s", path, text)
			}
			require.NotContains(t, strings.ReplaceAll(text, first.App+"/web", ""), "v1", path)
			status, _ = s.request("", method, filled(path, first.App)+query, `{}`)
			require.Equal(t, http.StatusUnauthorized, status, path)
		}
	}
	t.Logf("%d operations that read, %d that act", walked, acts)
	require.Greater(t, walked, 12)
	require.Greater(t, acts, 8)

	service := "/services/" + first.App + "/web"
	for _, path := range []string{
		service, service + "/changes?version=v2", service + "/history", service + "/timeline", service + "/calendar?version=v2", service + "/logs", service + "/fleet/staging", service + "/state", service + "/act/approve?version=v1&topic=production", service + "/act/pause",
		"/applications/" + first.App, "/applications/" + first.App + "/plans/staging", "/applications/" + first.App + "/diff?from=1&to=1",
	} {
		status, text := s.request("bob@shop.dev", http.MethodGet, path, "")
		require.Equal(t, http.StatusNotFound, status, path)
		require.NotContains(t, text, "staging", path)
		status, _ = s.request("alice@shop.dev", http.MethodGet, path, "")
		require.True(t, status == http.StatusOK || strings.Contains(path, "/plans/") || strings.Contains(path, "/fleet/"), "%s: %d", path, status)
		status, _ = s.request("", http.MethodGet, path, "")
		require.Equal(t, http.StatusUnauthorized, status, path)
	}
	_, text = s.request("bob@shop.dev", http.MethodGet, "/api/v1/applications/"+second.App+"/services/"+"webb", "")
	require.Contains(t, text, "did you mean "+second.App+"/web?")
	require.NotContains(t, text, first.App, "names that are close")
	_, text = s.request("bob@shop.dev", http.MethodGet, "/api/v1/events", "")
	require.NotContains(t, text, first.App)
	_, text = s.request("alice@shop.dev", http.MethodGet, "/api/v1/events", "")
	require.Contains(t, text, "event: reset")

	// The form of an act, of an unknown sender: nothing of the service is shown.
	r, err := http.PostForm(s.url+service+"/act/pause", url.Values{"reason": {"x"}})
	require.NoError(t, err)
	data, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.NotContains(t, string(data), "staging", fmt.Sprint(r.Request.URL))
	require.Empty(t, first.Status("web").Pauses, "alice, whom the issuer knows, is not bob, and there is no browser that keeps the way")
}

// An act through the server has the name of its sender, by token or by sign-in, also if it states another name.
func TestServerNamesTheSender_G3(t *testing.T) {
	t.Parallel()
	w := tenant(t, "alice@shop.dev")
	s := newServer(t, w)
	path := "/api/v1/applications/" + w.App + "/services/web/"
	status, text := s.request("carol@shop.dev", http.MethodPost, path+"pause", `{"by":"bob","reason":"x"}`)
	require.Equal(t, http.StatusOK, status, text)
	require.Equal(t, "carol@shop.dev", w.Status("web").Pauses[0].By)

	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	page, err := browser.Get(s.url + "/") // the issuer says that it is alice
	require.NoError(t, err)
	require.NoError(t, page.Body.Close())
	require.Equal(t, http.StatusOK, page.StatusCode)
	answer, err := browser.Post(s.url+path+"release", "application/json", strings.NewReader(`{"by":"bob","version":"v2"}`))
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Equal(t, "alice@shop.dev", w.Status("web").Releases[0].By)
}

// The rules of the installation say who reads what belongs to no application, by every operation of the API and on its page; until they do, all
// known senders may.
func TestReadersOfTheInstallation_G2(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	open := newServer(t, w)
	status, text := open.request("bob@shop.dev", http.MethodGet, "/installation", "")
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, text, w.App, "the report names services of all applications")
	var answer protocol.Answer
	require.NoError(t, w.Update(protocol.InstallationID(), protocol.Configure, json.RawMessage(`{"by":"carol","grants":[{"verbs":["read"],"to":["alice@shop.dev"]}]}`), &answer))

	err := w.Update(protocol.InstallationID(), protocol.Configure, json.RawMessage(`{"by":"carol","grants":[{"verbs":["read"],"to":["bob@shop.dev"],"channels":["runtime/eu"]}]}`), &answer)
	require.ErrorContains(t, err, `grant 1: "read" is for the whole installation`, "it would let him read more than it says")

	s := newServer(t, w)
	walked := 0
	for path, methods := range s.paths {
		if !strings.HasPrefix(path, "/api/v1/installation") && !strings.HasPrefix(path, "/api/v1/runtimes/") {
			continue
		}
		for method := range methods {
			walked++
			status, text := s.request("bob@shop.dev", strings.ToUpper(method), filled(path, w.App), `{"by":"bob"}`)
			require.True(t, status == http.StatusNotFound && strings.Contains(text, "you may not read the installation and its runtimes") ||
				method == "post" && (status == http.StatusBadRequest || status == http.StatusUnprocessableEntity), "%s %s: %d %s", method, path, status, text)
		}
	}
	require.Greater(t, walked, 8)
	status, text = s.request("bob@shop.dev", http.MethodGet, "/installation", "")
	require.Equal(t, http.StatusNotFound, status)
	require.NotContains(t, text, w.App)
	status, text = s.request("alice@shop.dev", http.MethodGet, "/installation", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "read of everything and every runtime: alice@shop.dev")
	require.Contains(t, text, "staging of "+w.App+"/web: the command fails")
	status, _ = s.request("alice@shop.dev", http.MethodGet, "/api/v1/installation", "")
	require.Equal(t, http.StatusOK, status)
	status, _ = s.request("bob@shop.dev", http.MethodGet, "/services/"+w.App+"/web/history", "")
	require.Equal(t, http.StatusOK, status, "what concerns his service is shown with it")
}
