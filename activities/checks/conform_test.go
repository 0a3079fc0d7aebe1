package checks_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/converge-engine/converge/tests/programtest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/custom"
	source "github.com/converge-engine/converge/runtimes/secret"
)

const secret = "hunter22-of-the-worker"

var token = source.Environment{Allowed: []string{"*"}, Lookup: func(name string) (string, bool) { return secret, name == "TOKEN" }}

// newRequest returns a request about v2-i7 of shop/web in prod.
func newRequest(kind entities.CheckKind, change func(*entities.CheckDefinition)) checks.Request {
	a := checks.Request{
		Definition: entities.CheckDefinition{Application: "shop", Service: "web", Channel: "prod", ID: "it", Kind: kind},
		Evaluation: entities.Evaluation{Channel: "prod", ID: "it", Kind: kind, Release: "r2", FullVersion: "v2-i7", Payload: "after", CurrentPayload: "before"},
		ServiceID:  "id-1", Version: "v2",
		Now: time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC),
	}
	change(&a.Definition)
	return a
}

func TestAlways_A20(t *testing.T) {
	t.Parallel()
	row := func(v entities.Verdict, reason string) checks.Request {
		return newRequest(entities.CheckAlways, func(d *entities.CheckDefinition) {
			d.Always = &entities.AlwaysCheck{Verdict: v, Reason: reason}
		})
	}
	Conform(t, Kind{Kind: entities.CheckAlways, Rows: []Row{
		{Name: "pass", Request: row(entities.Pass, "${{ version }} is as good as ${{fullVersion}}"), Want: entities.Pass, Reason: "v2 is as good as v2-i7"},
		{Name: "wait", Request: row(entities.Wait, ""), Want: entities.Wait, Reason: "always WAIT, as declared"},
		{Name: "fail", Request: row(entities.Fail, "no"), Want: entities.Fail, Reason: "no"},
		{Name: "error", Request: row(entities.Error, "no"), Want: entities.Error, Reason: "no"},
		{Name: "neither", Request: row("MAYBE", ""), Want: entities.Error, Reason: `verdict is "MAYBE"; expected PASS, WAIT, FAIL or ERROR`},
		{Name: "a long reason of bad text", Request: row(entities.Fail, strings.Repeat("ä\xff\n", 1000)), Want: entities.Fail, Reason: "ä? ä? ä…"},
	}})
}

func TestDeniedVersions_A20(t *testing.T) {
	t.Parallel()
	row := func(patterns ...string) checks.Request {
		return newRequest(entities.CheckDeniedVersions, func(d *entities.CheckDefinition) {
			d.DeniedVersions = &entities.DeniedVersions{Versions: patterns, Reason: "it lost orders"}
		})
	}
	merged := func(patterns ...string) checks.Request {
		a := row(patterns...)
		a.Evaluation.FullVersion = "v2-i7-flags.x577f1208"
		return a
	}
	Conform(t, Kind{Kind: entities.CheckDeniedVersions, Rows: []Row{
		{Name: "another", Request: row("v1.*", "v3"), Want: entities.Pass, Reason: "v2-i7 is not denied"},
		{Name: "by name", Request: row("v1", "v2"), Want: entities.Fail, Reason: "v2 is denied: it lost orders"},
		{Name: "by full name", Request: row("v2-i7"), Want: entities.Fail, Reason: "v2-i7 is denied: it lost orders"},
		{Name: "by pattern", Request: row("v2*"), Want: entities.Fail, Reason: "v2 is denied (v2*): it lost orders"},
		{Name: "by pattern of the full name", Request: row("*-i7"), Want: entities.Fail, Reason: "v2-i7 is denied (*-i7): it lost orders"},
		{Name: "by full name, with values", Request: merged("v2-i7"), Want: entities.Fail, Reason: "v2-i7 is denied: it lost orders"},
		{Name: "by its values", Request: merged("flags.x577f1208"), Want: entities.Fail, Reason: "flags.x577f1208 is denied: it lost orders"},
		{Name: "a broken pattern behind a match", Request: row("v2", "v[1"), Want: entities.Error, Reason: `invalid pattern "v[1" for versions: syntax error in pattern`},
	}})
}

