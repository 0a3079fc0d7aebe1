package security

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"github.com/converge-engine/converge/client/origin"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
)

// shop is a channel of commands that write down what they are given, and one in memory with an approval of its own; a service,
// WEB, whose name is for the test, and one that waits for it.
const shop = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: test, runtimes: [{name: APP-sh}]}
- {name: production, runtimes: [{name: APP-rt}], preconditions: [{manualApproval: {}}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
---
apiVersion: converge/v1
kind: Runtime
name: APP-sh
custom: {apply: {command: [sh, -c, 'echo "$PVN_SERVICE $PVN_SERVICE_ID $PVN_RELEASE_CHANNEL $PVN_SERVICE_VERSION" >>DIR/log']}}
---
apiVersion: converge/v1
kind: Service
WEB
custom: {env: {VERSION: "${{ version }}"}}
`

const waits = `---
apiVersion: converge/v1
kind: Service
name: api
releaseChannels: [production]
dependencies: [{service: WEB, rule: stable}]
custom: {env: {VERSION: "${{ version }}"}}
`

// calls writes a configuration in which the service is called so, and is waited for by that name.
func calls(w *stage.World, name string) {
	w.T.Helper()
	called, _, _ := strings.Cut(name, ",")
	w.Write(strings.NewReplacer("DIR", w.Dir, "WEB", strings.ReplaceAll("name: "+name, ", ", "\n")).Replace(shop) + strings.ReplaceAll(waits, "WEB", called))
}

// ask publishes as somebody does, and returns what is said.
func ask(w *stage.World) (publish.Result, error) {
	w.T.Helper()
	return publish.Publish(w.T.Context(), publish.Options{Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "mallory", Fake: true})
}

// program runs the program, and returns all that it says.
func program(w *stage.World, arguments ...string) (string, error) {
	w.T.Helper()
	out, err := exec.CommandContext(w.T.Context(), shared.Converge(w.T), append(arguments, "--address", w.Address)...).CombinedOutput()
	return string(out), err
}

func says(w *stage.World, arguments ...string) string {
	w.T.Helper()
	out, err := program(w, arguments...)
	require.NoError(w.T, err, "%v: %s", arguments, out)
	return out
}

// unknown tells that there is no workflow of a service by that name, and never was.
func unknown(w *stage.World, name string) {
	w.T.Helper()
	_, err := w.Client.DescribeWorkflowExecution(w.T.Context(), w.ID(name), "")
	require.ErrorAs(w.T, err, new(*serviceerror.NotFound))
}

// A service that is called otherwise stays what it is: the same workflow, with its pin, its pause, its approvals and its trail,
// nothing is applied or started for it, and commands get the id that they had. People use the new name, which the workflow's id does not have.
func TestAnotherNameOfAServiceAppliesNothing_G2(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	calls(w, "web")
	w.Publish()
	w.Release("web", "v1")
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
	w.Await("web", "test CONVERGED v1, production CONVERGED v1")
	w.Act("web", protocol.Pin, `{"by":"bob","channel":"production","version":"v1","reason":"audit"}`)
	w.Act("web", protocol.Pause, `{"by":"bob","channel":"test","reason":"tests"}`)
	production := w.Fake.At(w.App, "web", "production")
	require.Equal(t, 1, production.Applies())
	before, err := w.Client.DescribeWorkflowExecution(t.Context(), w.ID("web"), "")
	require.NoError(t, err)

	calls(w, "frontend, renamedFrom: web")
	result := w.Publish()
	require.Empty(t, result.Removed)
	require.Equal(t, []string{"api", "frontend"}, result.Changed)
	require.Empty(t, result.Loosened, "api waits for the same service")
	s := w.AwaitThat("web", "the new name", func(s protocol.Status) bool { return s.Incarnation == 2 })
	require.Equal(t, []string{"frontend", "web"}, []string{s.Service, s.Key})
	require.Equal(t, "test PAUSED v1, production CONVERGED v1", stage.Channels(s))
	require.Len(t, s.Pins, 1)
	require.Len(t, s.Pauses, 1)
	require.Len(t, s.Releases, 1, "nothing was released for it")
	require.Contains(t, trail(t, w), "web is called frontend from incarnation 2 on")
	unknown(w, "frontend")
	after, err := w.Client.DescribeWorkflowExecution(t.Context(), w.ID("web"), "")
	require.NoError(t, err)
	require.Equal(t, before.WorkflowExecutionInfo.Execution.RunId, after.WorkflowExecutionInfo.Execution.RunId)

	name := w.App + "/frontend"
	says(w, "channel", "unpin", name, "production")
	w.Signal("web", protocol.Resume, `{"by":"bob","channel":"test"}`) // by the workflow's id, which is as it was
	w.Await("web", "test CONVERGED v1, production CONVERGED v1")
	require.Contains(t, says(w, "explain", name), name)
	require.Contains(t, says(w, "status", w.App), "frontend")
	require.Contains(t, says(w, "explain", w.App+"/web"), w.App+"/web was renamed to "+name)
	require.Equal(t, []string{"web " + w.App + ".web test v1"}, applied(w))
	require.Equal(t, 1, production.Applies())

	says(w, "release", name, "v2")
	w.Await("web", "test CONVERGED v2, production WAITING_MANUAL_APPROVAL v1")
	require.Contains(t, says(w, "explain", name), "converge approve "+name+" v2 production")
	says(w, "approve", name, "v2", "production")
	w.Await("web", "test CONVERGED v2, production CONVERGED v2")
	require.Equal(t, 2, production.Applies())
	require.Equal(t, "web "+w.App+".web test v2", applied(w)[1], "commands know the service by its first name")
	says(w, "pause", name, "--channel", "production", "--reason", "drill")
	w.Await("web", "test CONVERGED v2, production PAUSED v2")
	says(w, "resume", name, "--channel", "production")

	history := says(w, "history", name)
	require.Contains(t, history, "approved production")
	require.Contains(t, history, "web is called frontend from incarnation 2 on")
	require.Contains(t, says(w, "history", name, "--verify"), "verified up to line")
	require.Contains(t, says(w, "logs", name, "test"), "apply v2")
	require.Contains(t, says(w, "config", "diff", w.App, "1", "2"), "~ name  web → frontend")
	said, err := program(w, "status", w.App+"/web2")
	require.Error(t, err, said)
	require.Contains(t, said, name, "what there is has the names that people use")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		d, err := w.Client.DescribeWorkflowExecution(t.Context(), w.ID("web"), "")
		require.NoError(t, err)
		shown := string(d.WorkflowExecutionInfo.SearchAttributes.IndexedFields[protocol.AttrService].GetData())
		return shown == `"frontend"`, shown
	})

	says(w, "config", "unmanage", name, "--reason", "drill")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		said, _ := program(w, "status", name)
		return strings.Contains(said, "UNMANAGED") && strings.Contains(said, "frontend"), said
	})
	says(w, "config", "manage", name)
	w.AwaitThat("web", "it to be back", func(s protocol.Status) bool {
		return s.Service == "frontend" && stage.Channels(s) == "test CONVERGED v2, production CONVERGED v2"
	})
	require.Equal(t, 2, production.Applies())
	unknown(w, "frontend")

	calls(w, "ui, renamedFrom: frontend")
	w.Publish()
	w.AwaitThat("web", "a third name", func(s protocol.Status) bool { return s.Service == "ui" && s.Key == "web" })
	says(w, "release", w.App+"/ui", "v3")
	w.Await("web", "test CONVERGED v3, production WAITING_MANUAL_APPROVAL v2")
	require.Equal(t, "web "+w.App+".web test v3", applied(w)[2])
}

// A service of which a release is on its way keeps its name, and so it does where the release comes just after it was asked.
func TestAReleaseOnItsWayKeepsTheNameOfItsService_G2(t *testing.T) {
	t.Parallel()
	w := shared.World(t)
	calls(w, "web")
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "test CONVERGED v1, production WAITING_MANUAL_APPROVAL")
	calls(w, "frontend, renamedFrom: web")
	_, err := ask(w)
	require.True(t, errors.Is(err, publish.ErrRefused), "%v", err)
	require.ErrorContains(t, err, "web is renamed to frontend once none of its releases is in progress: v1 is pending in production")

	w.Act("web", protocol.Cancel, `{"by":"alice","version":"v1"}`)
	_, err = publish.Publish(t.Context(), publish.Options{
		Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "mallory", Fake: true,
		Before: func(publish.Result) error { w.Release("web", "v2"); return nil },
	})
	require.NoError(t, err)
	s := w.AwaitThat("web", "the incarnation to wait", func(s protocol.Status) bool {
		return slices.ContainsFunc(s.Notes, func(n string) bool {
			return strings.HasPrefix(n, "incarnation 2 waits: web is renamed to frontend once")
		})
	})
	require.Equal(t, "web", s.Service)
	w.Await("web", "test CONVERGED v2, production WAITING_MANUAL_APPROVAL")
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v2","topic":"production"}`)
	s = w.AwaitThat("web", "the new name", func(s protocol.Status) bool { return s.Service == "frontend" })
	require.Equal(t, "test CONVERGED v2, production CONVERGED v2", stage.Channels(s))
	unknown(w, "frontend")
}

