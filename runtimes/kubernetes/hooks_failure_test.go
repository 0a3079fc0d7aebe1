package kubernetes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/runtimes"
)

// Failure hooks run after an apply that failed when it had begun: because of a hook, of an object that it waited for, or of a refusal. They
// run once; after the retry of a person they run again. A refusal before the first change runs none.
func TestFailureHooksRunAfterAFailedApply_H6(t *testing.T) {
	d := newTestCluster(t).recording()
	cleanup := hookJob("cleanup", "on-failure", "/bin/true")
	at := func(version, attempt string, n int, objects ...string) runtimes.Request {
		in := d.instance(version, append(objects, configOf("settings", version), cleanup)...)
		in.Attempt, in.AttemptID = n, attempt
		return in
	}
	refused := func(in runtimes.Request) string {
		t.Helper()
		out, err := d.Apply(t.Context(), in)
		require.Error(t, err)
		return strings.Join(hooksOf(strings.Split(out.Stdout+out.Stderr, "\n")), "; ")
	}
	const wanted = "ran the hook on-failure "
	require.Empty(t, hooksOf(d.mustApply(at("v1", "a", 1))), "nothing failed")
	require.Nil(t, d.liveObject("Job", "cleanup"))

	migrate := hookJob("migrate", "pre-upgrade", "/bin/false")
	require.Contains(t, refused(at("v2", "b", 1, migrate)), wanted+d.namespace+"/cleanup")
	first := d.uid("Job", "cleanup")
	require.NotContains(t, refused(at("v2", "c", 2, migrate)), wanted, "an automatic attempt")
	require.Equal(t, first, d.uid("Job", "cleanup"))
	require.Contains(t, refused(at("v2", "d", 1, migrate)), wanted, "a person retried it")
	require.NotEqual(t, first, d.uid("Job", "cleanup"))

	wave := strings.Replace(jobYAML("/bin/false", "converge/wave: '-1'"), "name: once", "name: early", 1)
	require.Contains(t, refused(at("v3", "e", 1, wave)), wanted, "an object of an earlier wave failed")
	last := strings.Replace(jobYAML("/bin/false"), "name: once", "name: late", 1)
	require.Contains(t, refused(at("v4", "f", 1, last)), wanted, "an object of the last wave failed")
	there := d.uid("Job", "cleanup")
	bad := strings.Replace(jobYAML("/bin/true"), "Never", "Always", 1)
	require.Empty(t, refused(at("v5", "g", 1, bad)), "refused by the dry run")
	require.Equal(t, there, d.uid("Job", "cleanup"))
	require.Empty(t, hooksOf(d.mustApply(at("v6", "h", 1))))

	cleanup = hookJob("cleanup", "on-failure", "/bin/false")
	text := d.mustRefuse(at("v7", "i", 1, migrate), true)
	require.Contains(t, text, "run the hook pre-upgrade Job "+d.namespace+"/migrate: it failed")
	require.Contains(t, text, "run the hook on-failure Job "+d.namespace+"/cleanup: it failed")
	require.Contains(t, d.mustRefuse(at("v8", "j", 1, wave), false), "cleanup: it failed", "the cause decides whether a retry helps")
}