// fakeCommits has the commits that incarnations bring, by number.
type fakeCommits map[int64]protocol.ReleaseCommits

// Brought implements checks.Commits.
func (k fakeCommits) Brought(_ context.Context, application string, since, incarnation int64) (protocol.ReleaseCommits, error) {
	if application != "shop" || since != 5 {
		return protocol.ReleaseCommits{}, errors.New("unexpected request")
	}
	return k[incarnation], nil
}

func TestDeniedCommits_A20(t *testing.T) {
	t.Parallel()
	one := protocol.Commit{SHA: "4be1a90c2d11" + strings.Repeat("0", 28), Author: "Ada", Subject: "Sell more"}
	lists := func(unknown string) checks.Sources {
		return checks.Sources{Commits: fakeCommits{7: {Unknown: unknown, Commits: []protocol.IncarnationCommits{{Incarnation: 6, Commits: []protocol.Commit{one}}}}}}
	}
	row := func(commits ...string) checks.Request {
		a := newRequest(entities.CheckDeniedCommits, func(d *entities.CheckDefinition) {
			d.DeniedCommits = &entities.DeniedCommits{Commits: commits, Reason: "${{ service }} lost orders"}
		})
		a.Evaluation.Since, a.Evaluation.Incarnation = 5, 7
		return a
	}
	there := row("4be1a90")
	there.Evaluation.Incarnation = 5
	says := "commit 4be1a90c2d11 Ada: Sell more of incarnation 6 is denied: web lost orders"
	Conform(t, Kind{Kind: entities.CheckDeniedCommits, Rows: []Row{
		{Name: "abbreviated", Sources: lists(""), Request: row("beef123", "4be1a90"), Want: entities.Fail, Reason: says},
		{Name: "whole", Sources: lists(""), Request: row(one.SHA), Want: entities.Fail, Reason: says},
		{Name: "another", Sources: lists(""), Request: row("4be1a91"), Want: entities.Pass, Reason: "none of its commits is denied"},
		{Name: "same incarnation", Sources: lists(""), Request: there, Want: entities.Pass, Reason: "none of its commits is denied"},
		{Name: "found, although some are unknown", Sources: lists("more"), Request: row("4be1a90"), Want: entities.Fail, Reason: says},
		{Name: "unknown", Sources: lists("incarnation 7 came from /srv/shop"), Request: row("4be1a91"), Want: entities.Error, Reason: "cannot tell whether it brings a denied commit: incarnation 7 came from /srv/shop; to let it pass: converge bypass"},
	}})
}

func TestAllowedTimes_A20(t *testing.T) {
	t.Parallel()
	row := func(d entities.AllowedTimes) checks.Request {
		return newRequest(entities.CheckAllowedTimes, func(def *entities.CheckDefinition) { def.AllowedTimes = &d })
	}
	Conform(t, Kind{Kind: entities.CheckAllowedTimes, Rows: []Row{
		{Name: "open", Request: row(office()), Want: entities.Pass, Reason: "open until Mon 16:00 CET"},
		{Name: "closed", Request: row(daily("Europe/Paris", "11:00-12:00")), Want: entities.Wait, Reason: "opens Mon 11:00 CET (outside its hours)"},
		{Name: "broken", Request: row(daily("Paris", "")), Want: entities.Error, Reason: `time zone "Paris" is unknown; expected a name such as Europe/Paris`},
	}})
}

