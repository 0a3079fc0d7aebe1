package tests

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/api"
	"github.com/converge-engine/converge/client/preview"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

const openAPI = "../docs/openapi.json"

// apiURL is the address of the HTTP API that converge dev has printed.
func apiURL(t *testing.T, d *stage.Dev) string {
	t.Helper()
	printed := regexp.MustCompile(`Board +(http://127\.0\.0\.1:\d+) `)
	url := ""
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		if m := printed.FindStringSubmatch(d.Output()); m != nil {
			url = m[1]
		}
		return url != "", "no address of the board in: " + d.Output()
	})
	return url
}

// The commands of docs/api.md print what the page shows.
func TestAPIFromThePage(t *testing.T) {
	stage.Long(t, "builds the programs")
	t.Parallel()
	d := shopWithApproval(t)
	url := apiURL(t, d)
	for _, b := range stage.Console(t, "../docs/api.md") {
		for n := range b.Commands {
			b.Commands[n].Line = strings.ReplaceAll(b.Commands[n].Line, "http://127.0.0.1:8234", url)
		}
		d.RunPage(b)
	}
}

// shopWithApproval runs converge dev with the application of `config init`, whose production waits for an approval, until v1 is everywhere.
func shopWithApproval(t *testing.T) *stage.Dev {
	t.Helper()
	return shopWithGate(t, "{}", "0")
}

// shopWithGate is shopWithApproval with the declaration of the approval, and with the port of the API and the board.
func shopWithGate(t *testing.T, approval, port string) *stage.Dev {
	t.Helper()
	d := shared.DevOfInit(t)
	d.APIPort = port
	d.Start()
	d.Await("shop/hello", "staging CONVERGED v1, production CONVERGED v1")
	file := filepath.Join(d.Dir, "converge.yaml")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	const gate = "  - releaseChannelStable: {releaseChannel: staging}\n"
	require.Contains(t, string(text), gate)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), gate, gate+"  - manualApproval: "+approval+"\n", 1)), 0o600))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		out, code := d.Converge("status", "shop/hello", "--output", "json")
		return code == 0 && strings.Contains(out, `"incarnation": 2`), out
	})
	return d
}

// checked is a transport that validates each answer against the OpenAPI document, with fields refused that it does not have.
type checked struct {
	t        *testing.T
	document map[string]any
	compiler *jsonschema.Compiler
	mu       sync.Mutex
	answers  int
}

func newChecked(t *testing.T) *checked {
	t.Helper()
	data, err := os.ReadFile(openAPI)
	require.NoError(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(t, err)
	closeObjects(document)
	c := &checked{t: t, document: document.(map[string]any), compiler: jsonschema.NewCompiler()}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	require.NoError(t, c.compiler.AddResource("openapi.json", document))
	return c
}

// closeObjects refuses fields that a schema does not name.
func closeObjects(value any) {
	switch v := value.(type) {
	case map[string]any:
		if _, object := v["properties"].(map[string]any); object && v["additionalProperties"] == nil {
			v["additionalProperties"] = false
		}
		for _, each := range v {
			closeObjects(each)
		}
	case []any:
		for _, each := range v {
			closeObjects(each)
		}
	}
}

func (c *checked) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(data))
	c.mu.Lock()
	defer c.mu.Unlock()
	if schema := c.schemaOf(r, response); schema != "" {
		compiled, err := c.compiler.Compile("openapi.json#" + schema)
		require.NoError(c.t, err)
		body, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		require.NoError(c.t, err, "%s %s: %s", r.Method, r.URL, data)
		require.NoError(c.t, compiled.Validate(body), "%s %s: %s", r.Method, r.URL, data)
		c.answers++
	}
	return response, nil
}

