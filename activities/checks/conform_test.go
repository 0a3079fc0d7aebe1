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

// asked is a question about v2-i7 of shop/web in prod.
func asked(kind entities.CheckKind, change func(*entities.CheckDefinition)) checks.Asked {
	a := checks.Asked{
		Definition: entities.CheckDefinition{Application: "shop", Service: "web", Channel: "prod", ID: "it", Kind: kind},
		Evaluation: entities.Evaluation{Channel: "prod", ID: "it", Kind: kind, Release: "r2", FullVersion: "v2-i7", Payload: "after", Present: "before"},
		ServiceID:  "id-1", Version: "v2",
		Now: time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC),
	}
	change(&a.Definition)
	return a
}

func TestAlways_A20(t *testing.T) {
	t.Parallel()
	row := func(v entities.Verdict, reason string) checks.Asked {
		return asked(entities.CheckAlways, func(d *entities.CheckDefinition) {
			d.Always = &entities.AlwaysCheck{Verdict: v, Reason: reason}
		})
	}
	Conform(t, Kind{Kind: entities.CheckAlways, Rows: []Row{
		{Name: "pass", Asked: row(entities.Pass, "${{ version }} is as good as ${{fullVersion}}"), Want: entities.Pass, Says: "v2 is as good as v2-i7"},
		{Name: "wait", Asked: row(entities.Wait, ""), Want: entities.Wait, Says: "always WAIT, as declared"},
		{Name: "fail", Asked: row(entities.Fail, "no"), Want: entities.Fail, Says: "no"},
		{Name: "error", Asked: row(entities.Error, "no"), Want: entities.Error, Says: "no"},
		{Name: "neither", Asked: row("MAYBE", ""), Want: entities.Error, Says: `verdict is "MAYBE"; expected PASS, WAIT, FAIL or ERROR`},
		{Name: "a long reason of bad text", Asked: row(entities.Fail, strings.Repeat("ä\xff\n", 1000)), Want: entities.Fail, Says: "ä? ä? ä…"},
	}})
}

func TestDeniedVersions_A20(t *testing.T) {
	t.Parallel()
	row := func(patterns ...string) checks.Asked {
		return asked(entities.CheckDeniedVersions, func(d *entities.CheckDefinition) {
			d.DeniedVersions = &entities.DeniedVersions{Versions: patterns, Reason: "it lost orders"}
		})
	}
	merged := func(patterns ...string) checks.Asked {
		a := row(patterns...)
		a.Evaluation.FullVersion = "v2-i7-flags.x577f1208"
		return a
	}
	Conform(t, Kind{Kind: entities.CheckDeniedVersions, Rows: []Row{
		{Name: "another", Asked: row("v1.*", "v3"), Want: entities.Pass, Says: "v2-i7 is not denied"},
		{Name: "by name", Asked: row("v1", "v2"), Want: entities.Fail, Says: "v2 is denied: it lost orders"},
		{Name: "by full name", Asked: row("v2-i7"), Want: entities.Fail, Says: "v2-i7 is denied: it lost orders"},
		{Name: "by pattern", Asked: row("v2*"), Want: entities.Fail, Says: "v2 is denied (v2*): it lost orders"},
		{Name: "by pattern of the full name", Asked: row("*-i7"), Want: entities.Fail, Says: "v2-i7 is denied (*-i7): it lost orders"},
		{Name: "by full name, with values", Asked: merged("v2-i7"), Want: entities.Fail, Says: "v2-i7 is denied: it lost orders"},
		{Name: "by its values", Asked: merged("flags.x577f1208"), Want: entities.Fail, Says: "flags.x577f1208 is denied: it lost orders"},
		{Name: "a broken pattern behind a match", Asked: row("v2", "v[1"), Want: entities.Error, Says: `invalid pattern "v[1" for versions: syntax error in pattern`},
	}})
}

// kept has which commits an incarnation brings, by its number.
type kept map[int64]protocol.Brought

// Brought implements checks.Commits.
func (k kept) Brought(_ context.Context, application string, since, incarnation int64) (protocol.Brought, error) {
	if application != "shop" || since != 5 {
		return protocol.Brought{}, errors.New("unexpected request")
	}
	return k[incarnation], nil
}