// calledOtherwise is a world in which web is at v1 everywhere, and is called frontend by now.
func calledOtherwise(t *testing.T) *stage.World {
	t.Helper()
	w := shared.World(t)
	calls(w, "web")
	w.Publish()
	w.Release("web", "v1")
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
	w.Await("web", "test CONVERGED v1, production CONVERGED v1")
	calls(w, "frontend, renamedFrom: web")
	w.Publish()
	w.AwaitThat("web", "the new name", func(s protocol.Status) bool { return s.Service == "frontend" })
	return w
}

// The first name of a service belongs to it: nobody new may bear it, and who publishes without knowing of other names is
// refused, or there would be two that apply.
func TestAFirstNameBelongsToItsService_G2(t *testing.T) {
	t.Parallel()
	w := calledOtherwise(t)

	unaware := publishUnaware(w)
	var answer protocol.PublishAnswer
	err := w.Update(protocol.ApplicationID(w.App), protocol.Publish, unaware, &answer)
	require.ErrorContains(t, err, w.App+"/frontend is the current name of the service web, and this publication declares it as a new one")
	require.NoError(t, w.Client.SignalWorkflow(t.Context(), protocol.ApplicationID(w.App), "", protocol.Publish, unaware))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		status, err := publish.Status(t.Context(), w.Client, w.App)
		require.NoError(t, err)
		return len(status.Refused) > 0 && status.Newest == 2, status.Problem
	})
	unknown(w, "frontend")

	both := strings.NewReplacer("DIR", w.Dir, "WEB", "name: frontend").Replace(shop) + strings.ReplaceAll(stage.Web, "greeting", "other")
	w.Write(both)
	_, err = ask(w)
	require.True(t, errors.Is(err, publish.ErrRefused), "%v", err)
	require.ErrorContains(t, err, "services frontend and web would have the same identity, because one of them was first named web; choose another name for the new one")

	w.Write(strings.NewReplacer("DIR", w.Dir, "WEB", "name: api2").Replace(shop)) // no longer declared
	w.Publish()
	w.AwaitThat("web", "what is left", func(s protocol.Status) bool { return s.Channels[0].Status == "ORPHANED" && s.Service == "frontend" })
	calls(w, "frontend") // and it is the same once it is declared again
	w.Publish()
	s := w.AwaitThat("web", "it to be back", func(s protocol.Status) bool { return s.Channels[0].Status == "CONVERGED" })
	require.Equal(t, "frontend", s.Service)
	unknown(w, "frontend")
	require.Equal(t, 1, w.Fake.At(w.App, "web", "production").Applies())
}

