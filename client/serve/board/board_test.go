package board

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/overview"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// now is the time in every test.
var now = time.Date(2026, 11, 20, 10, 50, 20, 0, time.UTC)

// installation answers from statuses by workflow id. All other calls panic.
type installation struct {
	connection.API
	statuses map[string]protocol.Status
	updates  []string // "workflow verb payload"
	refuse   error
	others   map[string]any // statuses of other workflows, by id
	states   map[string]*state.State
}

func (i *installation) Update(_ context.Context, id, verb, _ string, payload, into any) error {
	i.updates = append(i.updates, fmt.Sprintf("%s %s %s", id, verb, payload))
	if i.refuse != nil {
		return i.refuse
	}
	return json.Unmarshal([]byte(`{"message":"v8 is approved for go-live","next":["production: v8 enters now"]}`), into)
}

func (i *installation) ListServices(context.Context, connection.ServiceFilter, int, []byte) (page []connection.ListedService, _ []byte, _ error) {
	for id, s := range i.statuses {
		l := connection.ListedService{ServiceName: connection.ServiceName{Application: s.Application, Service: s.Service}, WorkflowID: id, Status: s.Status, Version: s.Version, Changed: now}
		for _, c := range s.Channels {
			for _, k := range c.Conditions {
				if k.Code == "open" {
					l.WaitingFor = append(l.WaitingFor, "approval:"+k.Subject)
				}
			}
		}
		page = append(page, l)
	}
	return page, nil, nil
}

