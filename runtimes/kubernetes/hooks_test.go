package kubernetes

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// The event of a delivery determines which hooks run.
func TestEventsOfDeliveries_H6(t *testing.T) {
	step := func(d *delivery, version string) *delivery { return nextDelivery(d, version, d != nil) }
	ended := func(d *delivery) *delivery {
		a := &apply{delivery: d}
		a.markDelivered()
		return a.delivery
	}
	v1 := step(nil, "v1")
	require.Equal(t, install, v1.Event)
	require.Same(t, v1, step(v1, "v1"), "tried again")
	require.Equal(t, install, step(v1, "v2").Event, "nothing was installed yet")
	ended(v1)
	v2 := step(v1, "v2")
	require.Equal(t, upgrade, v2.Event)
	back := step(v2, "v1") // v2 failed half way
	require.Equal(t, rollback, back.Event)
	require.Equal(t, upgrade, step(ended(back), "v2").Event)
	v3 := ended(step(ended(back), "v3"))
	require.Equal(t, []string{"v1", "v2", "v3"}, v3.Versions)
	require.Equal(t, rollback, step(v3, "v2").Event)
	require.Empty(t, v3.due([]declared{{}}, phasePre), "an ended delivery runs nothing")
	require.Equal(t, &delivery{Versions: []string{"v3"}, Version: "v3", Event: install, Number: v3.Number + 2}, step(&delivery{Version: "v3", Event: deletion, Number: v3.Number + 1, Installed: true}, "v3"))

	require.Equal(t, &delivery{Versions: []string{"v5"}, Version: "v5", Event: upgrade, Number: 1, Installed: true}, nextDelivery(nil, "v5", true), "the existing objects had no hooks")
	many := v3
	for n := range 30 {
		many = ended(step(many, fmt.Sprintf("w%d", n)))
	}
	require.Len(t, many.Versions, maxDelivered)
}

// hookJob is a Job that is a hook, with its annotations as name: value pairs.
func hookJob(name, when, command string, annotations ...string) string {
	annotations = append(annotations, "converge/hook: '"+when+"'")
	return strings.Replace(jobYAML(command, annotations...), "name: once", "name: "+name, 1)
}

// hooksOf are the lines of an apply's log about hooks.
func hooksOf(lines []string) (reported []string) {
	for _, line := range lines {
		if strings.Contains(line, "hook") {
			reported = append(reported, strings.ReplaceAll(line, "Job ", ""))
		}
	}
	return reported
}

func (d *recordingCluster) uid(kind, name string) types.UID {
	d.Helper()
	live := d.liveObject(kind, name)
	require.NotNil(d, live, name)
	return live.GetUID()
}

// Hooks of an installation run once, those of an upgrade at each, those of a rollback when an earlier version is deployed again: by
// weight, each to its end, before the other objects and after them. Nothing of that is drift, and neither is what their policies
// delete.
func TestHooksRunAsHelmRunsThem_H6(t *testing.T) {
	d := newTestCluster(t).recording()
	at := func(version string) runtimes.Request {
		return d.instance(version, deploymentOf("web:"+version, 1, ""),
			hookJob("last", "post-install,post-upgrade", "/bin/true", "converge/hook-weight: '5'"),
			hookJob("first", "post-install", "/bin/true", "converge/hook-weight: '-5'"),
			hookJob("migrate", "pre-upgrade", "/bin/true", "converge/hook-delete-policy: 'before-hook-creation,hook-succeeded'"),
			hookJob("undo", "pre-rollback", "/bin/true"),
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: seed, annotations: {converge/hook: pre-install, converge/hook-delete-policy: hook-succeeded}}, data: {a: "+version+"}}")
	}
	ns := d.namespace
	v1 := at("v1")
	plan, err := d.Plan(t.Context(), v1)
	require.NoError(t, err)
	planned := map[string]string{}
	for _, c := range plan {
		planned[c.Type+"/"+c.Name] = c.Message
	}
	require.Equal(t, map[string]string{"Deployment/web": "", "Job/last": "runs as hook post-install", "Job/first": "runs as hook post-install", "ConfigMap/seed": "runs as hook pre-install"}, planned)

	require.Equal(t, []string{
		"ran the hook pre-install ConfigMap " + ns + "/seed", "deleted the hook ConfigMap/seed (hook-succeeded)", "created Deployment/web",
		"ran the hook post-install Job " + ns + "/first", "ran the hook post-install Job " + ns + "/last",
	}, d.mustApply(v1))
	d.until(v1, "v1", func(objects []entities.Object) bool { return settled("v1")(objects) && len(objects) == 1 })
	first, last := d.uid("Job", "first"), d.uid("Job", "last")
	require.Nil(t, d.liveObject("Job", "migrate"))
	d.deleteJob("first") // a person cleaned up
	require.Equal(t, []string{"unchanged 1 object"}, d.mustApply(v1))
	require.Len(t, d.observe(v1), 1)
	require.Nil(t, d.liveObject("Job", "first"), "it had run")
	plan, err = d.Plan(t.Context(), v1)
	require.NoError(t, err)
	require.Empty(t, plan)

	v2 := at("v2")
	require.Equal(t, []string{"ran the hook pre-upgrade " + ns + "/migrate", "deleted the hook Job/migrate (hook-succeeded)", "ran the hook post-upgrade " + ns + "/last"}, hooksOf(d.mustApply(v2)))
	require.NotEqual(t, last, d.uid("Job", "last"))
	require.Nil(t, d.liveObject("Job", "first"), "the installation was before")
	require.NotEmpty(t, first)
	d.until(v2, "v2", func(objects []entities.Object) bool { return settled("v2")(objects) && len(objects) == 1 })

	require.Equal(t, []string{"ran the hook pre-rollback " + ns + "/undo"}, hooksOf(d.mustApply(v1)))
	undone, last := d.uid("Job", "undo"), d.uid("Job", "last")
	require.Empty(t, hooksOf(d.mustApply(v1)))
	require.Equal(t, []string{"ran the hook pre-upgrade " + ns + "/migrate", "deleted the hook Job/migrate (hook-succeeded)", "ran the hook post-upgrade " + ns + "/last"}, hooksOf(d.mustApply(v2)), "forward again")
	require.NotEqual(t, last, d.uid("Job", "last"), "another delivery of the same version runs its hooks again")
	require.Equal(t, undone, d.uid("Job", "undo"))
	require.Empty(t, hooksOf(d.mustApply(withPrune(v2))), "hooks are declared, and not pruned")
	require.NotNil(t, d.liveObject("Job", "undo"))
	require.NoError(t, d.Remove(t.Context(), v2))
	d.wait("all hooks to go with the rest", func() bool { return d.liveObject("Job", "undo") == nil && d.liveObject("Job", "last") == nil }, func() any { return nil })
}