// publishUnaware puts into the store what a client would that knows of no other names, and returns what it would send.
func publishUnaware(w *stage.World) protocol.PublishRequest {
	w.T.Helper()
	ctx := w.T.Context()
	at, err := store.Open(ctx, w.Store)
	require.NoError(w.T, err)
	defer at.Close()
	calls(w, "frontend")
	known, err := at.Runtimes(ctx)
	require.NoError(w.T, err)
	loaded, err := compile.LoadWith(w.Dir, config.Options{Runtimes: known, AllowFake: true})
	require.NoError(w.T, err)
	compiled, err := compile.Compile(loaded)
	require.NoError(w.T, err)
	specs, err := compiled.Specs()
	require.NoError(w.T, err)
	for _, spec := range specs {
		_, err := at.PutSpec(ctx, spec)
		require.NoError(w.T, err)
	}
	_, err = at.PutIncarnation(ctx, compiled.Incarnation)
	require.NoError(w.T, err)
	manifest := incarnation.ManifestOf(specs)
	_, err = at.PutManifest(ctx, manifest)
	require.NoError(w.T, err)
	return protocol.PublishRequest{
		RequestMeta: protocol.RequestMeta{By: "mallory"}, Hash: compiled.Incarnation.Hash(), Manifest: manifest.Digest(), Services: len(specs),
		Store: w.Store, Origin: origin.Of(ctx, w.Dir),
	}
}