func (i *installation) Query(_ context.Context, id, query string, into any) error {
	s := i.others[id]
	if query == protocol.QueryState {
		if i.states[id] == nil {
			return fmt.Errorf("%s: %w", id, connection.ErrNotFound)
		}
		data, err := json.Marshal(i.states[id])
		if err != nil {
			return err
		}
		return json.Unmarshal(data, into)
	}
	if service, ok := i.statuses[id]; ok {
		s = service
	}
	if s == nil {
		return fmt.Errorf("%s: %w", id, connection.ErrNotFound)
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

func (i *installation) EndedServices(context.Context, string) ([]connection.ServiceName, error) {
	return nil, nil
}

func (i *installation) Services(context.Context, string) (names []connection.ServiceName, _ error) {
	for _, s := range i.statuses {
		names = append(names, connection.ServiceName{Application: s.Application, Service: s.Service})
	}
	return names, nil
}

func (i *installation) Applications(context.Context) ([]string, error) { return nil, nil }

// served serves the board of an installation until the test ends.
func served(t *testing.T, i *installation) (get func(path string) (status int, html string, h http.Header)) {
	t.Helper()
	mux := mounted(t, i, Options{})
	return func(path string) (int, string, http.Header) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return w.Code, w.Body.String(), w.Header()
	}
}

func mounted(t *testing.T, i *installation, o Options) *http.ServeMux {
	t.Helper()
	known := overview.New(i, time.Now)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go known.Run(ctx)
	mux := http.NewServeMux()
	o.Calls, o.Overview, o.Now = i, known, func() time.Time { return now }
	Mount(mux, o)
	return mux
}

const hostile = `<script>alert(1)</script>"'&` + "\x1b[31m\u202e"

func shop() *installation {
	web := protocol.Status{
		Schema: protocol.StatusSchema, Application: "shop", Service: "web", Status: string(entities.StatusManualApproval), Version: "v8", Headline: "v8 waits for an approval in production",
		Channels: []protocol.ChannelStatus{
			{Name: "staging", Runtime: "eks", Status: "CONVERGED", Current: "v8", Target: "v8", Desired: "v8", Since: now.Add(-time.Hour)},
			{
				Name: "production", Runtime: "eks", Status: string(entities.StatusManualApproval), Current: "v7", Target: "v7", Desired: "v8", Since: now.Add(-10 * time.Minute),
				Omitted: 3,
				Fleet:   &protocol.FleetStatus{Instances: 40, AtVersion: 12, Version: "v8", ByStatus: map[string]int{"CONVERGING": 3}},
				Checks:  []protocol.CheckStatus{{ID: "errors", Verdict: "PASS", Reason: "0.7 % of 1,204 requests, control 0.8 % " + hostile, At: now.Add(-time.Minute)}},
				Objects: []entities.Object{{
					Name: "web", Type: "Deployment", Status: entities.ObjectFailed, Message: hostile,
					Links:  []entities.Link{{Type: "LOG", URL: "https://logs.example/web", Name: "logs"}, {URL: "javascript:alert(1)", Name: hostile}},
					Events: []entities.Event{{Timestamp: now.Add(-time.Minute), Message: "Back-off pulling " + hostile}},
				}},
				Conditions: []protocol.ConditionStatus{{
					ID: "approval/go-live", Kind: "approval", Subject: "go-live", Verdict: "WAIT", Code: "open", Reason: "0 of 1, by " + hostile,
					Since: now.Add(-10 * time.Minute), Need: 1, Unblock: "converge approve shop/web v8 go-live",
				}},
			},
		},
	}
	api := protocol.Status{
		Schema: protocol.StatusSchema, Application: "shop", Service: "api", Status: "FAILED", Version: "v3", Headline: hostile,
		Channels: []protocol.ChannelStatus{{Name: "staging", Status: "FAILED", Current: "v2", Target: "v3", Desired: "v3", Reasons: []protocol.Reason{{Text: hostile}}}},
	}
	return &installation{statuses: map[string]protocol.Status{"service/shop/web": web, "service/shop/api": api}}
}

// Text from outside is text in every page, and pages carry their policy.
func TestPagesShowTextAsText(t *testing.T) {
	get := served(t, shop())
	for path, want := range map[string][]string{
		"/":                  {"shop/web v8", "go-live: 0 of 1", `/services/shop/web/act/approve?version=v8&amp;topic=go-live`, "shop/api"},
		"/services":          {"waits for approval", "failed", `<th scope="col">production</th>`, "2 services"},
		"/services/shop/web": {"shop/web", "Runs <b>v7</b>", "approval/go-live", "Deployment web", "1 object, 3 more", "1 check, last results", "errors: PASS, 0.7 % of 1,204 requests", "12 of 40 instances have converged at v8; 3 <span", `href="https://logs.example/web"`, "Back-off pulling"},
		"/services/shop/api": {"failed", "goes to <b>v3</b>"},
	} {
		status, html, h := get(path)
		require.Equal(t, http.StatusOK, status, html)
		require.Equal(t, new(board).contentPolicy(), h.Get("Content-Security-Policy"))
		for _, text := range want {
			require.Contains(t, html, text, path)
		}
		require.NotContains(t, html, "<script>alert", path)
		require.NotContains(t, html, `="javascript:`, path)
		require.NotContains(t, html, "ZgotmplZ", path)
		require.NotContains(t, html, "\x1b", path)
		require.NotContains(t, html, "\u202e", path)
		require.NotContains(t, html, "style=", path)
		if dir := os.Getenv("BOARD_DIR"); dir != "" {
			require.NoError(t, os.WriteFile(dir+"/"+strings.ReplaceAll(strings.Trim(path, "/"), "/", "-")+".html", []byte(html), 0o600))
		}
	}
}

func TestPagesForWhatIsMissing(t *testing.T) {
	get := served(t, shop())
	for path, want := range map[string]string{
		"/nothing":           "There is no such page.",
		"/services/shop/wbe": "no service shop/wbe; did you mean shop/web?",
		"/services/Shop/web": "Shop/web is no name of a service.",
	} {
		status, html, _ := get(path)
		require.Equal(t, http.StatusNotFound, status)
		require.Contains(t, html, want)
	}
	status, html, _ := get("/services?name=none")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, html, "No service matches.")
}

