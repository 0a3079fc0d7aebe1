package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"

	workers "github.com/converge-engine/converge/worker"
)

// parseFlags runs a command line up to the execution of the verb, and returns its options.
func parseFlags[O any](t *testing.T, f *Factory, newCmd func(*Factory, func(context.Context, *O) error) *cobra.Command, args ...string) (*O, error) {
	t.Helper()
	var got *O
	cmd := newCmd(f, func(_ context.Context, o *O) error {
		got = o
		return nil
	})
	f.addFlags(cmd.Flags())
	cmd.SetArgs(args)
	cmd.SetOut(&bytes.Buffer{})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return got, err
}

var web = connection.ServiceName{Application: "shop", Service: "web"}

func TestFlags(t *testing.T) {
	f := newConsole(t, nil).Factory
	check := func(name string, want, got any, err error) {
		t.Helper()
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	release, err := parseFlags(t, f, newCmdRelease, "shop/web", "v9", "-p", "a=1", "-p", "b=2,3", "--request-id", "ci", "--reason", "fix", "-w", "--stop-at-approval", "--timeout", "30m")
	check("release", &releaseOptions{f: f, service: web, version: "v9", params: []string{"a=1", "b=2,3"}, requestID: "ci", reason: "fix", wait: true, stopAtApproval: true, timeout: 30 * time.Minute}, release, err)
	wait, err := parseFlags(t, f, newCmdWait, "shop/web", "v9", "-c", "staging", "--timeout", "90s")
	check("wait", &waitOptions{f: f, service: web, version: "v9", channel: "staging", timeout: 90 * time.Second}, wait, err)
	status, err := parseFlags(t, f, newCmdStatus)
	check("status of all", &statusOptions{f: f, target: target{all: true}}, status, err)
	status, err = parseFlags(t, f, newCmdStatus, "shop", "--watch")
	check("status of an application", &statusOptions{f: f, target: target{ServiceName: connection.ServiceName{Application: "shop"}, all: true}, watch: true}, status, err)
	status, err = parseFlags(t, f, newCmdStatus, "shop/web")
	check("status of a service", &statusOptions{f: f, target: target{ServiceName: web}}, status, err)
	explain, err := parseFlags(t, f, newCmdExplain, "shop/web", "staging")
	check("explain", &explainOptions{f: f, service: web, channel: "staging"}, explain, err)
	logs, err := parseFlags(t, f, newCmdLogs, "shop/web", "staging", "--kind", "apply", "--last", "2", "--store", "/s")
	check("logs", &logsOptions{f: f, service: web, channel: "staging", kind: "apply", last: 2, store: "/s"}, logs, err)
	pause, err := parseFlags(t, f, newCmdPause, "shop", "--reason", "drill", "-y")
	check("pause", &scopeOptions{f: f, verb: "pause", target: target{ServiceName: connection.ServiceName{Application: "shop"}, all: true}, reason: "drill", yes: true}, pause, err)
	resume, err := parseFlags(t, f, newCmdResume, "shop/web", "-c", "prod")
	check("resume", &scopeOptions{f: f, verb: "resume", target: target{ServiceName: web}, channel: "prod"}, resume, err)
	cancel, err := parseFlags(t, f, newCmdCancel, "shop/web", "v9", "--reason", "wrong")
	check("cancel", &serviceOptions{f: f, verb: "cancel", service: web, version: "v9", reason: "wrong"}, cancel, err)
	older, err := parseFlags(t, f, newCmdCancel, "shop/web", "--older-than", "v9", "-c", "prod")
	check("cancel", &serviceOptions{f: f, verb: "cancel", service: web, olderThan: "v9", channel: "prod"}, older, err)
	cancel, err = parseFlags(t, f, newCmdCancel, "shop/web", "v9", "--terminate")
	check("cancel", &serviceOptions{f: f, verb: "cancel", service: web, version: "v9", terminate: true}, cancel, err)
	rollback, err := parseFlags(t, f, newCmdRollback, "shop/web", "v9", "--while-paused")
	check("rollback", &serviceOptions{f: f, verb: "rollback", service: web, version: "v9", whilePaused: true}, rollback, err)
	retry, err := parseFlags(t, f, newCmdRetry, "shop/web", "v9", "-c", "prod")
	check("retry", &serviceOptions{f: f, verb: "retry", service: web, version: "v9", channel: "prod"}, retry, err)
	apply, err := parseFlags(t, f, newCmdPublish, "dir", "--dry-run", "--take-over", "--cause", "a", "--cause", "b", "--store", "/s")
	check("apply", &publishOptions{f: f, source: "dir", dryRun: true, takeOver: true, causes: []string{"a", "b"}, store: "/s"}, apply, err)
	validate, err := parseFlags(t, f, newCmdValidate)
	check("validate", &sourceOptions{f: f, source: "."}, validate, err)
	diff, err := parseFlags(t, f, newCmdDiff, "shop", "41", "42", "--exit-code")
	check("diff", &diffOptions{f: f, application: "shop", from: 41, to: 42, exitCode: true}, diff, err)
	incarnations, err := parseFlags(t, f, newCmdIncarnations, "shop", "--last", "0")
	check("incarnations", &incarnationsOptions{f: f, application: "shop"}, incarnations, err)
	begin, err := parseFlags(t, f, newCmdInit, "dir", "--name", "shop", "--access", "read")
	check("init", &initOptions{f: f, dir: "dir", name: "shop", access: "read"}, begin, err)
	worker, err := parseFlags(t, f, newCmdWorker, "--store", "/s", "--runtime", "edge", "--stop-timeout", "1m")
	check("worker", &workerOptions{f: f, store: "/s", runtime: "edge", stopTimeout: time.Minute, format: "text", level: "warn"}, worker, err)
	worker, err = parseFlags(t, f, newCmdWorker, "--deployment", "converge", "--build", "v2", "--set-current")
	check("worker", &workerOptions{f: f, stopTimeout: workers.DefaultStopTimeout, format: "text", level: "warn", version: workers.Deployment{Name: "converge", Build: "v2", SetCurrent: true}}, worker, err)
	doctor, err := parseFlags(t, f, newCmdDoctor, "--exit-code")
	check("doctor", &doctorOptions{f: f, exitCode: true}, doctor, err)
	doctor, err = parseFlags(t, f, newCmdDoctor, "--watch")
	check("doctor", &doctorOptions{f: f, watch: true}, doctor, err)
	pin, err := parseFlags(t, f, newCmdPinIncarnation, "shop", "41", "--reason", "42 breaks checkout", "-y")
	check("pin of an application", &incarnationPinOptions{f: f, verb: "pin", application: "shop", incarnation: 41, reason: "42 breaks checkout", yes: true}, pin, err)
	login, err := parseFlags(t, f, newCmdLogin, "https://id.shop.dev", "--device", "--client-id", "converge-cli")
	require.NoError(t, err)
	require.Equal(t, []any{"https://id.shop.dev", true, "converge-cli"}, []any{login.issuer, login.device, login.clientID})
	codec, err := parseFlags(t, f, newCmdCodecServer, "--issuer", "https://id.shop.dev", "--to", "group:sre", "--origin", "https://temporal.shop.dev", "--host", "codec.shop.dev")
	require.NoError(t, err)
	require.Equal(t, []any{"https://id.shop.dev", []string{"group:sre"}, []string{"https://temporal.shop.dev"}, []string{"codec.shop.dev"}}, []any{codec.identity.Issuer, codec.to, codec.origins, codec.hosts})
	dev, err := parseFlags(t, f, newCmdDev, "dir", "--port", "7300")
	require.NoError(t, err)
	require.Equal(t, []string{"dir", "--port", "7300"}, dev.args, "dev passes its flags on")
}

// Inside a directory that defines an application, a word is one of its services or its own name.
func TestApplicationMayBeOmitted(t *testing.T) {
	c := newConsole(t, nil)
	dir, _ := c.WorkDir()
	below := filepath.Join(dir, "deep", "er")
	require.NoError(t, os.MkdirAll(below, 0o755))
	c.WorkDir = func() (string, error) { return below, nil }

	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.converge.yaml"), []byte("kind: Service\nname: web\n---\nkind: Application\nname: shop\nmistake: 1\n"), 0o600))
	for arg, want := range map[string]target{
		"web":       {ServiceName: web, applicationOmitted: true},
		"shop":      {ServiceName: connection.ServiceName{Application: "shop"}, all: true},
		"blog/site": {ServiceName: connection.ServiceName{Application: "blog", Service: "site"}},
	} {
		got, err := c.parseTarget(arg)
		require.NoError(t, err)
		require.Equal(t, want, got, arg)
	}
}

// A word that is no service of the application here, but names another application, means that application. An application that
// the user named explicitly stays.
func TestTargetMayBeAnotherApplication(t *testing.T) {
	c := newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {webStatus("a CONVERGED v1 v1 succeeded")}, "service/blog/shop": {webStatus("a CONVERGED v1 v1 succeeded")}}})
	here := target{ServiceName: connection.ServiceName{Application: "hello", Service: "shop"}, applicationOmitted: true}
	got, err := c.resolveTarget(t.Context(), here)
	require.NoError(t, err)
	require.Equal(t, target{ServiceName: connection.ServiceName{Application: "shop"}, all: true}, got)
	for _, same := range []target{
		{ServiceName: connection.ServiceName{Application: "blog", Service: "shop"}, applicationOmitted: true}, {ServiceName: connection.ServiceName{Application: "hello", Service: "shop"}}, {ServiceName: connection.ServiceName{Application: "hello", Service: "blogg"}, applicationOmitted: true},
	} {
		got, err := c.resolveTarget(t.Context(), same)
		require.NoError(t, err)
		require.Equal(t, same, got)
	}
}