// A hook that fails ends the delivery before the objects change; an automatic attempt does not run it again, a retry does, and a
// rollback to the version before runs its own hooks.
func TestFailedHook_H6_H4(t *testing.T) {
	d := newTestCluster(t).recording()
	at := func(version, command, policy string, attempt int, try string) runtimes.Request {
		in := d.instance(version, configOf("settings", version), hookJob("prepare", "pre-upgrade", "/bin/true", "converge/hook-weight: '-1'", "converge/hook-delete-policy: hook-succeeded"),
			hookJob("migrate", "pre-install,pre-upgrade", command, "converge/hook-delete-policy: '"+policy+"'"))
		in.Attempt, in.AttemptID = attempt, try
		return in
	}
	const kept, failed = "before-hook-creation", "before-hook-creation,hook-failed"
	d.mustApply(at("v1", "/bin/true", kept, 1, "a"))
	text := d.mustRefuse(at("v2", "/bin/false", kept, 1, "b"), true)
	require.Contains(t, text, "run the hook pre-upgrade Job "+d.namespace+"/migrate: it failed: Job failed: BackoffLimitExceeded")
	require.Contains(t, text, "(retry runs it again)")
	require.Equal(t, "v1", d.liveObject("ConfigMap", "settings").Object["data"].(map[string]any)["a"])
	require.Nil(t, d.liveObject("Job", "prepare"), "it had succeeded")
	one := d.uid("Job", "migrate")
	v2 := at("v2", "/bin/false", kept, 2, "c")
	require.Contains(t, d.mustRefuse(v2, true), "BackoffLimitExceeded")
	require.Equal(t, one, d.uid("Job", "migrate"), "an automatic attempt")
	d.until(v2, "the hook to be seen as failed", func(objects []entities.Object) bool {
		return len(objects) == 2 && objects[1].Status == entities.ObjectFailed && strings.HasPrefix(objects[1].Message, "hook pre-upgrade failed: ")
	})

	d.mustRefuse(at("v2", "/bin/false", failed, 1, "d"), true)
	require.Nil(t, d.liveObject("Job", "migrate"), "its policy deletes it")
	require.Empty(t, hooksOf(d.mustApply(at("v1", "/bin/true", kept, 1, "e"))), "rolled back: it has no hooks for that")
	d.mustRefuse(at("v2", "/bin/false", failed, 1, "f"), true)
	require.Contains(t, hooksOf(d.mustApply(at("v2", "/bin/true", kept, 1, "g"))), "ran the hook pre-upgrade "+d.namespace+"/migrate")
	require.Equal(t, "v2", d.liveObject("ConfigMap", "settings").Object["data"].(map[string]any)["a"])
}

