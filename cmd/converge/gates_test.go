package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/timeline"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
)

func TestGateFlags(t *testing.T) {
	f := newConsole(t, nil).Factory
	check := func(name string, want, got any, err error) {
		t.Helper()
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	approve, err := parseFlags(t, f, newCmdApprove, "shop/web", "v9", "go-live", "--comment", "tested")
	check("approve", &serviceOptions{f: f, verb: "approve", service: web, version: "v9", topic: "go-live", comment: "tested"}, approve, err)
	reject, err := parseFlags(t, f, newCmdReject, "shop/web", "v9", "go-live")
	check("reject", &serviceOptions{f: f, verb: "reject", service: web, version: "v9", topic: "go-live"}, reject, err)
	bypass, err := parseFlags(t, f, newCmdBypass, "shop/web", "v9", "prod", "office-hours", "--reason", "incident 12")
	check("bypass", &serviceOptions{f: f, verb: "bypass", service: web, version: "v9", channel: "prod", condition: "office-hours", reason: "incident 12"}, bypass, err)
	drawn, err := parseFlags(t, f, newCmdTimeline, "shop", "--last", "3", "--svg", "a.svg", "--store", "/s")
	check("timeline", &timelineOptions{f: f, target: target{ServiceName: connection.ServiceName{Application: "shop"}, all: true}, last: 3, svg: "a.svg", store: "/s"}, drawn, err)
	report, err := parseFlags(t, f, newCmdDelivery, "shop", "--since", "7d", "-c", "prod", "--svg", "a.svg", "--store", "/s")
	check("report", &reportOptions{
		f: f, target: target{ServiceName: connection.ServiceName{Application: "shop"}, all: true}, since: period(7 * day), channels: []string{"prod"}, svg: "a.svg", store: "/s",
	}, report, err)
	_, err = parseFlags(t, f, newCmdDelivery, "shop", "--since", "soon")
	require.ErrorContains(t, err, "expected days such as 30d, or a duration such as 12h")
	rollback, err := parseFlags(t, f, newCmdRollback, "shop/web", "v9", "-c", "prod", "--reason", "errors")
	check("rollback", &serviceOptions{f: f, verb: "rollback", service: web, version: "v9", channel: "prod", reason: "errors"}, rollback, err)
	rollback, err = parseFlags(t, f, newCmdRollback, "shop/web")
	check("rollback of the newest", &serviceOptions{f: f, verb: "rollback", service: web}, rollback, err)
	pin, err := parseFlags(t, f, newCmdPin, "shop/web", "prod", "v7", "--reason", "printing")
	check("pin", &serviceOptions{f: f, verb: "pin", service: web, channel: "prod", version: "v7", reason: "printing"}, pin, err)
	unpin, err := parseFlags(t, f, newCmdUnpin, "shop/web", "prod")
	check("unpin", &serviceOptions{f: f, verb: "unpin", service: web, channel: "prod"}, unpin, err)
	history, err := parseFlags(t, f, newCmdHistory, "shop/web", "-c", "prod", "--kind", "bypass", "--kind", "pin", "--last", "3", "--store", "/s")
	check("history", &historyOptions{f: f, target: target{ServiceName: web}, channel: "prod", kinds: []string{"bypass", "pin"}, last: 3, store: "/s"}, history, err)
	simulate, err := parseFlags(t, f, newCmdSimulate, "shop/web", "v9", "--at", "2026-12-30", "--zone", "Europe/Paris", "--export", "a.svg", "--approved")
	check("simulate", &simulateOptions{
		f: f, service: web, version: "v9", at: "2026-12-30", zone: "Europe/Paris", export: "a.svg", approved: true,
		apply: time.Minute, until: 90 * 24 * time.Hour,
	}, simulate, err)
}

// Each act of a person is an update. The test checks the payload, and the output when it is accepted and when it is refused.
func TestGateVerbs(t *testing.T) { // A14, A15, A17, A22
	for line, want := range map[string]string{
		"approve shop/web v9 go-live --comment tested": `approve {"by":"alice","requestId":"ID","version":"v9","topic":"go-live","comment":"tested"}`,
		"reject shop/web v9 go-live":                   `reject {"by":"alice","requestId":"ID","version":"v9","topic":"go-live"}`,
		"bypass shop/web v9 prod hours --reason fire":  `bypass {"by":"alice","requestId":"ID","reason":"fire","version":"v9","channel":"prod","condition":"hours"}`,
		"rollback shop/web --reason errors":            `rollback {"by":"alice","requestId":"ID","reason":"errors"}`,
		"rollback shop/web v9 -c prod":                 `rollback {"by":"alice","requestId":"ID","version":"v9","channel":"prod"}`,
		"channel pin shop/web prod v7":                 `pin {"by":"alice","requestId":"ID","channel":"prod","version":"v7"}`,
		"channel pin shop/web prod --reason weekend":   `pin {"by":"alice","requestId":"ID","reason":"weekend","channel":"prod"}`,
		"restart shop/web":                             `restart {"by":"alice","requestId":"ID"}`,
		"restart shop/web prod --reason secrets":       `restart {"by":"alice","requestId":"ID","reason":"secrets","channel":"prod"}`,
		"channel unpin shop/web prod --stay":           `unpin {"by":"alice","requestId":"ID","channel":"prod","stay":true}`,
		"channel unpin shop/web prod":                  `unpin {"by":"alice","requestId":"ID","channel":"prod"}`,
		"approve shop/web v9 go-live --token eyJ":      `approve {"by":"alice","requestId":"ID","token":"eyJ","version":"v9","topic":"go-live"}`,
	} {
		t.Run(line, func(t *testing.T) {
			services := map[string][]any{"service/shop/web": {webStatus("prod CONVERGED v9 v9 succeeded")}}
			c := newConsole(t, &fakeAPI{statuses: services, answer: protocol.Answer{Message: "done"}})
			code, output := c.run(t, line)
			require.Equal(t, "done\n", output)
			require.Equal(t, outcome.Done, code)
			require.Equal(t, []string{"service/shop/web " + want}, c.api.updates)

			c = newConsole(t, &fakeAPI{statuses: services, refuse: []error{&connection.RefusedError{Reason: "bob may not approve go-live; allowed: group:sre"}}})
			code, output = c.run(t, line)
			require.Equal(t, "! converge: refused: bob may not approve go-live; allowed: group:sre\n", output)
			require.Equal(t, outcome.Error, code)
		})
	}
}

// A strategy of a person holds for one release.
func TestReleaseByStrategy(t *testing.T) {
	c := newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {webStatus("prod CONVERGED v9 v9 succeeded")}}})
	c.run(t, "release shop/web v9 --strategy immediate")
	require.Equal(t, []string{`service/shop/web release {"by":"alice","requestId":"ID","version":"v9","strategy":"immediate"}`}, c.api.updates)
}