// schemaOf returns the JSON pointer to the schema of an answer.
func (c *checked) schemaOf(r *http.Request, response *http.Response) string {
	paths := c.document["paths"].(map[string]any)
	for path, item := range paths {
		pattern := "^" + regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), `[^/]+`) + "$"
		method := strings.ToLower(r.Method)
		if _, has := item.(map[string]any)[method]; !has || !regexp.MustCompile(pattern).MatchString(r.URL.Path) {
			continue
		}
		of, kind := "200", "application~1json"
		if response.StatusCode != http.StatusOK {
			of, kind = "default", "application~1problem+json"
		}
		return "/paths/" + strings.ReplaceAll(strings.ReplaceAll(path, "~", "~0"), "/", "~1") + "/" + method + "/responses/" + of + "/content/" + kind + "/schema"
	}
	require.Fail(c.t, "no operation", "%s %s", r.Method, r.URL)
	return ""
}

// A program without a connection to Temporal releases, approves, waits, pauses, and reads everything; each answer is as the OpenAPI document
// has it.
func TestWalkOverHTTP(t *testing.T) {
	stage.Long(t, "builds the programs")
	t.Parallel()
	d := shopWithApproval(t)
	valid := newChecked(t)
	c := api.Client{URL: apiURL(t, d), HTTP: &http.Client{Transport: valid}}
	hello := api.ServicePath("shop", "hello")
	act := func(path, verb, requestID string, payload map[string]any) (answer map[string]any) {
		t.Helper()
		require.NoError(t, c.Act(t.Context(), path, verb, requestID, payload, &answer), verb)
		return answer
	}
	refused := func(path, verb string, payload map[string]any, code api.Code, detail string) {
		t.Helper()
		var problem *api.Problem
		require.ErrorAs(t, c.Act(t.Context(), path, verb, "", payload, &map[string]any{}), &problem)
		require.Equal(t, code, problem.Code, problem.Detail)
		require.Contains(t, problem.Detail, detail)
	}

	released := act(hello, "release", "release-v2", map[string]any{"version": "v2", "by": "alice"})
	require.Equal(t, "v2", released["version"])
	again := act(hello, "release", "release-v2", map[string]any{"version": "v2", "by": "alice"})
	require.Equal(t, released["id"], again["id"], "the same key is the same act")
	var other *api.Problem
	require.ErrorAs(t, c.Act(t.Context(), hello, "release", "release-v2", map[string]any{"version": "v3", "by": "alice"}, nil), &other)
	require.Equal(t, api.Refused, other.Code, "the same key is no other act: %s", other.Detail)
	require.ErrorAs(t, c.Act(t.Context(), hello, "pause", "release-v2", map[string]any{"by": "alice"}, nil), &other)
	require.Equal(t, api.Refused, other.Code, "nor another verb: %s", other.Detail)
	refused(hello, "release", map[string]any{"version": "v2", "by": "alice", "reson": "x"}, api.Invalid, "body.reson")
	refused(hello, "retry", map[string]any{"version": "v9", "by": "alice"}, api.Refused, "v9")
	refused(api.ServicePath("shop", "helo"), "pause", map[string]any{"by": "alice"}, api.NotFound, "did you mean shop/hello?")

	out, err := c.Wait(t.Context(), "shop", "hello", released["id"].(string), time.Minute)
	require.NoError(t, err)
	require.Equal(t, 8, out.Exit, out.Why)
	var open []map[string]any
	require.NoError(t, c.Get(t.Context(), "/approvals", nil, &open))
	require.Len(t, open, 1)
	require.Equal(t, "v2", open[0]["version"])
	act(hello, "approve", "", map[string]any{"version": "v2", "topic": open[0]["topic"], "by": "bob"})
	out, err = c.Wait(t.Context(), "shop", "hello", released["id"].(string), 2*time.Minute)
	require.NoError(t, err)
	require.Zero(t, out.Exit, out.Why)

	var plan preview.Plan
	require.NoError(t, c.Get(t.Context(), hello+"/changes", url.Values{"version": {"v3"}}, &plan))
	require.Equal(t, "v3", plan.Services[0].Version)
	require.Len(t, plan.Services[0].Channels, 2)
	require.Equal(t, "v2", plan.Services[0].Channels[1].Present)
	act(hello, "pause", "", map[string]any{"channel": "production", "by": "bob", "reason": "printing"})
	act("/applications/shop", "pause", "", map[string]any{"by": "bob", "reason": "printing"})
	act("/installation", "pause", "", map[string]any{"by": "bob"})
	act("/installation", "resume", "", map[string]any{"by": "bob"})
	act("/applications/shop", "resume", "", map[string]any{"by": "bob"})
	act(hello, "resume", "", map[string]any{"channel": "production", "by": "bob"})
	act("/runtimes/files", "pause", "", map[string]any{"by": "bob"})
	act("/runtimes/files", "resume", "", map[string]any{"by": "bob"})
	refused("/runtimes/fils", "pause", map[string]any{"by": "bob"}, api.NotFound, "no service uses runtime fils; did you mean files?")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // services are notified of the ends of wider pauses
		status, err := c.Status(t.Context(), "shop", "hello")
		return err == nil && len(status.Pauses) == 0 && status.Status == "CONVERGED", status.Headline
	})
	act(hello, "rollback", "", map[string]any{"channel": "production", "by": "bob", "reason": "prints nothing"})
	act(hello, "pin", "", map[string]any{"channel": "staging", "version": "v2", "by": "bob"})
	act(hello, "unpin", "", map[string]any{"channel": "staging", "by": "bob"})
	act("/applications/shop", "release", "", map[string]any{"by": "bob", "services": map[string]any{"hello": map[string]any{"version": "v3"}}})

	status, err := c.Status(t.Context(), "shop", "hello")
	require.NoError(t, err)
	require.Equal(t, protocol.StatusSchema, status.Schema)
	var history api.Page[read.HistoryEntry]
	require.NoError(t, c.Get(t.Context(), hello+"/history", nil, &history))
	require.Contains(t, kindsOf(history.Items), "approval")
	history = api.Page[read.HistoryEntry]{}
	require.NoError(t, c.Get(t.Context(), hello+"/history", url.Values{"channel": {"prod"}}, &history))
	require.Empty(t, history.Items)
	require.Equal(t, []string{"no entry is of a release channel prod; the history has entries of staging, production"}, history.Problems)
	for _, path := range []string{
		"/applications", "/services", "/applications/shop", "/applications/shop/history", "/applications/shop/incarnations", "/applications/shop/incarnations/1",
		"/applications/shop/incarnations/2/assets", "/applications/shop/diff?from=1", hello + "/explain", hello + "/releases", hello + "/timeline",
		hello + "/logs", "/runtimes/files", "/runtimes/files/history", "/installation", "/installation/history",
	} {
		var answer any
		require.NoError(t, c.Get(t.Context(), path, nil, &answer), path)
		require.NotEmpty(t, answer, path)
	}
	for _, path := range []string{"/applications/shop/plans/production", "/runtimes/nothing", hello + "/wait?release=99", "/applications/shopp", "/applications/shop/incarnations/99", "/approvals?application=shopp"} {
		var problem *api.Problem
		require.ErrorAs(t, c.Get(t.Context(), path, nil, &map[string]any{}), &problem, path)
		require.Equal(t, api.NotFound, problem.Code, path)
	}
	require.Greater(t, valid.answers, 35)
}

