package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// aspected is a service with an aspect.
const aspected = stage.Web + "aspects: {words: [greeting]}\n"

// words is the full version of what was released with a greeting.
func words(version, greeting string) string {
	return version + "-" + entities.ValuesName("words", map[string]any{"greeting": greeting}, nil)
}

// say releases a greeting by itself, and returns what it is called.
func (w *world) say(greeting string) string {
	w.T.Helper()
	var answer protocol.ReleaseAnswer
	require.NoError(w.T, w.Update(w.ID("web"), protocol.Release, protocol.ReleaseRequest{
		RequestMeta: protocol.RequestMeta{By: "test"}, Aspect: "words", Parameters: map[string]any{"greeting": greeting},
	}, &answer))
	return answer.Version
}

// A greeting reaches production while a version waits for people there, and a version does while a greeting waits. Each instance keeps
// what the other brought, one apply at a time. The other way round, two greetings queue.
func TestAspectsPassEachOther_B5(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(approved + aspected)
	w.Publish()
	w.Release("web", "v1")
	w.Act("web", protocol.Approve, `{"version":"v1","topic":"go-live","by":"alice"}`)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")

	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production WAITING_MANUAL_APPROVAL v1")
	bye := w.say("bye")
	w.AwaitThat("web", "the greeting in staging", func(s protocol.Status) bool { return s.Releases[0].Phases["staging"] == "succeeded" })
	w.Act("web", protocol.Approve, fmt.Sprintf(`{"version":%q,"topic":"go-live","by":"alice"}`, bye))
	w.Await("web", "staging CONVERGED "+words("v2", "bye")+", production WAITING_MANUAL_APPROVAL "+words("v1", "bye"))

	hi := w.say("hi")
	w.AwaitThat("web", "the other greeting in staging", func(s protocol.Status) bool { return s.Releases[0].Phases["staging"] == "succeeded" })
	w.Act("web", protocol.Approve, `{"version":"v2","topic":"go-live","by":"alice"}`)
	w.Await("web", "staging CONVERGED "+words("v2", "hi")+", production WAITING_MANUAL_APPROVAL "+words("v2", "bye"))
	w.Act("web", protocol.Approve, fmt.Sprintf(`{"version":%q,"topic":"go-live","by":"alice"}`, hi))
	w.Await("web", "staging CONVERGED "+words("v2", "hi")+", production CONVERGED "+words("v2", "hi"))
	require.Equal(t, []string{"v1", words("v1", "bye"), words("v2", "bye"), words("v2", "hi")}, versions(w, "production"))
	require.Equal(t, []string{"v1", "v2", words("v2", "bye"), words("v2", "hi")}, versions(w, "staging"))

	refused := func(r protocol.ReleaseRequest, want string) {
		t.Helper()
		r.By = "test"
		require.ErrorContains(t, w.Update(w.ID("web"), protocol.Release, r, &protocol.ReleaseAnswer{}), want)
	}
	refused(protocol.ReleaseRequest{Version: "v3", Parameters: map[string]any{"greeting": "hey"}}, "belongs to aspect words, which has releases of its own")
	refused(protocol.ReleaseRequest{Aspect: "colours", Parameters: map[string]any{"greeting": "hey"}}, `has no aspect "colours"; expected one of words`)
	refused(protocol.ReleaseRequest{Aspect: "words", Version: "v3", Parameters: map[string]any{"greeting": "hey"}}, "keeps the version of each instance; omit the version")
	refused(protocol.ReleaseRequest{Aspect: "words"}, "requires values")
	refused(protocol.ReleaseRequest{Version: hi}, "names values of an aspect")
	refused(protocol.ReleaseRequest{Version: words("v2", "hi")}, "names values of an aspect")
}

// An apply of a greeting hangs: a version that was released meanwhile waits, and so does another greeting.
func TestOneChangeAtATime_B5_F5(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + aspected)
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	letGo := w.Fake.At(w.App, "web", "staging").HangApplies()
	bye := w.say("bye")
	w.Await("web", "staging CONVERGING "+words("v1", "bye")+", production WAITING_PRECONDITIONS v1")
	w.Release("web", "v2")
	require.Contains(t, w.explain("web"), bye+" is in progress here")
	letGo()
	w.Await("web", "staging CONVERGED "+words("v2", "bye")+", production CONVERGED "+words("v2", "bye"))
	require.Equal(t, []string{"v1", words("v1", "bye"), words("v2", "bye")}, versions(w, "staging"))
	require.Empty(t, w.Fake.Overlaps())
}