// The instances of a fleet are listed where a channel has one.
func TestStatusListsInstances(t *testing.T) {
	s := webStatus("prod CONVERGED v9 v9 succeeded")
	s.Channels[0].Instances = []protocol.InstanceStatus{{Name: "eu", Status: "CONVERGED", Current: "v9", Target: "v9"}}
	_, output := newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {s}}}).run(t, "status shop/web --instances")
	require.Contains(t, output, "eu")
}

// Invalid input is refused before anything is sent.
func TestGateVerbsRefuse(t *testing.T) {
	for line, want := range map[string]string{
		"bypass shop/web v9 prod hours":            "a bypass requires a reason that others can read: --reason",
		"approve shop/web v9":                      "usage: converge approve SVC VERSION TOPIC; for example: converge approve shop/web v9 go-live --comment \"tested by QA\"",
		"simulate shop/web v9 --at later":          `--at "later": expected a time such as 2026-12-23T16:00, or RFC 3339`,
		"simulate shop/web v9 --zone Mars/Olympus": `--zone "Mars/Olympus": expected an IANA time zone such as Europe/Paris`,
		"rollback shop/wob v9":                     "no service shop/wob; did you mean shop/web?",
		"simulate shop/wob v9 --approved":          "no service shop/wob; did you mean shop/web?",
		"simulate shop/wob --aspect flags":         "no service shop/wob; did you mean shop/web?",
		"logs shop/web prod --kind bypass":         `--kind "bypass": expected apply, fetch or extension`,
	} {
		c := newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {webStatus("prod CONVERGED v9 v9 succeeded")}}})
		code, output := c.run(t, line)
		require.Equal(t, "! converge: "+want+"\n", output, line)
		require.Equal(t, outcome.Error, code, line)
		if code == outcome.Error && line != "rollback shop/wob v9" {
			require.Empty(t, c.api.updates, line)
		}
	}
}