func TestDeniedCommits_A20(t *testing.T) {
	t.Parallel()
	one := protocol.Commit{SHA: "4be1a90c2d11" + strings.Repeat("0", 28), Author: "Ada", Subject: "Sell more"}
	lists := func(unknown string) checks.Sources {
		return checks.Sources{Commits: kept{7: {Unknown: unknown, Commits: []protocol.IncarnationCommits{{Incarnation: 6, Commits: []protocol.Commit{one}}}}}}
	}
	row := func(commits ...string) checks.Asked {
		a := asked(entities.CheckDeniedCommits, func(d *entities.CheckDefinition) {
			d.DeniedCommits = &entities.DeniedCommits{Commits: commits, Reason: "${{ service }} lost orders"}
		})
		a.Evaluation.Since, a.Evaluation.Incarnation = 5, 7
		return a
	}
	there := row("4be1a90")
	there.Evaluation.Incarnation = 5
	says := "commit 4be1a90c2d11 Ada: Sell more of incarnation 6 is denied: web lost orders"
	Conform(t, Kind{Kind: entities.CheckDeniedCommits, Rows: []Row{
		{Name: "abbreviated", Sources: lists(""), Asked: row("beef123", "4be1a90"), Want: entities.Fail, Says: says},
		{Name: "whole", Sources: lists(""), Asked: row(one.SHA), Want: entities.Fail, Says: says},
		{Name: "another", Sources: lists(""), Asked: row("4be1a91"), Want: entities.Pass, Says: "none of its commits is denied"},
		{Name: "same incarnation", Sources: lists(""), Asked: there, Want: entities.Pass, Says: "none of its commits is denied"},
		{Name: "found, although some are unknown", Sources: lists("more"), Asked: row("4be1a90"), Want: entities.Fail, Says: says},
		{Name: "unknown", Sources: lists("incarnation 7 came from /srv/shop"), Asked: row("4be1a91"), Want: entities.Error, Says: "cannot tell whether it brings a denied commit: incarnation 7 came from /srv/shop; to let it pass: converge bypass"},
	}})
}

func TestAllowedTimes_A20(t *testing.T) {
	t.Parallel()
	row := func(d entities.AllowedTimes) checks.Asked {
		return asked(entities.CheckAllowedTimes, func(def *entities.CheckDefinition) { def.AllowedTimes = &d })
	}
	Conform(t, Kind{Kind: entities.CheckAllowedTimes, Rows: []Row{
		{Name: "open", Asked: row(office()), Want: entities.Pass, Says: "open until Mon 16:00 CET"},
		{Name: "closed", Asked: row(daily("Europe/Paris", "11:00-12:00")), Want: entities.Wait, Says: "opens Mon 11:00 CET (outside its hours)"},
		{Name: "broken", Asked: row(daily("Paris", "")), Want: entities.Error, Says: `time zone "Paris" is unknown; expected a name such as Europe/Paris`},
	}})
}

func TestCommand_A20(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := "#!/bin/sh\necho one\necho \"$PVN_APPLICATION/$PVN_SERVICE $PVN_SERVICE_ID $PVN_SERVICE_VERSION $PVN_RELEASE_CHANNEL $#:$1 $MINE\"\nexit $CODE\n"
	programtest.Write(t, filepath.Join(dir, "smoke"), script)
	sources := checks.Sources{Own: own, Commands: checks.On(custom.Worker{Secrets: token})}
	row := func(code string, change func(*entities.CheckRun)) checks.Asked {
		return asked(entities.CheckCommand, func(d *entities.CheckDefinition) {
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
		{Name: "0 passes", Sources: sources, Asked: row("0", plain), Want: entities.Pass, Says: says},
		{Name: "2 waits", Sources: sources, Asked: row("2", plain), Want: entities.Wait, Says: says},
		{Name: "3 fails", Sources: sources, Asked: row("3", plain), Want: entities.Fail, Says: says},
		{Name: "1 fails", Sources: sources, Asked: row("1", plain), Want: entities.Fail, Says: says},
		{Name: "4 is an error", Sources: sources, Asked: row("4", plain), Want: entities.Error, Says: "./smoke exited 4: " + says},
		{Name: "stderr first", Sources: sources, Asked: row("", shell("echo out; echo err >&2; exit 5")), Want: entities.Error, Says: "sh exited 5: err"},
		{Name: "a reason on stderr", Sources: sources, Asked: row("", shell("echo err >&2; exit 1")), Want: entities.Fail, Says: "sh exited 1: err"},
		{Name: "silent", Sources: sources, Asked: row("", shell("exit 2")), Want: entities.Wait, Says: "sh exited 2"},
		{Name: "killed", Sources: sources, Asked: row("", shell("kill -9 $$")), Want: entities.Error, Says: "sh was ended by signal killed"},
		{Name: "missing", Sources: sources, Asked: row("", func(r *entities.CheckRun) { r.Command.Argv = []string{"./there-is-none"} }), Want: entities.Error, Says: "command: command not found: " + filepath.Join(dir, "there-is-none") + " does not exist"},
		{Name: "a secret", Sources: sources, Asked: row("", func(r *entities.CheckRun) {
			shell(`echo "it is $KEY"`)(r)
			r.Env["KEY"] = entities.Value{WorkerEnv: "TOKEN"}
		}), Want: entities.Pass, Says: "it is ***"},
		{Name: "timeout", Sources: sources, Asked: row("", func(r *entities.CheckRun) {
			shell("exec sleep 600")(r)
			r.Command.Timeout = 20 * time.Millisecond
		}), Want: entities.Error, Says: "command: sh did not finish within 20ms and was ended"},
		{Name: "with a job", Sources: sources, Asked: row("", func(r *entities.CheckRun) { r.Job = &entities.CommandJob{} }), Want: entities.Error, Says: "a check of kind job needs a job, and no other kind has one"},
	}})
}