func TestCommand_A20(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := "#!/bin/sh\necho one\necho \"$PVN_APPLICATION/$PVN_SERVICE $PVN_SERVICE_ID $PVN_SERVICE_VERSION $PVN_RELEASE_CHANNEL $#:$1 $MINE\"\nexit $CODE\n"
	programtest.Write(t, filepath.Join(dir, "smoke"), script)
	sources := checks.Sources{Own: fakeStatus, Commands: checks.CommandsOn(custom.Worker{Secrets: token})}
	row := func(code string, change func(*entities.CheckRun)) checks.Request {
		return newRequest(entities.CheckCommand, func(d *entities.CheckDefinition) {
			d.Dir = dir
			d.Command = &entities.CheckRun{
				Command: entities.Command{Argv: []string{"./smoke", "to ${{ version }}; $(false)"}},
				Env:     map[string]entities.Value{"CODE": {Literal: code}, "MINE": {Literal: "a ${{ fullVersion }}"}},
			}
			change(d.Command)
		})
	}
	plain := func(*entities.CheckRun) {}
	shell := func(text string) func(*entities.CheckRun) {
		return func(r *entities.CheckRun) { r.Command.Argv = []string{"sh", "-c", text} }
	}
	const says = "shop/web id-1 v2-i7 prod 1:to v2; $(false) a v2-i7"
	Conform(t, Kind{Kind: entities.CheckCommand, Secrets: []string{secret}, Rows: []Row{
		{Name: "0 passes", Sources: sources, Request: row("0", plain), Want: entities.Pass, Reason: says},
		{Name: "2 waits", Sources: sources, Request: row("2", plain), Want: entities.Wait, Reason: says},
		{Name: "3 fails", Sources: sources, Request: row("3", plain), Want: entities.Fail, Reason: says},
		{Name: "1 fails", Sources: sources, Request: row("1", plain), Want: entities.Fail, Reason: says},
		{Name: "4 is an error", Sources: sources, Request: row("4", plain), Want: entities.Error, Reason: "./smoke exited 4: " + says},
		{Name: "stderr first", Sources: sources, Request: row("", shell("echo out; echo err >&2; exit 5")), Want: entities.Error, Reason: "sh exited 5: err"},
		{Name: "a reason on stderr", Sources: sources, Request: row("", shell("echo err >&2; exit 1")), Want: entities.Fail, Reason: "sh exited 1: err"},
		{Name: "silent", Sources: sources, Request: row("", shell("exit 2")), Want: entities.Wait, Reason: "sh exited 2"},
		{Name: "killed", Sources: sources, Request: row("", shell("kill -9 $$")), Want: entities.Error, Reason: "sh was ended by signal killed"},
		{Name: "missing", Sources: sources, Request: row("", func(r *entities.CheckRun) { r.Command.Argv = []string{"./there-is-none"} }), Want: entities.Error, Reason: "command: command not found: " + filepath.Join(dir, "there-is-none") + " does not exist"},
		{Name: "a secret", Sources: sources, Request: row("", func(r *entities.CheckRun) {
			shell(`echo "it is $KEY"`)(r)
			r.Env["KEY"] = entities.Value{WorkerEnv: "TOKEN"}
		}), Want: entities.Pass, Reason: "it is ***"},
		{Name: "timeout", Sources: sources, Request: row("", func(r *entities.CheckRun) {
			shell("exec sleep 600")(r)
			r.Command.Timeout = 20 * time.Millisecond
		}), Want: entities.Error, Reason: "command: sh did not finish within 20ms and was ended"},
		{Name: "with a job", Sources: sources, Request: row("", func(r *entities.CheckRun) { r.Job = &entities.CommandJob{} }), Want: entities.Error, Reason: "a check of kind job needs a job, and no other kind has one"},
	}})
}

// recordingRunner runs nothing and records the command.
type recordingRunner struct{ once *custom.StandaloneCommand }

func (r recordingRunner) Run(_ context.Context, o custom.StandaloneCommand) (runtimes.Output, string, error) {
	if r.once != nil {
		*r.once = o
	}
	return runtimes.Output{ExitCode: 3, Stdout: "not\nready\n"}, "", nil
}