// converge serve answers as converge dev does; a read-only server carries out no act.
func TestServeReadOnly(t *testing.T) {
	stage.Long(t, "builds the programs")
	t.Parallel()
	d := shopWithApproval(t)
	printed := d.Background("serve", "--listen", "127.0.0.1:0", "--read-only")
	url := ""
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		_, rest, found := strings.Cut(printed(), "Board      ")
		url, _, _ = strings.Cut(rest, " ")
		return found && strings.Contains(rest, "\n"), printed()
	})
	c := api.Client{URL: url, HTTP: &http.Client{Transport: newChecked(t)}}
	var all api.Page[api.ApplicationItem]
	require.NoError(t, c.Get(t.Context(), "/applications", nil, &all))
	require.Equal(t, []api.ApplicationItem{{Name: "shop"}}, all.Items)
	var problem *api.Problem
	require.ErrorAs(t, c.Act(t.Context(), api.ServicePath("shop", "hello"), "pause", "", map[string]any{"by": "alice"}, &map[string]any{}), &problem)
	require.Equal(t, api.ReadOnly, problem.Code)
	require.ErrorAs(t, c.Get(t.Context(), api.ServicePath("shop", "hello")+"/changes", map[string][]string{"version": {"v3"}}, &map[string]any{}), &problem)
	require.Equal(t, api.ReadOnly, problem.Code, "it starts no workflow")
	status, err := c.Status(t.Context(), "shop", "hello")
	require.NoError(t, err)
	require.Empty(t, status.Pauses)
}