// recorded is a runner that runs nothing, and remembers what it was to run.
type recorded struct{ once *custom.Once }

func (r recorded) Run(_ context.Context, o custom.Once) (runtimes.Output, string, error) {
	if r.once != nil {
		*r.once = o
	}
	return runtimes.Output{ExitCode: 3, Stdout: "not\nready\n"}, "", nil
}

func TestJob_A20(t *testing.T) {
	t.Parallel()
	cluster := &entities.CommandJob{Namespace: "ci", Image: "smoke:${{ version }}"}
	a := asked(entities.CheckJob, func(d *entities.CheckDefinition) {
		d.Dir = "/somewhere"
		d.Command = &entities.CheckRun{Command: entities.Command{Argv: []string{"smoke", "${{ fullVersion }}"}}, Job: cluster}
	})
	without := asked(entities.CheckJob, func(d *entities.CheckDefinition) {
		d.Command = &entities.CheckRun{Command: entities.Command{Argv: []string{"smoke"}}}
	})
	Conform(t, Kind{Kind: entities.CheckJob, Rows: []Row{
		{Name: "by exit code", Sources: checks.Sources{Own: own, Commands: recorded{}}, Asked: a, Want: entities.Fail, Says: "ready"},
		{Name: "without a job", Sources: checks.Sources{Own: own, Commands: recorded{}}, Asked: without, Want: entities.Error, Says: "a check of kind job needs a job, and no other kind has one"},
		{Name: "no clusters", Sources: checks.Sources{Own: own, Commands: checks.On(custom.Worker{})}, Asked: a, Want: entities.Error, Says: "job: it runs as a Job, but this worker has no cluster connections"},
	}})
	var once custom.Once
	require.Equal(t, entities.Fail, checks.Evaluate(t.Context(), checks.Sources{Own: own, Commands: recorded{&once}}, a).Verdict)
	require.Equal(t, custom.Once{
		What: "job", Purpose: "check", Dir: "/somewhere", Argv: []string{"smoke", "v2-i7"}, Env: map[string]entities.Value{},
		Job: &entities.CommandJob{Namespace: "ci", Image: "smoke:v2"}, Timeout: 5 * time.Minute, Asks: true,
		Document: document,
		Instance: runtimes.Instance{
			Owner:     runtimes.Owner{Application: "shop", Service: "web", ID: entities.InstanceID{Channel: "prod"}},
			ServiceID: "id-1", FullVersion: "v2-i7",
		},
	}, once)
	require.Equal(t, "smoke:${{ version }}", cluster.Image, "the request was modified")
}

// A check that runs as a task of ECS is one of kind task, and no other.
func TestTask_A20(t *testing.T) {
	t.Parallel()
	where := &entities.CommandTask{Cluster: entities.ECSRuntime{Cluster: "shop"}, TaskDefinition: "smoke:7"}
	on := func(kind entities.CheckKind, task *entities.CommandTask) checks.Asked {
		return asked(kind, func(d *entities.CheckDefinition) {
			d.Command = &entities.CheckRun{Command: entities.Command{Argv: []string{"smoke", "${{ fullVersion }}"}}, Task: task}
		})
	}
	Conform(t, Kind{Kind: entities.CheckTask, Rows: []Row{
		{Name: "by exit code", Sources: checks.Sources{Own: own, Commands: recorded{}}, Asked: on(entities.CheckTask, where), Want: entities.Fail, Says: "ready"},
		{Name: "without a task", Sources: checks.Sources{Own: own, Commands: recorded{}}, Asked: on(entities.CheckTask, nil), Want: entities.Error, Says: "a check of kind task needs a task, and no other kind has one"},
		{Name: "another kind", Sources: checks.Sources{Own: own, Commands: recorded{}}, Asked: on(entities.CheckCommand, where), Want: entities.Error, Says: "a check of kind task needs a task, and no other kind has one"},
		{Name: "no worker for it", Sources: checks.Sources{Own: own, Commands: checks.On(custom.Worker{})}, Asked: on(entities.CheckTask, where), Want: entities.Error, Says: "task: it runs as an ECS task, but this worker cannot run tasks"},
	}})
	var once custom.Once
	require.Equal(t, entities.Fail, checks.Evaluate(t.Context(), checks.Sources{Own: own, Commands: recorded{&once}}, on(entities.CheckTask, where)).Verdict)
	require.Equal(t, []any{where, []string{"smoke", "v2-i7"}, 5 * time.Minute}, []any{once.Task, once.Argv, once.Timeout})
}

// A kind that this version does not know is an ERROR, never a PASS.
func TestUnknownKind_D16(t *testing.T) {
	t.Parallel()
	r := checks.Evaluate(t.Context(), checks.Sources{}, asked("moonPhase", func(*entities.CheckDefinition) {}))
	require.Equal(t, `ERROR this version does not support checks of kind "moonPhase"`, string(r.Verdict)+" "+r.Reason)
}