// A person approves by a form, without script: the act is carried out once, its answer is shown until it is dismissed, and a refusal keeps
// the input.
func TestApproveByForm(t *testing.T) {
	i := shop()
	mux := mounted(t, i, Options{})
	var cookies []*http.Cookie
	do := func(method, path, form string) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for _, c := range cookies {
			r.AddCookie(c)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		cookies = append(cookies, w.Result().Cookies()...)
		return w
	}
	const sheet = "/services/shop/web/act/approve"
	w := do("GET", sheet+"?version=v8&topic=go-live", "")
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	for _, text := range []string{"Approve shop/web v8", "0 of 1, by", `name="version" value="v8"`, `name="topic" value="go-live"`, "Your name", "<button>Approve shop/web v8</button>"} {
		require.Contains(t, w.Body.String(), text)
	}
	require.NotContains(t, w.Body.String(), "<script>alert")

	i.refuse = &connection.RefusedError{Reason: "ann released v8, and may not approve it"}
	require.Contains(t, w.Body.String(), `<input type="hidden" name="fixed" value="version">`)
	require.Contains(t, w.Body.String(), "One more is the last that is needed: v8 then enters production.")
	w = do("POST", sheet, "requestId=r1&version=v8&topic=go-live&comment=checked&by=ann&fixed=version&fixed=topic")
	require.Equal(t, http.StatusConflict, w.Code)
	require.Contains(t, w.Body.String(), `<b>Version</b>: v8<input type="hidden"`, "the form stays about what the page showed")
	require.NotContains(t, w.Body.String(), `id="f-topic"`)
	require.Contains(t, w.Body.String(), "ann released v8, and may not approve it")
	require.Contains(t, w.Body.String(), `value="ann"`)
	require.Contains(t, w.Body.String(), ">checked</textarea>")
	require.NotContains(t, w.Body.String(), `name="requestId" value="r1"`, "the next attempt is another act")

	i.refuse, i.updates = nil, nil
	w = do("POST", sheet, "requestId=r2&version=v8&topic=go-live&by=bob")
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body.String())
	require.Equal(t, "/services/shop/web", w.Header().Get("Location"))
	require.Equal(t, []string{`service/shop/web approve {"by":"bob","requestId":"r2","topic":"go-live","version":"v8"}`}, i.updates)
	w = do("GET", "/services/shop/web", "")
	require.Contains(t, w.Body.String(), "v8 is approved for go-live")
	require.Contains(t, w.Body.String(), "production: v8 enters now")
	require.NotContains(t, do("GET", "/services/shop/api", "").Body.String(), "v8 is approved")
	require.Contains(t, do("GET", sheet+"?version=v8&topic=go-live", "").Body.String(), `name="by" value="bob"`, "the name is kept")
	require.Equal(t, http.StatusSeeOther, do("POST", "/services/shop/web/dismiss", "").Code)
	require.Equal(t, -1, cookies[len(cookies)-1].MaxAge)

	i.updates = nil
	w = do("POST", sheet, "version=v8&topic=go-live&by=+++")
	require.Equal(t, http.StatusConflict, w.Code)
	require.Contains(t, w.Body.String(), "Write your name.")
	require.Empty(t, i.updates)
	require.Equal(t, http.StatusNotFound, do("POST", "/services/shop/web/act/reserve", "by=ann").Code, "a verb of workflows")
	require.Equal(t, http.StatusNotFound, do("GET", "/services/shop/web/act/nothing", "").Code)

	reader := mounted(t, i, Options{ReadOnly: true})
	i.updates = nil
	w = httptest.NewRecorder()
	reader.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/services/shop/web/changes?version=v8", nil))
	require.Contains(t, w.Body.String(), "this server only reads, and runs no preview")
	r := httptest.NewRequestWithContext(t.Context(), "POST", sheet, strings.NewReader("version=v8&topic=go-live&by=bob"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w = httptest.NewRecorder()
	reader.ServeHTTP(w, r)
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Contains(t, w.Body.String(), "This server only reads.")
	require.Contains(t, w.Body.String(), "<button disabled>")
	require.Empty(t, i.updates)
}

// The pages of an application and its plans show the pause, the graph, and why nodes wait, as text.
func TestPagesOfAnApplication(t *testing.T) {
	i := shop()
	ref := protocol.PlanOfIncarnation("shop", "staging", 2)
	i.others = map[string]any{
		protocol.ApplicationID("shop"): protocol.ApplicationStatus{
			Application: "shop", Newest: 2, Pause: &entities.Pause{By: "ann", Reason: hostile},
			Incarnations: []protocol.Incarnation{{Number: 1, By: "ann", At: now}, {Number: 2, By: hostile, At: now, Origin: protocol.Origin{Path: hostile}}},
		},
		ref.ID(): protocol.PlanStatus{PlanRef: ref, Nodes: []protocol.PlanNodeStatus{
			{Node: "DEPLOY web", State: "failed", Text: hostile},
			{Node: "DEPLOY api", State: "blocked", Needs: []int{0}},
		}},
	}
	get := served(t, i)
	for path, want := range map[string][]string{
		"/applications/shop":                  {"Incarnation 2 is in force", "Paused by ann", "diff?from=1&amp;to=2", "the first", "/applications/shop/plans/production"},
		"/applications/shop/plans/staging":    {"<svg", "DEPLOY web", "failed", "holds up 1", `href="/services/shop/api"`, `href="/services/shop/web/logs"`},
		"/applications/shop/plans/production": {"Incarnation 2 has no plan in production"},
	} {
		status, html, _ := get(path)
		require.Equal(t, http.StatusOK, status, html)
		for _, text := range want {
			require.Contains(t, html, text, path)
		}
		require.NotContains(t, html, "<script>alert", path)
		require.NotContains(t, html, "\u202e", path)
		require.NotContains(t, html, "style=", path)
	}
	for path, want := range map[string]int{
		"/applications/none": http.StatusNotFound, "/applications/No": http.StatusNotFound, "/applications/shop/plans/No": http.StatusNotFound,
		"/applications/shop/diff": http.StatusBadRequest, "/applications/shop/diff?from=x&to=2": http.StatusBadRequest,
	} {
		status, html, _ := get(path)
		require.Equal(t, want, status, "%s: %s", path, html)
	}
}

// A page that does not come from the overview says nothing about how much that knows.
func TestOnlyListsSayHowMuchIsKnown(t *testing.T) {
	i := shop()
	mux := http.NewServeMux()
	Mount(mux, Options{Calls: i, Overview: overview.New(i, time.Now), Now: func() time.Time { return now }}) // it never lists
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	status, html := get("/services")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.NotContains(t, html, "known so far")
	status, html = get("/services/shop/web")
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, html, "known so far")
	status, html = get("/services")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, html, "Not all services are known yet; the others are being read.", "the one that was read")
}