// A release that needs an approval reports once how to give it, and continues when it is given.
func TestReleaseWaitsForApproval_A14(t *testing.T) {
	waiting := webStatus("prod WAITING_MANUAL_APPROVAL v8 v9 pending")
	waiting.Channels[0].Conditions = []protocol.ConditionStatus{{ID: "approval/go-live", Verdict: "WAIT", Unblock: "converge approve shop/web v9 go-live"}}
	done := webStatus("prod CONVERGED v9 v9 succeeded", "5 prod CONVERGED at v9")
	run := func(line string, statuses ...any) (int, string) {
		return newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": statuses}, answer: accepted}).run(t, line)
	}
	code, output := run("release shop/web v9 --wait", waiting, waiting, done)
	require.Equal(t, `release 19: web v9 from incarnation 42
10:50:05 UTC prod  CONVERGED at v9
web v9 converged in prod.
! web v9 waits for an approval in prod. Next: converge approve shop/web v9 go-live. Ctrl-C stops watching; the release continues.
`, output)
	require.Equal(t, outcome.Done, code)
	// While the release is in progress, an earlier release may wait for an approval there. That is not an approval of this release,
	// and its command is not shown.
	before := webStatus("staging CONVERGING v8 v9 in progress, prod WAITING_MANUAL_APPROVAL v7 v8 pending")
	before.Channels[1].Conditions = []protocol.ConditionStatus{{ID: "approval/go-live", Verdict: "WAIT", Unblock: "converge approve shop/web v8 go-live"}}
	_, output = run("release shop/web v9 --wait", before, waiting, waiting, done)
	require.Contains(t, output, "! web v9 waits for an approval in prod. Next: converge approve shop/web v9 go-live.")
	require.NotContains(t, output, "approve shop/web v8")
	behind := webStatus("staging CONVERGED v9 v9 succeeded, prod WAITING_MANUAL_APPROVAL v7 v8 pending")
	behind.Channels[1].Conditions = before.Channels[1].Conditions
	_, output = run("release shop/web v9 --wait", behind, waiting, done)
	require.Contains(t, output, "! web v9 waits for an approval in prod behind v8. Next: converge approve shop/web v8 go-live.")
	require.Contains(t, output, "! web v9 waits for an approval in prod. Next: converge approve shop/web v9 go-live.")
	code, output = run("release shop/web v9 --wait --stop-at-approval", waiting)
	require.Equal(t, `release 19: web v9 from incarnation 42
web v9 waits for an approval in prod. Next: converge approve shop/web v9 go-live. See: converge explain shop/web
`, output)
	require.Equal(t, outcome.Person, code)
}