// The id that commands get is minted once: it is the same under another name, from another directory, on another runtime.
func TestTheServiceIDIsKept_G2(t *testing.T) {
	t.Parallel()
	w := shared.World(t)
	on := func(dir, name, runtime string) {
		text := strings.NewReplacer("DIR", w.Dir, "WEB", strings.ReplaceAll("name: "+name, ", ", "\n"), "[{name: APP-sh}]", runtime).Replace(shop) +
			strings.NewReplacer("DIR", w.Dir, "APP-sh", "APP-other").Replace("---\n"+strings.Split(shop, "---\n")[2])
		require.NoError(t, os.WriteFile(filepath.Join(dir, "converge.yaml"), []byte(strings.ReplaceAll(text, "APP", w.App)), 0o600))
	}
	on(w.Dir, "web", "[{name: APP-sh}]")
	w.Publish()
	w.Release("web", "v1")
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
	w.Await("web", "test CONVERGED v1, production CONVERGED v1")
	on(w.Dir, "frontend, renamedFrom: web", "[{name: APP-sh}]")
	w.Publish()
	w.AwaitThat("web", "the new name", func(s protocol.Status) bool { return s.Service == "frontend" })

	elsewhere := t.TempDir()
	on(elsewhere, "frontend", "[{name: APP-sh}]")
	_, err := publish.Publish(t.Context(), publish.Options{
		Client: w.Client, Dir: elsewhere, StoreURL: w.Store, By: "test", Fake: true, TakeOver: true,
	})
	require.NoError(t, err)
	w.Release("web", "v2")
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v2","topic":"production"}`)
	w.Await("web", "test CONVERGED v2, production CONVERGED v2")
	on(elsewhere, "frontend", "[{name: APP-other, movedFrom: {runtime: APP-sh}}]")
	_, err = publish.Publish(t.Context(), publish.Options{Client: w.Client, Dir: elsewhere, StoreURL: w.Store, By: "test", Fake: true})
	require.NoError(t, err)
	s := w.AwaitThat("web", "it on the other runtime", func(s protocol.Status) bool { return s.Channels[0].Runtime == w.App+"-other" })
	require.Equal(t, "frontend", s.Service)
	id := "web " + w.App + ".web test "
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		lines := applied(w)
		return len(lines) == 3 && lines[0] == id+"v1" && lines[1] == id+"v2" && strings.HasPrefix(lines[2], id+"v2-i"), strings.Join(lines, "; ")
	})
	require.Equal(t, 2, w.Fake.At(w.App, "web", "production").Applies())
	unknown(w, "frontend")
}