// The longest answer of any letters fits into a cookie, and is shown.
func TestLongAnswersAreShown(t *testing.T) {
	n := connection.ServiceName{Application: "shop", Service: "web"}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	new(board).setSaid(w, r, said{Service: n.String(), Text: strings.Repeat("é ", 5000), Next: []string{strings.Repeat("<", 3000)}})
	cookie := w.Result().Cookies()[0]
	require.LessOrEqual(t, len(cookie.Name)+len(cookie.Value), 4000)
	r.AddCookie(cookie)
	require.Contains(t, takeSaid(r, n).Text, "é é é")
}

// What a link says becomes text on the sheet, too.
func TestSheetShowsTextAsText(t *testing.T) {
	get := served(t, shop())
	status, html, _ := get("/services/shop/web/act/approve?topic=go-live&version=" + url.QueryEscape(hostile))
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, html, "<script>alert")
	title, _, _ := strings.Cut(html, "</title>")
	require.NotContains(t, title, "\u202e")
	_, heading, _ := strings.Cut(html, "<h1>")
	heading, _, _ = strings.Cut(heading, "</h1>")
	require.NotContains(t, heading, "\u202e")
}

// The inputs of parameters become values of their types; other text stays text, which the service refuses. Parameters of aspects have none.
func TestParametersOfARelease(t *testing.T) {
	spec := &entities.Spec{
		Parameters: []entities.ParamSpec{
			{Name: "greeting", Type: entities.ParamString},
			{Name: "replicas", Type: entities.ParamInt, Required: true},
			{Name: "ratio", Type: entities.ParamFloat},
			{Name: "debug", Type: entities.ParamBool},
			{Name: "password", Type: entities.ParamSecret},
			{Name: "size", Type: entities.ParamInt},
		},
		Aspects: []entities.Aspect{{Name: "scale", Parameters: []string{"size"}}},
	}
	given := url.Values{
		"parameter:int:replicas": {" 3 "}, "parameter:float:ratio": {"many"}, "parameter:bool:debug": {"true"}, "parameter:string:greeting": {"007"},
		"version": {"v2"}, "parameter:int:huge": {"0x10"}, "by": {"bob"},
	}
	fields := parameterFields(spec, given)
	require.Len(t, fields, 5)
	require.Equal(t, field{
		Name: "parameter:int:replicas", Label: "replicas", Kind: kindText, Value: " 3 ", Required: true, None: "as declared", Help: "A parameter of type int.",
	}, fields[1])
	require.Equal(t, []string{"", "true", "false"}, fields[3].Options)
	require.Empty(t, parameterFields(nil, given))

	payload, err := json.Marshal(fieldsOf(acts[protocol.Release], given))
	require.NoError(t, err)
	require.JSONEq(t, `{"version":"v2","parameters":{"replicas":3,"ratio":"many","debug":true,"greeting":"007","huge":"0x10"}}`, string(payload))
	require.NotContains(t, formOf(protocol.Release, given), "by")
	payload, err = json.Marshal(fieldsOf(acts[protocol.Pause], given))
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(payload), "of another verb")
}