// The history combines the lines of the store and the lines that only the workflow has, each line once.
func TestHistory(t *testing.T) {
	dir := t.TempDir()
	store, err := store.Open(context.Background(), dir)
	require.NoError(t, err)
	line := func(n int64, who *entities.Who, kind, text, reason string) entities.AuditEntry {
		return entities.AuditEntry{N: n, At: at(int(n)), Kind: kind, Who: who, Channel: "prod", Version: "v9", Text: text, Reason: reason}
	}
	first := line(1, nil, entities.EventTarget, "target v8 → v9", "")
	second := line(2, &entities.Who{Name: "eve", Proven: true}, entities.EventBypass, "bypassed hours", "fire")
	third := line(3, &entities.Who{Name: "bob"}, entities.EventPin, "pinned to v7", "printing")
	require.NoError(t, store.AppendAudit(t.Context(), "shop", "web", []entities.AuditEntry{first, second}))
	require.NoError(t, store.Close())
	s := webStatus("prod CONVERGED v9 v9 succeeded")
	s.Store = dir
	run := func(line string) (int, string) {
		return newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {s, protocol.HistoryAnswer{Stored: 2, Entries: []entities.AuditEntry{second, third}}}}}).run(t, line)
	}
	stamp := func(l entities.AuditEntry) string { return l.At.Local().Format(dateTime) }
	code, output := run("history shop/web")
	require.Equal(t, stamp(first)+"\tconverge\ttarget\tprod\tv9\ttarget v8 → v9\n"+
		stamp(second)+"\teve\tbypass\tprod\tv9\tbypassed hours (fire)\n"+
		stamp(third)+"\tbob?\tpin\tprod\tv9\tpinned to v7 (printing)\n", output)
	require.Equal(t, outcome.Done, code)
	_, output = run("history shop/web --kind pin --kind bypass --last 1")
	require.Equal(t, stamp(third)+"\tbob?\tpin\tprod\tv9\tpinned to v7 (printing)\n", output)
	_, output = run("history shop/web --channel staging")
	require.Equal(t, "! no matching entries for shop/web\n", output)
}

// A timeline shows the content of the history, as text and as a picture.
func TestTimeline_B6(t *testing.T) {
	dir := t.TempDir()
	store, err := store.Open(context.Background(), dir)
	require.NoError(t, err)
	line := func(n int, kind string) entities.AuditEntry {
		return entities.AuditEntry{N: int64(n), At: at(n), Kind: kind, Channel: "prod", Release: "19", Version: "v<9>"}
	}
	require.NoError(t, store.AppendAudit(t.Context(), "shop", "web", []entities.AuditEntry{
		line(1, entities.EventRelease), line(2, entities.EventTarget), line(9, entities.EventSucceeded),
	}))
	require.NoError(t, store.Close())
	s := webStatus("prod CONVERGED v<9> v<9> succeeded")
	s.Store = dir
	run := func(line string) (int, string) {
		return newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {s, protocol.HistoryAnswer{}, state.State{}, s}}}).run(t, line)
	}
	chart := filepath.Join(dir, "web.svg")
	code, output := run("report timeline shop/web --svg " + chart)
	require.Equal(t, `web
           from Fri 20 Nov 10:50 UTC to Fri 20 Nov 10:50 UTC
v<9> prod  ░░▒▒▒▒▒▒▒▒▒▒▒▒▒▒████████████████████████  waited 1s; runs since Fri 20 Nov 10:50 UTC
           ░ waits  ▒ deploys  ▓ soaks  █ runs  × fails
`, output)
	require.Equal(t, outcome.Done, code)
	svg, err := os.ReadFile(chart)
	require.NoError(t, err)
	require.Contains(t, string(svg), ">v&lt;9&gt; prod<")
	_, output = run("report timeline shop/web -o json")
	require.Contains(t, output, `"kind": "runs"`)
}