// The history of another application is found from inside a directory.
func TestHistoryTargetMayBeAnotherApplication(t *testing.T) {
	c := newConsole(t, &fakeAPI{statuses: map[string][]any{"application/blog": {protocol.ApplicationStatus{}}}})
	o := &historyOptions{f: c.Factory, target: target{ServiceName: connection.ServiceName{Application: "hello", Service: "blog"}, applicationOmitted: true}}
	_ = o.run(t.Context()) // there is no trail here
	require.Equal(t, "application/blog", o.scopeID)
}

// A runtime without a definition here may belong to another application. The error says how to find that out.
func TestValidateAsksForTheStoreOfOtherRuntimes_A3(t *testing.T) {
	c := newConsole(t, &fakeAPI{})
	dir := t.TempDir()
	text := "apiVersion: converge/v1\nkind: Application\nname: shop\nreleaseChannels: [{name: prod, runtimes: [{name: edge}]}]\n---\napiVersion: converge/v1\nkind: Service\nname: web\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shop.converge.yaml"), []byte(text), 0o600))
	require.Error(t, (&sourceOptions{f: c.Factory, source: dir}).validate(t.Context()))
	require.Contains(t, c.err.String(), `there is no runtime "edge"`)
	require.Contains(t, c.err.String(), "name the store of those applications: --store URL")
}