// A new name is no way to drop a gate unseen: what is asked for less is listed across it.
func TestAnotherNameOfAServiceListsWhatItDrops_G2(t *testing.T) {
	t.Parallel()
	w := shared.World(t)
	calls(w, "web")
	w.Publish()
	w.Write(strings.NewReplacer("DIR", w.Dir, "WEB", "name: frontend\nrenamedFrom: web", ", preconditions: [{manualApproval: {}}]", "").Replace(shop) +
		strings.ReplaceAll(waits, "WEB", "frontend"))
	result := w.Publish()
	require.True(t, slices.ContainsFunc(result.Loosened, func(l publish.Loosened) bool {
		return slices.Contains(l.Services, "frontend") && l.Channel == "production" && strings.Contains(l.Text, "approval")
	}), "%v", result.Loosened)
}

// What waits for a service waits for it by its new name.
func TestOthersWaitForAServiceByItsNewName_G2(t *testing.T) {
	t.Parallel()
	w := calledOtherwise(t)
	instance := w.Fake.At(w.App, "web", "production")
	goOn := instance.HangApplies()
	w.Release("web", "v2")
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v2","topic":"production"}`)
	require.NoError(t, w.Fake.Await(t.Context(), instance.Applying))
	w.Release("api", "v1")
	w.AwaitThat("api", "a wait", func(s protocol.Status) bool {
		return slices.ContainsFunc(s.Channels[0].Conditions, func(c protocol.ConditionStatus) bool {
			return c.ID == "service-stable/frontend" && c.Verdict == string(entities.Wait) && c.Reason == "frontend in production is CONVERGING"
		})
	})
	goOn()
	w.AwaitThat("api", "it to pass", func(s protocol.Status) bool {
		return slices.ContainsFunc(s.Channels[0].Conditions, func(c protocol.ConditionStatus) bool {
			return c.ID == "service-stable/frontend" && c.Verdict == string(entities.Pass)
		})
	})
}

// An installation that moves to another server and another store takes the ids along, and the names that people use.
func TestTheServiceIDMovesWithTheInstallation(t *testing.T) {
	t.Parallel()
	old := shared.OwnServer(t, 0)
	calls(old, "web")
	old.Publish()
	old.Release("web", "v1")
	old.Await("web", "test CONVERGED v1, production WAITING_MANUAL_APPROVAL")
	old.Act("web", protocol.Cancel, `{"by":"alice","version":"v1"}`)
	calls(old, "frontend, renamedFrom: web")
	old.Publish()
	old.AwaitThat("web", "the new name", func(s protocol.Status) bool { return s.Service == "frontend" })
	archive := filepath.Join(t.TempDir(), "archive.tar.gz")
	says(old, "admin", "export", "--from", "dev", "--yes", "--store", old.Store, archive)

	w := shared.Unserved(t, embedded.Options{})
	w.App, w.Dir, w.Fake = old.App, old.Dir, old.Fake
	says(w, "admin", "import", "--store", w.Store, archive)
	w.StartWorkerAs(worker.Options{})
	w.AwaitThat("web", "it in its new place", func(s protocol.Status) bool { return s.Service == "frontend" && s.Key == "web" })
	require.True(t, w.Publish().Unchanged)
	says(w, "release", w.App+"/frontend", "v2")
	w.Await("web", "test CONVERGED v2, production WAITING_MANUAL_APPROVAL")
	require.Equal(t, []string{"web " + w.App + ".web test v1", "web " + w.App + ".web test v2"}, applied(w))
	unknown(w, "frontend")
}