// A report summarizes the history of the requested period, for each service and in total.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	store, err := store.Open(context.Background(), dir)
	require.NoError(t, err)
	append := func(service string, lines ...entities.AuditEntry) {
		for n := range lines {
			lines[n].N, lines[n].Channel = int64(n+1), "prod"
		}
		require.NoError(t, store.AppendAudit(t.Context(), "shop", service, lines))
	}
	line := func(hours int, kind, version string) entities.AuditEntry {
		return entities.AuditEntry{At: now.Add(time.Duration(hours) * time.Hour), Kind: kind, Release: version, Version: version}
	}
	append("web", line(-100, entities.EventRelease, "v8"), line(-99, entities.EventTarget, "v8"), line(-98, entities.EventSucceeded, "v8"),
		line(-90, entities.EventRelease, "v9"), line(-10, entities.EventTarget, "v9"), line(-9, entities.EventRollback, "v9"), line(-8, entities.EventSucceeded, "v8"))
	append("gone", line(-9, entities.EventRelease, "x1"), line(-8, entities.EventTarget, "x1"), line(-7, entities.EventSucceeded, "x1"))
	append("longgone", line(-900, entities.EventRelease, "x1"))
	append("api", line(-9, entities.EventRelease, "w1"), line(-8, entities.EventTarget, "w1"), line(-3, entities.EventSucceeded, "w1"))
	// One channel of the removed service came before the other.
	digest, err := store.PutSpec(t.Context(), entities.Spec{Channels: []entities.ChannelSpec{
		{Name: "staging"}, {Name: "prod", Conditions: []entities.Condition{{Kind: entities.ChannelStable, Channels: []string{"staging"}}}},
	}})
	require.NoError(t, err)
	manifest, err := store.PutManifest(t.Context(), incarnation.Manifest{"gone": digest})
	require.NoError(t, err)
	require.NoError(t, store.PutNumber(t.Context(), "shop", protocol.Incarnation{Number: 1, Manifest: manifest}))
	require.NoError(t, store.Close())
	s := webStatus("prod CONVERGED v8 v8 succeeded")
	s.Store = dir
	lost := false
	run := func(line string) (int, string) {
		answers := func() []any { return []any{s, protocol.HistoryAnswer{}, state.State{}, s} }
		api := &fakeAPI{statuses: map[string][]any{
			"application/shop": {protocol.ApplicationStatus{Store: dir}}, "service/shop/api": answers(), "service/shop/web": answers(),
		}}
		if lost {
			api.statuses["service/shop/web"] = []any{s, protocol.HistoryAnswer{}, connection.ErrLost}
		}
		return newConsole(t, api).run(t, line)
	}
	code, output := run("report delivery shop --since 4d")
	require.Equal(t, outcome.Done, code)
	const header = "SERVICE\tCHANNEL\tRELEASES\tDEPLOYED\tPER WEEK\tLEAD TIME\tFAILED\tFAILURE RATE\tROLLED BACK\tRECOVERED IN\n"
	require.Equal(t, header+`api	prod	1	1	1.8	6h	0	0%	0	-
web	prod	1	0	0.0	-	1	100%	1	1h
gone	prod	1	1	1.8	2h	0	0%	0	-
all		3	2	3.5	4h	1	33%	1	1h
`, output)
	chart := filepath.Join(dir, "shop.svg")
	_, output = run("report delivery shop/web --svg " + chart)
	require.Equal(t, header+"web\tprod\t2\t1\t0.2\t2h\t1\t50%\t1\t1h\n", output)
	svg, err := os.ReadFile(chart)
	require.NoError(t, err)
	require.Contains(t, string(svg), ">shop/web, the 30d until Fri 20 Nov 2026 10:50 UTC<")
	_, output = run("report delivery shop/web --since 5h -o json")
	require.JSONEq(t, `{"schema": "converge.report/v1", "from": "2026-11-20T05:50:20Z", "to": "2026-11-20T10:50:20Z", "releases": 0, "problems": [],
		"channels": [{"service": "web", "channel": "prod", "releases": 0, "deployments": [],
			"numbers": {"succeeded": 0, "deploymentFrequencyPerWeek": 0, "failed": 0, "automaticRollbacks": 0, "rollbacksByPeople": 0, "notRestored": 0}}],
		"total": {"succeeded": 0, "deploymentFrequencyPerWeek": 0, "failed": 0, "automaticRollbacks": 0, "rollbacksByPeople": 0, "notRestored": 0}}`, output)
	code, output = run("report delivery shop -c prd -o json")
	require.Equal(t, outcome.Error, code)
	require.Equal(t, "! converge: --channel prd: shop has no such release channel; did you mean prod?\n", output)
	lost = true
	_, output = run("report delivery shop/web")
	require.Contains(t, output, "! web: the current state is unknown: connection lost; channels that others wait for may be counted too\n")
	_, output = run("report timeline shop/web")
	require.Contains(t, output, "! web: the current state is unknown: connection lost\n")
	_, output = run("report delivery shop/web -o json")
	require.Contains(t, output, `"problem": "the current state is unknown: connection lost;`)
}