// stateOnly answers the state of every service.
type stateOnly struct{ connection.API }

func (stateOnly) Query(_ context.Context, _, _ string, into any) error {
	*into.(*state.State) = state.State{Application: "shop", Service: "web"}
	return nil
}

// As many calendars as there are places are computed at once; another one waits its turn, and says so if it does not come.
func TestCalendarsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{Options: Options{Calls: stateOnly{}, Now: time.Now}, calendars: make(chan struct{}, 1)}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/services/shop/web/calendar?version=v2", nil)
		r.SetPathValue("application", "shop")
		r.SetPathValue("service", "web")
		p, err := b.calendar(r)
		require.NoError(t, err)
		require.Equal(t, "web has no configuration yet", p.Content.(calendarContent).WhatIf.Refused)

		b.calendars <- struct{}{} // another one
		begun := time.Now()
		_, err = b.calendar(r)
		require.EqualError(t, err, "Others look at calendars now; load the page again.")
		require.Equal(t, calendarPatience, time.Since(begun))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = b.calendar(r.WithContext(ended))
		require.ErrorIs(t, err, context.Canceled)
	})
}

// A failed node holds up those that need it; one that is held, also those that only come after it.
func TestHeldUp(t *testing.T) {
	nodes := func(first string) []protocol.PlanNodeStatus {
		return []protocol.PlanNodeStatus{
			{Node: "a", State: first},
			{Node: "b", State: "blocked", Needs: []int{0}},
			{Node: "c", State: "blocked", Needs: []int{1}},
			{Node: "d", State: "waiting", After: []int{0}},
			{Node: "e", State: "done", Needs: []int{0}}, // of a run before
			{Node: "f", State: "running"},
		}
	}
	require.Equal(t, []string{"b", "c"}, heldUp(nodes("failed"), 0))
	require.Equal(t, []string{"b", "c", "d"}, heldUp(nodes("held"), 0))
}