func TestJob_A20(t *testing.T) {
	t.Parallel()
	cluster := &entities.CommandJob{Namespace: "ci", Image: "smoke:${{ version }}"}
	a := newRequest(entities.CheckJob, func(d *entities.CheckDefinition) {
		d.Dir = "/somewhere"
		d.Command = &entities.CheckRun{Command: entities.Command{Argv: []string{"smoke", "${{ fullVersion }}"}}, Job: cluster}
	})
	without := newRequest(entities.CheckJob, func(d *entities.CheckDefinition) {
		d.Command = &entities.CheckRun{Command: entities.Command{Argv: []string{"smoke"}}}
	})
	Conform(t, Kind{Kind: entities.CheckJob, Rows: []Row{
		{Name: "by exit code", Sources: checks.Sources{Own: fakeStatus, Commands: recordingRunner{}}, Request: a, Want: entities.Fail, Reason: "ready"},
		{Name: "without a job", Sources: checks.Sources{Own: fakeStatus, Commands: recordingRunner{}}, Request: without, Want: entities.Error, Reason: "a check of kind job needs a job, and no other kind has one"},
		{Name: "no clusters", Sources: checks.Sources{Own: fakeStatus, Commands: checks.CommandsOn(custom.Worker{})}, Request: a, Want: entities.Error, Reason: "job: it runs as a Job, but this worker has no cluster connections"},
	}})
	var once custom.StandaloneCommand
	require.Equal(t, entities.Fail, checks.Evaluate(t.Context(), checks.Sources{Own: fakeStatus, Commands: recordingRunner{&once}}, a).Verdict)
	require.Equal(t, custom.StandaloneCommand{
		ErrorPrefix: "job", Purpose: "check", Dir: "/somewhere", Argv: []string{"smoke", "v2-i7"}, Env: map[string]entities.Value{},
		Job: &entities.CommandJob{Namespace: "ci", Image: "smoke:v2"}, Timeout: 5 * time.Minute, Query: true,
		Document: document,
		Instance: runtimes.Request{
			Owner:     runtimes.Owner{Application: "shop", Service: "web", ID: entities.InstanceID{Channel: "prod"}},
			ServiceID: "id-1", FullVersion: "v2-i7",
		},
	}, once)
	require.Equal(t, "smoke:${{ version }}", cluster.Image, "the request was modified")
}

// Only a check of kind task runs as an ECS task.
func TestTask_A20(t *testing.T) {
	t.Parallel()
	where := &entities.CommandTask{Cluster: entities.ECSRuntime{Cluster: "shop"}, TaskDefinition: "smoke:7"}
	on := func(kind entities.CheckKind, task *entities.CommandTask) checks.Request {
		return newRequest(kind, func(d *entities.CheckDefinition) {
			d.Command = &entities.CheckRun{Command: entities.Command{Argv: []string{"smoke", "${{ fullVersion }}"}}, Task: task}
		})
	}
	Conform(t, Kind{Kind: entities.CheckTask, Rows: []Row{
		{Name: "by exit code", Sources: checks.Sources{Own: fakeStatus, Commands: recordingRunner{}}, Request: on(entities.CheckTask, where), Want: entities.Fail, Reason: "ready"},
		{Name: "without a task", Sources: checks.Sources{Own: fakeStatus, Commands: recordingRunner{}}, Request: on(entities.CheckTask, nil), Want: entities.Error, Reason: "a check of kind task needs a task, and no other kind has one"},
		{Name: "another kind", Sources: checks.Sources{Own: fakeStatus, Commands: recordingRunner{}}, Request: on(entities.CheckCommand, where), Want: entities.Error, Reason: "a check of kind task needs a task, and no other kind has one"},
		{Name: "no worker for it", Sources: checks.Sources{Own: fakeStatus, Commands: checks.CommandsOn(custom.Worker{})}, Request: on(entities.CheckTask, where), Want: entities.Error, Reason: "task: it runs as an ECS task, but this worker cannot run tasks"},
	}})
	var once custom.StandaloneCommand
	require.Equal(t, entities.Fail, checks.Evaluate(t.Context(), checks.Sources{Own: fakeStatus, Commands: recordingRunner{&once}}, on(entities.CheckTask, where)).Verdict)
	require.Equal(t, []any{where, []string{"smoke", "v2-i7"}, 5 * time.Minute}, []any{once.Task, once.Argv, once.Timeout})
}

// An unknown kind is an ERROR, never a PASS.
func TestUnknownKind_D16(t *testing.T) {
	t.Parallel()
	r := checks.Evaluate(t.Context(), checks.Sources{}, newRequest("moonPhase", func(*entities.CheckDefinition) {}))
	require.Equal(t, `ERROR this version does not support checks of kind "moonPhase"`, string(r.Verdict)+" "+r.Reason)
}