// With commands of one's own, and programs that are killed in between: what is bad of one aspect is taken back alone, and what runs has
// the newest good values of each.
func TestAspectsWithCommands_B5_A22_F1(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs and runs real processes; not with -short")
	}
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), mode))
	}
	write("run", "#!/bin/sh\n[ \"$FLAG\" != broken ] || exit 1\n[ \"$IMAGE\" != web:bad ] || exit 1\necho \"$IMAGE $FLAG\" >>\"$PVN_RELEASE_CHANNEL\"\n", 0o700)
	write("shop.converge.yaml", `apiVersion: converge/v1
kind: Application
name: shop
releaseChannels:
- {name: staging, runtimes: [{name: local}]}
- name: prod
  runtimes: [{name: local}]
  preconditions: [{releaseChannelStable: {releaseChannel: staging}}, {sharedManualApproval: {name: go-live}}]
---
apiVersion: converge/v1
kind: Runtime
name: local
custom: {apply: {command: [./run], retryableExitCodes: [75]}}
---
apiVersion: converge/v1
kind: Service
name: web
parameters:
- {name: flagSet, type: string, default: plain}
aspects: {flags: [flagSet]}
custom: {env: {IMAGE: "web:${{ version }}", FLAG: "${{ params.flagSet }}"}}
`, 0o600)
	d := shared.Dev(t, dir)
	run := func(want int, args ...string) string {
		t.Helper()
		out, code := d.Converge(args...)
		require.Equal(t, want, code, out)
		return out
	}
	applied := func(channel string) []string {
		text, err := os.ReadFile(filepath.Join(dir, channel))
		require.NoError(t, err)
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	name := func(flag string) string { return entities.ValuesName("flags", map[string]any{"flagSet": flag}, nil) }
	at := func(version, flag string) string { return version + "-" + name(flag) }
	d.Start()
	d.Await("shop/web", "staging CONVERGED, prod CONVERGED")
	run(0, "release", "shop/web", "v1")
	d.Await("shop/web", "staging CONVERGED v1, prod WAITING_MANUAL_APPROVAL")
	run(0, "approve", "shop/web", "v1", "go-live")
	d.Await("shop/web", "staging CONVERGED v1, prod CONVERGED v1")
	run(8, "release", "shop/web", "v2", "--wait", "--stop-at-approval")
	out := run(8, "release", "shop/web", "--aspect", "flags", "flagSet=dark", "--wait", "--stop-at-approval")
	require.Contains(t, out, "web "+name("dark"))
	require.Contains(t, run(0, "status", "shop/web"), at("v2", "dark"))
	d.Kill()
	d.Start()
	d.Await("shop/web", "staging CONVERGED "+at("v2", "dark")+", prod WAITING_MANUAL_APPROVAL v1")
	run(0, "approve", "shop/web", name("dark"), "go-live")
	d.Await("shop/web", "staging CONVERGED "+at("v2", "dark")+", prod WAITING_MANUAL_APPROVAL "+at("v1", "dark"))
	require.Equal(t, []string{"web:v1 plain", "web:v1 dark"}, applied("prod"))
	require.Contains(t, run(0, "history", "shop/web"), name("dark")+" (flagSet=dark)")

	run(2, "release", "shop/web", "--aspect", "flags", "flagSet=broken", "--wait")
	d.Await("shop/web", "staging ROLLED_BACK "+at("v2", "dark")+", prod WAITING_MANUAL_APPROVAL "+at("v1", "dark"))
	run(2, "release", "shop/web", "bad", "--wait")
	d.Await("shop/web", "staging ROLLED_BACK "+at("v2", "dark")+", prod WAITING_MANUAL_APPROVAL "+at("v1", "dark"))
	d.Kill()
	d.Start()
	d.Await("shop/web", "staging ROLLED_BACK "+at("v2", "dark")+", prod WAITING_MANUAL_APPROVAL "+at("v1", "dark"))
	run(0, "approve", "shop/web", "v2", "go-live")
	d.Await("shop/web", "staging ROLLED_BACK "+at("v2", "dark")+", prod BLOCKED "+at("v2", "dark")) // by what failed in staging
	require.Equal(t, "web:v2 dark", applied("prod")[len(applied("prod"))-1])
	require.Equal(t, "web:v2 dark", applied("staging")[len(applied("staging"))-1])
	_, code := d.Converge("release", "shop/web", "v3", "-p", "flagSet=light")
	require.Equal(t, 1, code)
}

// A person takes a version back on top of which a greeting came: the greeting stays, with what was good before. So it is the other way
// round, and of neither is anything applied that was taken back.
func TestTakenBackFromBelow_B5_A22(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + aspected)
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	bye := w.say("bye")
	w.Await("web", "staging CONVERGED "+words("v2", "bye")+", production CONVERGED "+words("v2", "bye"))
	w.Act("web", protocol.Rollback, `{"version":"v2","by":"alice"}`)
	w.Await("web", "staging ROLLED_BACK "+words("v1", "bye")+", production ROLLED_BACK "+words("v1", "bye"))
	require.Equal(t, []string{"v1", "v2", words("v2", "bye"), words("v1", "bye")}, versions(w, "production"))
	w.Release("web", "v3")
	w.Await("web", "staging CONVERGED "+words("v3", "bye")+", production CONVERGED "+words("v3", "bye"))
	w.Act("web", protocol.Rollback, fmt.Sprintf(`{"version":%q,"by":"alice"}`, bye))
	w.Await("web", "staging ROLLED_BACK v3, production ROLLED_BACK v3")
}

