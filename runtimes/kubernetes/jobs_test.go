package kubernetes

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// A failed Job runs again once when a person retries it, or in another version; not in an automatic attempt, nor in the same attempt
// after its worker was lost. A Job that succeeded does not.
func TestAFailedJobRunsAgainOnRetry_H4(t *testing.T) {
	d := newTestCluster(t).recording()
	at := func(version, command string, attempt int, try string) runtimes.Request {
		in := d.instance(version, jobYAML(command))
		in.Attempt, in.AttemptID = attempt, try
		return in
	}
	const bad, good = "/bin/false", "/bin/true"
	failed := func(in runtimes.Request) {
		d.until(in, "it failed", func(objects []entities.Object) bool { return objects[0].Status == entities.ObjectFailed })
	}
	first := at("v1", bad, 1, "a")
	require.Equal(t, []string{"created Job/once"}, d.mustApply(first))
	failed(first)
	one := d.liveObject("Job", "once").GetUID()
	for _, in := range []runtimes.Request{first, at("v1", bad, 2, "b"), at("v1", bad, 0, "")} {
		require.Equal(t, []string{"unchanged 1 object"}, d.mustApply(in))
	}
	require.Equal(t, one, d.liveObject("Job", "once").GetUID())

	retried := at("v1", bad, 1, "c")
	require.Equal(t, []string{"reran the failed Job/once: run 2"}, d.mustApply(retried))
	require.NotEqual(t, one, d.liveObject("Job", "once").GetUID())
	require.Equal(t, "2 c", d.liveObject("Job", "once").GetAnnotations()[AnnotationRuns])
	failed(retried)
	require.Equal(t, []string{"unchanged 1 object"}, d.mustApply(retried), "its worker was lost, and another one continues")

	v2 := at("v2", bad, 1, "d")
	plan, err := d.Plan(t.Context(), d.instance("v2", jobYAML(bad)))
	require.NoError(t, err)
	require.Equal(t, []runtimes.Change{{Action: runtimes.ActionRecreate, Type: "Job", Name: "once", Namespace: d.namespace, Message: "it failed, and is run again"}}, plan)
	require.Equal(t, []string{"reran the failed Job/once: run 3"}, d.mustApply(v2))
	failed(v2)
	require.False(t, slices.ContainsFunc(d.observe(v2)[0].Versions, func(v entities.ObjectVersion) bool { return v.Drifted }))

	d.deleteJob("once")
	v3 := at("v3", good, 1, "e")
	require.Equal(t, []string{"created Job/once"}, d.mustApply(v3))
	d.until(v3, "it ended", settled("v3"))
	require.Equal(t, []string{"unchanged 1 object"}, d.mustApply(at("v3", good, 1, "f")))
	require.Equal(t, []string{"configured Job/once (metadata.annotations[converge/version])"}, d.mustApply(at("v4", good, 1, "g")))
	require.Equal(t, "1 e", d.liveObject("Job", "once").GetAnnotations()[AnnotationRuns])
}

// A reading right after an apply that ran a Job again shows the running Job, and not the failed one, also if the watch lags.
func TestARerunJobIsNotReportedAsFailed_H4(t *testing.T) {
	d := newTestCluster(t).recording()
	delay, catchUp := d.lag("jobs")
	in := d.instance("v1", jobYAML("/bin/false"))
	in.Attempt, in.AttemptID = 1, "a"
	d.mustApply(in)
	d.until(in, "it failed", func(objects []entities.Object) bool { return objects[0].Status == entities.ObjectFailed })
	before := d.liveObject("Job", "once").GetUID()
	delay()
	in.AttemptID = "b"
	seen := make(chan types.UID, 1)
	go func() {
		_, err := d.Apply(d.Context(), in)
		v, viewErr := d.cluster.view(d.Context(), d.resourceOf("Job"), d.namespace)
		if err == nil && viewErr == nil {
			seen <- v.get(d.namespace, "once").GetUID()
		}
		close(seen)
	}()
	looks := 0
	d.wait("the running Job for some time", func() bool {
		if now := d.liveObject("Job", "once"); now != nil && now.GetUID() != before {
			looks++
		}
		return looks > 20
	}, func() any { return looks })
	catchUp()
	require.Equal(t, d.liveObject("Job", "once").GetUID(), <-seen)
}