// An act goes to the service that has the name now, also if another one had it before.
func TestActsFollowNames(t *testing.T) {
	stage.Long(t, "builds the programs")
	t.Parallel()
	d := shopWithApproval(t)
	c := api.Client{URL: apiURL(t, d), HTTP: &http.Client{Transport: newChecked(t)}}
	file := filepath.Join(d.Dir, "converge.yaml")
	edit := func(incarnation, service string, oldNew ...string) {
		t.Helper()
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, []byte(strings.NewReplacer(oldNew...).Replace(string(text))), 0o600))
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			out, code := d.Converge("status", service, "--output", "json")
			return code == 0 && strings.Contains(out, `"incarnation": `+incarnation), out
		})
	}
	pause := func(service string) string {
		t.Helper()
		var answer protocol.Answer
		require.NoError(t, c.Act(t.Context(), api.ServicePath("shop", service), "pause", "", map[string]any{"by": "ann", "channel": "production"}, &answer))
		return answer.Message
	}
	edit("3", "shop/hi", "name: hello\n", "name: hi\nrenamedFrom: hello\n")
	require.Contains(t, pause("hi"), "hi production is paused")
	edit("4", "shop/hey", "name: hi\nrenamedFrom: hello\n", "name: hey\nrenamedFrom: hi\n")
	edit("5", "shop/hi", "renamedFrom: hi\n", "", "---\n# A custom runtime", "---\napiVersion: converge/v1\nkind: Service\nname: hi\ninitialVersion: v1\ncustom: {env: {GREETING: hi}}\n---\n# A custom runtime")
	require.Contains(t, pause("hi"), "hi production is paused")
	renamed, err := c.Status(t.Context(), "shop", "hey")
	require.NoError(t, err)
	require.Len(t, renamed.Pauses, 1)
	hi, err := c.Status(t.Context(), "shop", "hi")
	require.NoError(t, err)
	require.Equal(t, "hi", hi.Service)
	require.Len(t, hi.Pauses, 1)
}

func kindsOf(entries []read.HistoryEntry) (kinds []string) {
	for _, e := range entries {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// The OpenAPI document is valid for a validator of another project (openapi-spec-validator, which moto brings).
func TestOpenAPIIsValid(t *testing.T) {
	t.Parallel()
	python, err := filepath.Abs("../.cache/moto/bin/python")
	require.NoError(t, err)
	if _, err := os.Stat(python); err != nil {
		t.Skip("no validator: make moto installs one")
	}
	out, err := exec.CommandContext(t.Context(), python, "-m", "openapi_spec_validator", openAPI).CombinedOutput()
	require.NoError(t, err, string(out))
	broken := filepath.Join(t.TempDir(), "broken.json")
	var document map[string]any
	data, err := os.ReadFile(openAPI)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &document))
	delete(document, "info")
	data, err = json.Marshal(document)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(broken, data, 0o600))
	out, err = exec.CommandContext(t.Context(), python, "-m", "openapi_spec_validator", broken).CombinedOutput()
	require.Error(t, err, string(out))
}