// A later release replaces a hook that has not succeeded, even if its only policy deletes it at its success: nothing else would.
func TestHookThatDidNotSucceedIsReplaced_H6(t *testing.T) {
	d := newTestCluster(t).recording()
	at := func(version, command string) runtimes.Request {
		in := d.instance(version, configOf("settings", version), hookJob("migrate", "pre-install,pre-upgrade", command, "converge/hook-delete-policy: hook-succeeded"))
		in.Attempt, in.AttemptID = 1, version
		return in
	}
	d.mustRefuse(at("v1", "/bin/false"), true)
	v2 := at("v2", "/bin/true")
	plan, err := d.Plan(t.Context(), v2)
	require.NoError(t, err)
	require.Contains(t, messagesOf(plan), "runs as hook pre-install")
	require.Equal(t, []string{
		"deleted the hook Job/migrate of an earlier delivery: it had not succeeded", "ran the hook pre-install " + d.namespace + "/migrate",
		"deleted the hook Job/migrate (hook-succeeded)",
	}, hooksOf(d.mustApply(v2)))
	require.Nil(t, d.liveObject("Job", "migrate"))
}

// A hook whose policy is hook-failed is deleted when the last attempt times out, since the release fails then. The attempts before it
// continue to wait for the hook.
func TestHookIsDeletedAfterTheLastTimeout_H6(t *testing.T) {
	d := newTestCluster(t).recording()
	at := func(n int, last bool) runtimes.Request {
		in := d.instance("v1", hookJob("migrate", "pre-install", `/bin/sleep", "1h`, "converge/hook-delete-policy: hook-failed"))
		in.Attempt, in.AttemptID, in.LastAttempt = n, fmt.Sprint(n), last
		return in
	}
	d.def.Timing.ApplyTimeout = 5 * time.Second // long enough to get there on a busy machine
	require.Contains(t, d.mustRefuse(at(1, false), false), "wait for Job "+d.namespace+"/migrate")
	require.NotNil(t, d.liveObject("Job", "migrate"))
	require.Contains(t, d.mustRefuse(at(2, true), false), "wait for Job "+d.namespace+"/migrate")
	d.wait("the hook to be deleted", func() bool { return d.liveObject("Job", "migrate") == nil }, func() any { return nil })
}

// A hook does not run twice if the worker is lost while it runs, or after it.
func TestHookRunsOnceAfterALostWorker_H6_F2(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", configOf("settings", "v1"), hookJob("seed", "pre-install", "/bin/true"), hookJob("tell", "post-install", "/bin/true"))
	v1.Attempt, v1.AttemptID = 1, "a"
	lost := func(is func(*http.Request) bool) {
		t.Helper()
		d.injectFault(func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			if is(r) {
				return nil, fmt.Errorf("the worker is lost")
			}
			return send()
		})
		_, err := d.Apply(t.Context(), v1)
		require.ErrorContains(t, err, "the worker is lost")
		d.injectFault(nil)
	}
	dry := func(r *http.Request) bool { return strings.Contains(r.URL.RawQuery, "dryRun") }
	// Before it is noted that the first one ended, then before the second is made.
	notes := 0
	lost(func(r *http.Request) bool {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, inventoryName(v1.Owner)) {
			notes++
		}
		return notes > 0
	})
	seed := d.uid("Job", "seed")
	d.until(v1, "a hook that is not recorded", func(objects []entities.Object) bool {
		return len(objects) == 3 && objects[1].Status == entities.ObjectPending
	})
	lost(func(r *http.Request) bool {
		return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/jobs/tell") && !dry(r)
	})
	require.Equal(t, seed, d.uid("Job", "seed"))
	d.until(v1, "the second to be waited for", func(objects []entities.Object) bool {
		return len(objects) == 2 && objects[1].Message == "hook post-install has not run yet" && objects[1].Status == entities.ObjectPending
	})
	require.Equal(t, []string{"ran the hook post-install " + d.namespace + "/tell"}, hooksOf(d.mustApply(v1)))
	require.Equal(t, seed, d.uid("Job", "seed"))
	require.Len(t, d.observe(v1), 1)
}

// A hook that may not be deleted before it is made again is refused before anything changes, as is one that the server refuses.
func TestHookThatCannotRunChangesNothing_H6(t *testing.T) {
	d := newTestCluster(t).recording()
	at := func(version, command string) runtimes.Request {
		return d.instance(version, configOf("settings", version), hookJob("migrate", "post-install,post-upgrade", command, "converge/hook-delete-policy: hook-failed"))
	}
	d.mustApply(at("v1", "/bin/true"))
	require.Contains(t, d.mustRefuse(at("v2", "/bin/true"), true), "run the hook post-upgrade Job "+d.namespace+"/migrate: it already exists, and its policy is hook-failed (add before-hook-creation to it, or delete the object)")
	d.deleteJob("migrate")
	bad := at("v2", "/bin/true")
	bad.Payload.Kubernetes.Objects[1] = []byte(strings.Replace(string(bad.Payload.Kubernetes.Objects[1]), `"Never"`, `"Always"`, 1))
	require.Contains(t, d.mustRefuse(bad, true), "restartPolicy")
	require.Equal(t, "v1", d.liveObject("ConfigMap", "settings").Object["data"].(map[string]any)["a"])
	d.mustApply(at("v2", "/bin/true"))
}