func TestParams(t *testing.T) {
	all, channels, err := parseParams([]string{
		"text=plain", "n=3", "big=12345678901234567890", "f=0.5", "e=1e3", "yes=true", "no=false", `quoted="007"`, "padded=007",
		"empty=", "equals=a=b", "null=null", "list=[1]", "space= 1", "two=1 2", "nan=NaN", "staging:n=4", "staging:text=x:y",
	})
	require.NoError(t, err)
	got, _ := json.Marshal(all)
	require.JSONEq(t, `{"text":"plain","n":3,"big":12345678901234567890,"f":0.5,"e":1e3,"yes":true,"no":false,"quoted":"007","padded":"007",
		"empty":"","equals":"a=b","null":"null","list":"[1]","space":" 1","two":"1 2","nan":"NaN"}`, string(got))
	require.Contains(t, string(got), `"big":12345678901234567890`, "no digit is lost")
	got, _ = json.Marshal(channels)
	require.JSONEq(t, `{"staging":{"n":4,"text":"x:y"}}`, string(got))

	for _, bad := range [][]string{{"n"}, {"=1"}, {":n=1"}, {"staging:=1"}, {"n=1", "n=2"}, {"a:n=1", "a:n=1"}} {
		_, _, err := parseParams(bad)
		require.Error(t, err, bad)
	}
}

// Every help text lists the exit codes and shows an example.
func TestHelp(t *testing.T) {
	c := newConsole(t, nil)
	all := newRoot(c.Factory).Commands()
	for n := 0; n < len(all); n++ {
		cmd := all[n]
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		all = append(all, cmd.Commands()...)
		c := newConsole(t, nil)
		_, words, _ := strings.Cut(cmd.CommandPath(), " ")
		code, output := c.run(t, words+" --help")
		require.Equal(t, outcome.Done, code)
		require.Contains(t, output, exitFooter, words)
		require.Contains(t, output, "Examples:\n  converge "+words, words)
		for _, line := range strings.Split(cmd.Long, "\n") {
			require.LessOrEqual(t, len([]rune(line)), 92, line)
		}
	}
}

// A channel is named by --channel with every verb, also where it is an argument.
func TestChannelByFlag(t *testing.T) {
	for line, want := range map[string]string{
		"channel pin shop/web v7 -c prod":             `service/shop/web pin {"by":"alice","requestId":"ID","channel":"prod","version":"v7"}`,
		"channel unpin shop/web --channel prod":       `service/shop/web unpin {"by":"alice","requestId":"ID","channel":"prod"}`,
		"restart shop/web -c prod":                    `service/shop/web restart {"by":"alice","requestId":"ID","channel":"prod"}`,
		"bypass shop/web v9 hours -c prod --reason x": `service/shop/web bypass {"by":"alice","requestId":"ID","reason":"x","version":"v9","channel":"prod","condition":"hours"}`,
		"pause shop/web prod":                         `service/shop/web pause {"by":"alice","requestId":"ID","channel":"prod"}`,
		"pause shop/web -c prod":                      `service/shop/web pause {"by":"alice","requestId":"ID","channel":"prod"}`,
	} {
		c := newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {webStatus("prod CONVERGED v9 v9 succeeded")}}, answer: protocol.Answer{Message: "done"}})
		code, output := c.run(t, line)
		require.Equal(t, outcome.Done, code, output)
		require.Equal(t, []string{want}, c.api.updates, line)
	}
	for line, want := range map[string]string{
		"pause shop/web prod -c staging":   "expected one release channel, not both prod and --channel staging",
		"restart shop/web prod -c staging": "usage: converge restart SVC [CHANNEL]",
		"channel unpin -c prod":            "usage: converge channel unpin SVC CHANNEL",
	} {
		c := newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {webStatus("prod CONVERGED v9 v9 succeeded")}}})
		code, output := c.run(t, line)
		require.Equal(t, outcome.Error, code)
		require.Contains(t, output, want, line)
		require.Empty(t, c.api.updates)
	}
}
