package kubernetes

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/runtimes"
)

// removalOf is a request for the removal of an instance, by one attempt.
func removalOf(in runtimes.Request, attempt string) runtimes.Request {
	in.AttemptID, in.Attempt = attempt, 0
	return in
}

// Deletion hooks run before the first object is removed and after the last one, each once, and nothing of the instance stays. A plan of the
// removal names them.
func TestDeletionHooksRunAroundARemoval_H6_A24(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", configOf("settings", "v1"),
		hookJob("backup", "pre-delete", "/bin/true", "converge/hook-weight: '-1'", "converge/hook-delete-policy: hook-succeeded"),
		hookJob("deregister", "pre-delete", "/bin/true"),
		hookJob("sweep", "post-delete", "/bin/true"))
	require.Equal(t, []string{"created ConfigMap/settings"}, d.mustApply(v1))
	require.Len(t, d.observe(v1), 1, "they are not missing")

	plan, err := d.PlanRemoval(t.Context(), v1)
	require.NoError(t, err)
	var planned []string
	for _, c := range plan {
		planned = append(planned, fmt.Sprintf("%s %s/%s %s", c.Action, c.Type, c.Name, c.Message))
	}
	require.Equal(t, []string{"create Job/backup runs as hook pre-delete", "create Job/deregister runs as hook pre-delete", "remove ConfigMap/settings ", "create Job/sweep runs as hook post-delete"}, planned)
	require.Nil(t, d.liveObject("Job", "backup"))

	var changes []string
	d.injectFault(func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		if (r.Method == http.MethodPatch || r.Method == http.MethodDelete) && !strings.Contains(r.URL.RawQuery, "dryRun") && name != inventoryName(v1.Owner) {
			changes = append(changes, r.Method+" "+name)
		}
		return send()
	})
	require.NoError(t, d.Remove(t.Context(), removalOf(v1, "a")))
	require.Equal(t, []string{"PATCH backup", "PATCH deregister", "DELETE backup", "DELETE deregister", "DELETE settings", "PATCH sweep", "DELETE sweep"}, changes)
	require.Nil(t, d.liveObject("ConfigMap", inventoryName(v1.Owner)))
	for _, name := range []string{"backup", "deregister", "sweep"} {
		require.Nil(t, d.liveObject("Job", name), name)
	}
	changes = nil
	require.NoError(t, d.Remove(t.Context(), removalOf(v1, "b")), "removed already")
	require.Empty(t, changes)
}

// A deletion hook that fails stops the removal: before it, nothing is removed. The next attempt runs it again, and what had ended does not run
// again. The hook after the removal that is under way is not removed with the rest.
func TestFailedDeletionHookStopsTheRemoval_H6_A24(t *testing.T) {
	d := newTestCluster(t).recording()
	at := func(before, after string) runtimes.Request {
		return d.instance("v1", configOf("settings", "v1"), hookJob("seed", "pre-install", "/bin/true"), hookJob("first", "pre-delete", "/bin/true", "converge/hook-weight: '-1'"),
			hookJob("backup", "pre-delete", before), hookJob("sweep", "post-delete", after))
	}
	d.mustApply(at("/bin/true", "/bin/true"))
	err := d.Remove(t.Context(), removalOf(at("/bin/false", "/bin/true"), "a"))
	require.ErrorContains(t, err, "run the hook pre-delete Job "+d.namespace+"/backup: it failed: Job failed: BackoffLimitExceeded")
	require.ErrorContains(t, err, "the next attempt at the removal runs it again")
	require.NotNil(t, d.liveObject("ConfigMap", "settings"))
	first, backup := d.uid("Job", "first"), d.uid("Job", "backup")

	again := at("/bin/true", "/bin/false")
	require.ErrorContains(t, d.Remove(t.Context(), removalOf(again, "b")), "post-delete Job "+d.namespace+"/sweep: it failed")
	require.NotEqual(t, backup, first)
	require.Nil(t, d.liveObject("ConfigMap", "settings"))
	require.Nil(t, d.liveObject("Job", "backup"))
	sweep := d.uid("Job", "sweep")
	// The worker is lost while the hook runs: the same attempt waits for it.
	d.injectFault(func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, inventoryName(again.Owner)) && d.uid("Job", "sweep") != sweep {
			return nil, fmt.Errorf("the worker is lost")
		}
		return send()
	})
	last := at("/bin/true", "/bin/true")
	require.ErrorContains(t, d.Remove(t.Context(), removalOf(last, "c")), "the worker is lost")
	d.injectFault(nil)
	sweep = d.uid("Job", "sweep")
	d.injectFault(func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/jobs/sweep") && !strings.Contains(r.URL.RawQuery, "dryRun") {
			return nil, fmt.Errorf("it runs twice")
		}
		return send()
	})
	require.NoError(t, d.Remove(t.Context(), removalOf(last, "c")))
	d.injectFault(nil)
	require.Nil(t, d.liveObject("Job", "sweep"), sweep)
}

// A removal that was given up is followed by an installation, and an encrypted hook is refused before anything is removed.
func TestApplyAfterARemovalThatWasGivenUp_H6(t *testing.T) {
	d := newTestCluster(t).recording()
	at := func(before string) runtimes.Request {
		return d.instance("v1", configOf("settings", "v1"), hookJob("seed", "pre-install", "/bin/true"), hookJob("grow", "pre-upgrade", "/bin/true"), hookJob("backup", "pre-delete", before))
	}
	d.mustApply(at("/bin/true"))
	seed := d.uid("Job", "seed")
	require.Error(t, d.Remove(t.Context(), removalOf(at("/bin/false"), "a")))
	require.Equal(t, []string{"ran the hook pre-install " + d.namespace + "/seed"}, hooksOf(d.mustApply(at("/bin/true"))))
	require.NotEqual(t, seed, d.uid("Job", "seed"))
	require.Empty(t, hooksOf(d.mustApply(at("/bin/true"))))
	require.Nil(t, d.liveObject("Job", "grow"))

	sealed := at("/bin/true")
	last := len(sealed.Payload.Kubernetes.Objects) - 1
	sealed.Payload.Kubernetes.Objects[last] = []byte(strings.Replace(string(sealed.Payload.Kubernetes.Objects[last]), `"spec"`, `"sops":{"mac":"x"},"spec"`, 1))
	require.ErrorContains(t, d.Remove(t.Context(), removalOf(sealed, "b")), "run the hook Job backup: it is encrypted, and a removal decrypts nothing")
	require.NotNil(t, d.liveObject("ConfigMap", "settings"))
}