// The schema of a report names all fields of its JSON.
func TestReportIsDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	_, text, _ := strings.Cut(string(raw), "<!-- report:")
	text, _, _ = strings.Cut(text, "<!-- end -->")
	for _, of := range []any{report{}, problem{}, timeline.Delivery{}, timeline.Deployment{}, timeline.Numbers{}} {
		for f := range reflect.TypeOf(of).Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "schema" {
				require.Contains(t, text, "`"+name+"`")
			}
		}
	}
}

// A history belongs to a service, an application, a runtime or the installation, and to nothing else.
func TestHistoryIncludesWiderScopes_G7(t *testing.T) {
	dir := t.TempDir()
	kept, err := store.Open(context.Background(), dir)
	require.NoError(t, err)
	noted := func(desk *state.Mailbox, n int, kind, text string) {
		desk.AppendAudit(entities.AuditEntry{At: at(n), Kind: kind, Who: &entities.Who{Name: "bob", Proven: true}, Text: text})
	}
	var service, application, runtime, everything state.Mailbox
	noted(&application, 1, entities.EventPublish, "incarnation 1")
	noted(&application, 2, entities.EventPublish, "incarnation 2")
	noted(&service, 3, entities.EventRelease, "release of v1")
	noted(&everything, 4, entities.EventPause, "everything paused")
	noted(&runtime, 5, leaseKind, "a lease")
	noted(&runtime, 6, entities.EventPause, "runtime edge paused")
	noted(&application, 7, entities.EventPublish, "incarnation 3")
	noted(&service, 8, entities.EventPause, "paused")
	noted(&application, 9, entities.EventPublish, "incarnation 4")
	for _, trail := range []struct {
		id   string
		desk *state.Mailbox
	}{{"service/shop/web", &service}, {"application/shop", &application}, {"runtime/edge", &runtime}, {"installation", &everything}} {
		app, svc := protocol.TrailOf(trail.id)
		require.NoError(t, kept.AppendAudit(t.Context(), app, svc, trail.desk.Audit))
	}
	require.NoError(t, kept.Close())
	s := webStatus("prod CONVERGED v1 v1 succeeded")
	s.Store, s.Channels[0].Runtime = dir, "edge"
	end := service.TrailEnd()
	run := func(line string) (code int, texts []string) {
		code, output := newConsole(t, &fakeAPI{statuses: map[string][]any{
			"service/shop/web": {s, protocol.HistoryAnswer{Last: &end}},
			"application/shop": {protocol.ApplicationStatus{Store: dir}, protocol.HistoryAnswer{}},
		}}).run(t, line)
		for row := range strings.Lines(output) {
			fields := strings.Split(strings.TrimSpace(row), "\t")
			texts = append(texts, fields[len(fields)-1])
		}
		return code, texts
	}
	for line, want := range map[string][]string{
		"history shop/web":                   {"incarnation 2", "release of v1", "everything paused", "runtime edge paused", "incarnation 3", "paused", "incarnation 4"},
		"history shop/web --kind release":    {"release of v1"},
		"history shop":                       {"incarnation 1", "incarnation 2", "incarnation 3", "incarnation 4"},
		"history runtime/edge":               {"a lease", "runtime edge paused"},
		"history --installation":             {"everything paused"},
		"history shop/web --verify":          {"shop/web: 2 lines; verified up to line 2"},
		"history runtime/edge --verify":      {"runtime/edge: 2 lines; consistent, but their end cannot be verified"},
		"history --installation shop":        {"! converge: --installation takes no arguments"},
		"history shop/web --verify --last 3": {"! converge: --verify cannot be combined with --channel, --kind and --last; a history is verified as a whole"},
		"history runtime/Edge":               {`! converge: "Edge" is not a valid name of a runtime; expected lower-case letters, digits and hyphens`},
		"history runtime/edge --kind gossip": {"! converge: --kind gossip: expected one of " + strings.Join(entities.EventKinds(), ", ")},
	} {
		_, output := run(line)
		require.Equal(t, want, output, line)
	}
	removed := fmt.Errorf("service/shop/web: %w", connection.ErrNotFound)
	_, output := newConsole(t, &fakeAPI{statuses: map[string][]any{
		"service/shop/web": {removed}, "application/shop": {protocol.ApplicationStatus{Store: dir}, protocol.HistoryAnswer{}},
	}}).run(t, "history shop/web --store "+dir)
	require.NotContains(t, output, "incarnation 4", "the service was gone")
	require.Contains(t, output, "incarnation 3")
	end.N, end.Hash = 3, "another"
	code, lines := run("history shop/web --verify")
	require.Equal(t, outcome.Error, code)
	require.Equal(t, []string{"shop/web: 2 lines; 1 problem", "line 3 was removed from the end"}, lines)
}

