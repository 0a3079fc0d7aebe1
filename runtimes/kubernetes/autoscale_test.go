package kubernetes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

func autoscalerYAML(least, most string) string {
	return `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web}, spec: {minReplicas: ` + least + `, maxReplicas: ` + most + `,
		scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}}`
}

// setScale sets the replicas of a Deployment as the controller of its autoscaler does.
func (d *recordingCluster) setScale(replicas string) {
	d.Helper()
	d.patchAs(autoscalers, "Deployment", "web", `{"spec":{"replicas":`+replicas+`}}`, "scale")
}

func (d *recordingCluster) replicas() int {
	d.Helper()
	return number(d.liveObject("Deployment", "web"), -1, "spec", "replicas")
}

func unreplicated(image string) string {
	return strings.Replace(deploymentOf(image, 1, ""), "  replicas: 1\n", "", 1)
}

// Replicas that an autoscaler of the same service sets are no drift and cost no request, independent of the declaration, and stay in
// later applies.
func TestReplicasBelongToTheAutoscaler_H2_H8(t *testing.T) {
	d := newTestCluster(t).recording()
	at := func(version, image string, replicas int) runtimes.Request {
		return d.instance(version, deploymentOf(image, replicas, ""), autoscalerYAML("1", "9"))
	}
	v1 := at("v1", "web:1", 2)
	d.mustApply(v1)
	require.Equal(t, 2, d.replicas(), "it begins with its declaration")
	running := func(in runtimes.Request, n int) {
		t.Helper()
		d.until(in, "its pods", func(objects []entities.Object) bool {
			return settledExceptAutoscalers(objects, in.FullVersion) && objects[0].Versions[0].AvailableReplicas == n
		})
	}
	running(v1, 2)
	d.mustApply(at("v2", "web:1", 4))
	require.Equal(t, 2, d.replicas(), "declared replicas have no effect")
	running(at("v2", "web:1", 4), 2)

	d.takeWrites()
	d.setScale("5")
	running(at("v2", "web:1", 4), 5)
	_, asked := d.takeWrites()
	require.Zero(t, asked)
	plan, err := d.Plan(t.Context(), at("v3", "web:3", 4))
	require.NoError(t, err)
	require.NotContains(t, plan[0].Fields, "spec.replicas")
	d.mustApply(at("v3", "web:3", 4))
	require.Equal(t, 5, d.replicas())
	running(at("v3", "web:3", 4), 5)
	require.Contains(t, d.mustApply(at("v3", "web:3", 4)), "unchanged 2 objects")

	d.patchAs("kubectl-edit", "Deployment", "web", `{"spec":{"paused":true}}`)
	d.setScale("6")
	d.mustApply(at("v4", "web:4", 4))
	require.Equal(t, 6, d.replicas(), "also with a forced apply")
}

// settledExceptAutoscalers is settled without autoscalers, which have no metrics here.
func settledExceptAutoscalers(objects []entities.Object, version string) bool {
	var all []entities.Object
	for _, o := range objects {
		if o.Type != kindAutoscaler.Kind {
			all = append(all, o)
		}
	}
	return settled(version)(all)
}

// The replicas that the real controller sets for an autoscaler of another owner stay.
func TestReplicasOfAnAutoscalerInTheClusterStay_H2_H8(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", deploymentOf("web:1", 2, ""))
	d.mustApply(v1)
	d.until(v1, "v1", settled("v1"))
	d.applyAs("kubectl", "HorizontalPodAutoscaler", "web", autoscalerYAML("4", "9"))
	d.wait("the controller to scale", func() bool { return d.replicas() == 4 }, func() any { return d.replicas() })
	require.Equal(t, autoscalers, scaledBy(d.liveObject("Deployment", "web")))
	d.until(v1, "four of v1", func(objects []entities.Object) bool {
		return settled("v1")(objects) && objects[0].Versions[0].AvailableReplicas == 4
	})
	require.Equal(t, []string{"unchanged 1 object"}, d.mustApply(v1))
	d.mustApply(d.instance("v2", deploymentOf("web:2", 3, "")))
	require.Equal(t, 4, d.replicas())
}