// A person takes back a version while a greeting goes through the fleet: what is gone back to knows no greeting. The greeting leaves it out
// there, says so, and is not rendered again and again.
func TestUnsupportedPartsAreOmitted_B5_D23(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := strings.Replace(fleet("rollout: {steps: [{instances: 1}]}", "a", "b", "c"), stage.Web, `---
apiVersion: converge/v1
kind: Service
name: web
configChanges: hold
custom: {env: {VERSION: "${{ version }}"}}
`, 1)
	w.Write(text)
	w.Publish()
	w.Release("web", "v1")
	w.awaitInstances("a CONVERGED v1, b CONVERGED v1, c CONVERGED v1")
	w.Write(strings.Replace(text, `{VERSION: "${{ version }}"}}`, `{GREETING: "${{ params.greeting }}", VERSION: "${{ version }}"}}
parameters: [{name: greeting, type: string, default: hello}]
aspects: {words: [greeting]}`, 1))
	w.Publish()
	w.Release("web", "v2")
	w.awaitInstances("a CONVERGED v2, b CONVERGED v2, c CONVERGED v2")
	letGo := w.inFleet("a").HangApplies()
	bye := words("v2", "bye")
	w.say("bye")
	w.awaitInstances("a CONVERGING " + bye + ", b CONVERGED v2, c CONVERGED v2")
	require.Contains(t, w.Act("web", protocol.Rollback, `{"version":"v2","by":"alice"}`), "skipped: production/"+w.App+"-a ("+bye+" was applied on top of it")
	w.awaitInstances("a CONVERGING " + bye + ", b ROLLED_BACK v1, c ROLLED_BACK v1")
	letGo()
	w.AwaitThat("web", "the greeting where it can be", func(s protocol.Status) bool { return s.Releases[0].Phases["production"] == "succeeded" })
	w.awaitInstances("a CONVERGED " + bye + ", b ROLLED_BACK v1, c ROLLED_BACK v1")
	var out []string
	for _, line := range w.Status("web").Journal {
		if _, why, left := strings.Cut(line.Text, "skips production/"+w.App+"-"); left {
			out = append(out, why)
		}
	}
	slices.Sort(out)
	why := ": cannot be rendered under the current version v1: its configuration does not accept all values of words." + strings.Split(bye, ".")[1]
	require.Equal(t, []string{"b" + why, "c" + why}, out)
}

// A version waits between two steps for an hour. A bad greeting that passes it goes back alone, a good one reaches the whole fleet; and when the
// version is bad at the next instance it goes back alone, and the greeting stays, each instance at what was rendered for it.
func TestValuesPassAVersion_B5_D23_A22(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.Retire("web") })
	in := func(rollout string) string {
		return fleet(rollout, "a", "b", "c") + "aspects: {words: [greeting]}\n"
	}
	atOnce, waits := in("autoRollback: true"), in("rollout: {steps: [{instances: 1}, {pause: 1h}]}")
	w.Write(atOnce)
	w.Publish()
	w.Release("web", "v1")
	w.awaitInstances("a CONVERGED v1, b CONVERGED v1, c CONVERGED v1")
	w.Write(waits)
	w.Publish()
	w.Release("web", "v2")
	w.awaitInstances("a CONVERGED v2, b CONVERGED v1, c CONVERGED v1")

	w.inFleet("a").Break(words("v2", "bad"), "bad words")
	bad := w.say("bad")
	w.AwaitThat("web", "the bad greeting is taken back", func(s protocol.Status) bool { return phaseOf(s, bad) == "rolled back" })
	w.awaitInstances("a CONVERGED v2, b CONVERGED v1, c CONVERGED v1")

	bye := w.say("bye")
	w.awaitSaid("v2 continues afterwards: " + bye + " enters between two of its steps")
	w.awaitInstances("a CONVERGED " + words("v2", "bye") + ", b CONVERGED v1, c CONVERGED v1")
	require.ErrorContains(t, w.Update(w.ID("web"), protocol.Cancel, protocol.CancelRequest{RequestMeta: protocol.RequestMeta{By: "test"}, Version: "v2"}, nil), bye+" enters between two of its steps")

	w.inFleet("c").Break(words("v2", "bye"), "no memory")
	w.Write(atOnce) // what is left of each is one step
	w.Publish()
	s := w.AwaitThat("web", "the version is taken back", func(s protocol.Status) bool { return phaseOf(s, "v2") == "rolled back" })
	require.Equal(t, "succeeded", phaseOf(s, bye))
	back := words("v1", "bye")
	w.awaitInstances("a ROLLED_BACK " + back + ", b ROLLED_BACK " + back + ", c ROLLED_BACK " + back)
	require.Empty(t, w.Fake.Overlaps())
}

// phaseOf is how far a release is in the only channel.
func phaseOf(s protocol.Status, version string) string {
	n := slices.IndexFunc(s.Releases, func(r protocol.ReleaseStatus) bool { return r.Version == version })
	return s.Releases[n].Phases["production"]
}