// What an application records of one service is not in the history of another, and hides nothing in it. The lines of each trail keep their
// order, also if the clock of the server was set back.
func TestHistoryMixesNoTrails_G7(t *testing.T) {
	dir := t.TempDir()
	kept, err := store.Open(context.Background(), dir)
	require.NoError(t, err)
	bob := &entities.Who{Name: "bob", Proven: true}
	var web, application state.Mailbox
	noted := func(desk *state.Mailbox, n int, kind, service, text string) {
		desk.AppendAudit(entities.AuditEntry{At: at(n), Kind: kind, Who: bob, Service: service, Text: text})
	}
	noted(&application, 1, entities.EventPublish, "", "incarnation 1")
	noted(&application, 2, entities.EventManage, "web", "shop/web unmanaged")
	noted(&application, 3, entities.EventManage, "api", "shop/api unmanaged")
	noted(&web, 4, entities.EventRelease, "", "release of v1")
	noted(&application, 5, entities.EventManage, "api", "shop/api managed again")
	noted(&application, 6, entities.EventManage, "", "shop unmanaged")
	noted(&web, -9, entities.EventRelease, "", "release of v2")
	noted(&web, -8, entities.EventRelease, "", "release of v3")
	require.NoError(t, kept.AppendAudit(t.Context(), "shop", "web", web.Audit[:2]))
	require.NoError(t, kept.AppendAudit(t.Context(), "shop", "", application.Audit))
	require.NoError(t, kept.Close())
	s := webStatus("prod CONVERGED v1 v1 succeeded")
	s.Store = dir
	for line, want := range map[string][]string{
		"history shop/web": {"incarnation 1", "shop/web unmanaged", "release of v1", "release of v2", "release of v3", "shop unmanaged"},
		"history shop":     {"incarnation 1", "shop/web unmanaged", "shop/api unmanaged", "shop/api managed again", "shop unmanaged"},
	} {
		code, output := newConsole(t, &fakeAPI{statuses: map[string][]any{
			"service/shop/web": {s, protocol.HistoryAnswer{Stored: 2, Entries: web.Audit[2:]}},
			"application/shop": {protocol.ApplicationStatus{Store: dir}, protocol.HistoryAnswer{}},
		}}).run(t, line)
		require.Equal(t, outcome.Done, code)
		var texts []string
		for row := range strings.Lines(output) {
			fields := strings.Split(strings.TrimSpace(row), "\t")
			texts = append(texts, fields[len(fields)-1])
		}
		require.Equal(t, want, texts, line)
	}
}

// leaseKind is a kind that concerns no service.
const leaseKind = "lease"