// Replicas that are no longer declared stay where an autoscaler is there, though it has written nothing yet; else they are what a
// workload without has.
func TestReplicasStayWhenTheyAreNoLongerDeclared_H2(t *testing.T) {
	for name, c := range map[string]struct {
		declared, found bool
		then            int
	}{
		"an autoscaler is declared too": {declared: true, then: 3}, "one is in the cluster": {found: true, then: 3}, "no autoscaler": {then: 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestCluster(t).recording()
			d.mustApply(d.instance("v1", deploymentOf("web:1", 3, "")))
			objects := []string{unreplicated("web:1")}
			if c.declared {
				objects = append(objects, autoscalerYAML("2", "9"))
			}
			if c.found {
				d.applyAs("kubectl", "HorizontalPodAutoscaler", "web", autoscalerYAML("2", "9"))
			}
			v2 := d.instance("v2", objects...)
			d.waitWatchedAs("Deployment", "web")
			d.mustApply(v2)
			require.Equal(t, c.then, d.replicas())
			d.until(v2, "v2", func(objects []entities.Object) bool { return settledExceptAutoscalers(objects, "v2") })
			d.mustApply(v2)
			require.Equal(t, c.then, d.replicas())
		})
	}
}

// A writer of replicas through scale keeps them, except the controller of autoscalers if the autoscaler no longer exists.
func TestReplicasAfterTheAutoscalerIsRemoved_H2(t *testing.T) {
	d := newTestCluster(t).recording()
	both := d.instance("v1", deploymentOf("web:1", 2, ""), autoscalerYAML("1", "9"))
	d.mustApply(both)
	d.setScale("5")
	d.waitWatchedAs("Deployment", "web")
	without := withPrune(d.instance("v2", deploymentOf("web:2", 2, "")))
	d.mustApply(without)
	require.Equal(t, 5, d.replicas(), "it was there when this was applied")
	require.Nil(t, d.liveObject("HorizontalPodAutoscaler", "web"))
	require.Contains(t, strings.Join(d.mustApply(without), "\n"), "took over spec.replicas of Deployment/web from "+autoscalers)
	require.Equal(t, 2, d.replicas())

	d.patchAs("another-scaler", "Deployment", "web", `{"spec":{"replicas":4}}`, "scale")
	d.mustApply(d.instance("v3", deploymentOf("web:3", 2, "")))
	require.Equal(t, 4, d.replicas())
}

// A VerticalPodAutoscaler writes into pods, by admission or in place, and leaves the template as declared: like other changes of pods
// by admission, it is no drift.
func TestPodsChangedByAdmissionAreNoDrift_H2(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", deploymentOf("web:1", 1, ""))
	d.mustApply(v1)
	d.until(v1, "v1", settled("v1"))
	d.applyAs("admin", "LimitRange", "sizes", `{apiVersion: v1, kind: LimitRange, metadata: {name: sizes}, spec: {limits: [
		{type: Container, default: {cpu: 200m}, defaultRequest: {cpu: 150m}}]}}`)
	before := d.pods()["web"]
	d.evictPods("web")
	d.wait("another pod", func() bool { now := d.pods()["web"]; return len(now) == 1 && now[0] != before[0] }, func() any { return d.pods() })
	d.until(v1, "v1 again", settled("v1"))
	require.Equal(t, "150m", d.requestOf("web"))
	require.Equal(t, []string{"unchanged 1 object"}, d.mustApply(v1))
	d.until(v1, "v1 as ever", settled("v1"))
}

func TestScaleTargets_H2(t *testing.T) {
	for text, wanted := range map[string]string{
		autoscalerYAML("1", "2"): "Deployment web",
		"{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {name: a}, spec: {scaleTargetRef: {name: web}}}":                                            "Deployment web",
		"{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {name: a}, spec: {scaleTargetRef: {kind: StatefulSet, name: db}}}":                          "StatefulSet db",
		"{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: a}, spec: {scaleTargetRef: {apiVersion: x.io/v1, kind: Rollout, name: r}}}": "Rollout r",
		"{apiVersion: keda.sh/v1alpha1, kind: ScaledJob, metadata: {name: a}, spec: {scaleTargetRef: {name: web}}}":                                               "",
		"{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {name: a}}":                                                                                 "",
	} {
		target, ok := scaleTargetOf(object(t, text))
		require.Equal(t, wanted != "", ok, text)
		if ok {
			require.Equal(t, wanted, target.String(), text)
		}
	}
}
