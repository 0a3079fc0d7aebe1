package kubernetes

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/entities"
)

func replicaSet(t *testing.T, version string, revision, replicas, available int) *unstructured.Unstructured {
	t.Helper()
	return object(t, fmt.Sprintf(`
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-%d, annotations: {deployment.kubernetes.io/revision: "%d"}}
spec: {replicas: %d, template: {metadata: {annotations: {converge/template: %s}}}}
status: {replicas: %d, availableReplicas: %d}
`, revision, revision, replicas, version, replicas, available))
}

func TestDeploymentVersions(t *testing.T) {
	web := func(replicas int) *unstructured.Unstructured {
		return object(t, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {converge/version: v2, converge/earlier: v1 v1}}
spec: {replicas: %d, template: {metadata: {annotations: {converge/template: v2}}}}
`, replicas))
	}
	for _, row := range []struct {
		name string
		of   *unstructured.Unstructured
		sets []*unstructured.Unstructured
		want []entities.ObjectVersion
	}{
		{
			"nothing was created yet", web(3), nil,
			[]entities.ObjectVersion{{Version: "v2", Active: true, TargetReplicas: 3}},
		},
		{
			"during a rolling update two versions are active", web(3),
			[]*unstructured.Unstructured{replicaSet(t, "v1", 1, 2, 2), replicaSet(t, "v2", 2, 2, 1)},
			[]entities.ObjectVersion{
				{Version: "v2", Active: true, Replicas: 2, AvailableReplicas: 1, TargetReplicas: 3},
				{Version: "v1", Active: true, Replicas: 2, AvailableReplicas: 2, TargetReplicas: 2},
			},
		},
		{
			"afterwards one", web(3),
			[]*unstructured.Unstructured{replicaSet(t, "v1", 1, 0, 0), replicaSet(t, "v2", 2, 3, 3)},
			[]entities.ObjectVersion{{Version: "v2", Active: true, Replicas: 3, AvailableReplicas: 3, TargetReplicas: 3}},
		},
		{
			"a template that its controller has not seen is not active", object(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, generation: 2, annotations: {converge/version: v2, converge/earlier: v1 v1}}
spec: {replicas: 3, template: {metadata: {annotations: {converge/template: v2}}}}
status: {observedGeneration: 1}
`),
			[]*unstructured.Unstructured{replicaSet(t, "v1", 1, 3, 3)},
			[]entities.ObjectVersion{
				{Version: "v2", TargetReplicas: 3},
				{Version: "v1", Active: true, Replicas: 3, AvailableReplicas: 3, TargetReplicas: 3},
			},
		},
		{
			"a rollback makes an old ReplicaSet the newest", web(3),
			[]*unstructured.Unstructured{replicaSet(t, "v1", 10, 3, 3), replicaSet(t, "v2", 9, 0, 0)},
			[]entities.ObjectVersion{{Version: "v1", Active: true, Replicas: 3, AvailableReplicas: 3, TargetReplicas: 3}},
		},
		{
			"new pods that cannot be created are not active while old ones run", web(3),
			[]*unstructured.Unstructured{replicaSet(t, "v1", 1, 3, 3), replicaSet(t, "v2", 2, 0, 0)},
			[]entities.ObjectVersion{
				{Version: "v2", TargetReplicas: 3},
				{Version: "v1", Active: true, Replicas: 3, AvailableReplicas: 3, TargetReplicas: 3},
			},
		},
		{
			"scaled to zero, it is at the newest", web(0),
			[]*unstructured.Unstructured{replicaSet(t, "v1", 1, 0, 0), replicaSet(t, "v2", 2, 0, 0)},
			[]entities.ObjectVersion{{Version: "v2", Active: true}},
		},
		{
			"two ReplicaSets of one version are one version", web(3),
			[]*unstructured.Unstructured{replicaSet(t, "v2", 1, 1, 1), replicaSet(t, "v2", 2, 2, 2)},
			[]entities.ObjectVersion{{Version: "v2", Active: true, Replicas: 3, AvailableReplicas: 3, TargetReplicas: 3}},
		},
		{
			"pods of another template have an unknown version", web(1),
			[]*unstructured.Unstructured{replicaSet(t, `""`, 1, 1, 1), replicaSet(t, "v2", 2, 0, 0)},
			[]entities.ObjectVersion{
				{Version: "v2", TargetReplicas: 1},
				{Version: "", Active: true, Replicas: 1, AvailableReplicas: 1, TargetReplicas: 1},
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.Equal(t, row.want, deploymentVersions(row.of, row.sets, versionsByStampOf(row.of, declared{Unstructured: row.of}, "v2")))
		})
	}
}

func TestPodVersions(t *testing.T) {
	pod := func(version, more string) *unstructured.Unstructured {
		return object(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {converge/template: %s}%s}}", version, more))
	}
	ready := `}, status: {phase: Running, conditions: [{type: Ready, status: "True"}]`
	db := object(t, "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, annotations: {converge/version: v2, converge/earlier: v1 v1}}, spec: {replicas: 3, template: {metadata: {annotations: {converge/template: v2}}}}}")
	require.Equal(t, []entities.ObjectVersion{
		{Version: "v2", Active: true, Replicas: 2, AvailableReplicas: 1, TargetReplicas: 3},
		{Version: "v1", Active: true, Replicas: 1, AvailableReplicas: 1},
	}, versionsOfPods(db, []*unstructured.Unstructured{
		pod("v1", ready), pod("v2", ready), pod("v2", ""),
		pod("v1", `, deletionTimestamp: "2026-01-02T03:04:05Z"`), pod("v1", "}, status: {phase: Succeeded"),
	}))
	agent := object(t, "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent, annotations: {converge/version: v2, converge/earlier: v1 v1}}, spec: {template: {metadata: {annotations: {converge/template: v2}}}}, status: {desiredNumberScheduled: 1}}")
	require.Equal(t, []entities.ObjectVersion{
		{Version: "v2", TargetReplicas: 1},
		{Version: "v1", Active: true, Replicas: 1, AvailableReplicas: 1},
	}, versionsOfPods(agent, []*unstructured.Unstructured{pod("v1", ready)}), "an update that waits for its first node")
}

func versionsOfPods(o *unstructured.Unstructured, pods []*unstructured.Unstructured) []entities.ObjectVersion {
	return podVersions(o, pods, versionsByStampOf(o, declared{Unstructured: o}, "v2"))
}

func TestWorstPodFailure(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	pod := func(name, reason, more, ready string) *unstructured.Unstructured {
		return object(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, creationTimestamp: "2026-01-02T02:00:00Z"}
status:
  phase: Pending
  conditions: [{type: PodScheduled, status: "True", lastTransitionTime: "2026-01-02T03:00:00Z"}%s]
  containerStatuses: [{name: web, state: {waiting: {reason: %s, message: back-off}}%s}]
`, name, ready, reason, more))
	}
	crashed := `, lastState: {terminated: {exitCode: 3, reason: Error, message: "starting\ncannot read config\n"}}`
	killed := `, lastState: {terminated: {exitCode: 137, reason: OOMKilled}}`
	lately := `, {type: Ready, status: "False", lastTransitionTime: "2026-01-02T03:04:30Z"}`
	unschedulable := object(t, `
apiVersion: v1
kind: Pod
metadata: {name: c}
status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: 0/3 nodes are available}]}
`)
	for _, row := range []struct {
		name    string
		pods    []*unstructured.Unstructured
		after   time.Duration
		message string
		failed  bool
	}{
		{"no failure while containers are created", []*unstructured.Unstructured{pod("a", "ContainerCreating", "", "")}, 5 * time.Minute, "", false},
		{"a crash reports its last line at once", []*unstructured.Unstructured{pod("a", "CrashLoopBackOff", crashed, "")}, time.Second, "CrashLoopBackOff a: cannot read config", false},
		{"or how it ended", []*unstructured.Unstructured{pod("a", "CrashLoopBackOff", killed, "")}, time.Second, "CrashLoopBackOff a: exit code 137 (OOMKilled)", false},
		{"an image that cannot be pulled", []*unstructured.Unstructured{pod("a", "ImagePullBackOff", "", "")}, time.Minute, "ImagePullBackOff a: back-off", false},
		{"not failed at the limit", []*unstructured.Unstructured{pod("a", "ImagePullBackOff", "", "")}, 2 * time.Minute, "ImagePullBackOff a: back-off", false},
		{"after it, it has failed", []*unstructured.Unstructured{pod("a", "ImagePullBackOff", "", "")}, 2*time.Minute + time.Second, "ImagePullBackOff a: back-off", true},
		{"an invalid name fails at once", []*unstructured.Unstructured{pod("a", "InvalidImageName", "", "")}, 0, "InvalidImageName a: back-off", true},
		{"a pod that was ready has its time from then", []*unstructured.Unstructured{pod("a", "CrashLoopBackOff", crashed, lately)}, 5 * time.Minute, "CrashLoopBackOff a: cannot read config", false},
		{"the pod that fails longest is reported", []*unstructured.Unstructured{pod("a", "CrashLoopBackOff", crashed, lately), pod("b", "ErrImagePull", "", "")}, 5 * time.Minute, "ErrImagePull b: back-off", true},
		{"no node takes it", []*unstructured.Unstructured{unschedulable}, time.Hour, "Unschedulable c: 0/3 nodes are available", false},
		{"a failing pod has precedence over a waiting one", []*unstructured.Unstructured{unschedulable, pod("a", "ErrImagePull", "", "")}, time.Minute, "ErrImagePull a: back-off", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			found := worstPodFailure(row.pods, time.Time{}, began.Add(row.after), 2*time.Minute)
			require.Equal(t, row.message, found.message)
			require.Equal(t, row.failed, found.failed)
		})
	}
	stays := []*unstructured.Unstructured{pod("a", "CrashLoopBackOff", crashed, "")}
	require.False(t, worstPodFailure(stays, began.Add(time.Hour), began.Add(time.Hour+time.Minute), 2*time.Minute).failed, "a later apply restarts the deadline")
	require.True(t, worstPodFailure(stays, began.Add(time.Hour), began.Add(time.Hour+3*time.Minute), 2*time.Minute).failed)
}

func TestPodsOfOtherVersionsAreIgnored(t *testing.T) {
	old := object(t, "{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {converge/template: v1}}}")
	target := object(t, "{apiVersion: v1, kind: Pod, metadata: {name: b, annotations: {converge/template: v2}}}")
	by := object(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {metadata: {annotations: {converge/template: v2}}}}}")
	require.Equal(t, []*unstructured.Unstructured{target}, ofCurrentTemplate([]*unstructured.Unstructured{old, target}, by))
}

func TestAFailedPullIsReportedWithoutItsSteps(t *testing.T) {
	require.Equal(t, `Back-off pulling image "shop/web:v2": shop/web:v2: not found`,
		withoutSteps(`Back-off pulling image "shop/web:v2": ErrImagePull: failed to pull and unpack image "shop/web:v2": failed to resolve reference "shop/web:v2": shop/web:v2: not found`))
	require.Equal(t, `failed to pull and unpack image "shop/web:v2": shop/web:v2: not found`,
		withoutSteps(`failed to pull and unpack image "shop/web:v2": failed to resolve reference "shop/web:v2": shop/web:v2: not found`))
	require.Equal(t, "secret \"db\" not found", withoutSteps("secret \"db\" not found"))
}

// The pods of an adopted workload are counted by its status. During the rollout that marks its template, the pods that the watch does not show
// are those of the adopted template.
func TestVersionsOfUnmarkedPods_H7(t *testing.T) {
	o := func(kind, spec, status string) *unstructured.Unstructured {
		return object(t, `{apiVersion: apps/v1, kind: `+kind+`, metadata: {name: web, annotations: {converge/unmarked: old, converge/version: v1}}, spec: `+spec+`, status: `+status+`}`)
	}
	names := versionsByStamp{"old": "v1", "new": "v2"}
	for _, row := range []struct {
		kind, spec, status string
		want               []entities.ObjectVersion
	}{
		{"Deployment", "{replicas: 2}", "{replicas: 2, updatedReplicas: 2, availableReplicas: 1}", []entities.ObjectVersion{{Version: "v1", Active: true, Replicas: 2, AvailableReplicas: 1, TargetReplicas: 2}}},
		{"Deployment", "{replicas: 2}", "{replicas: 3, updatedReplicas: 1, availableReplicas: 2}", []entities.ObjectVersion{
			{Version: "v1", Active: true, Replicas: 1, TargetReplicas: 2}, {Active: true, Replicas: 2, AvailableReplicas: 2},
		}},
		{"Deployment", "{replicas: 0}", "{}", []entities.ObjectVersion{{Version: "v1", Active: true}}},
		{"StatefulSet", "{}", "{replicas: 1, updatedReplicas: 1, availableReplicas: 1}", []entities.ObjectVersion{{Version: "v1", Active: true, Replicas: 1, AvailableReplicas: 1, TargetReplicas: 1}}},
		{"ReplicaSet", "{replicas: 2}", "{replicas: 2, availableReplicas: 2}", []entities.ObjectVersion{{Version: "v1", Active: true, Replicas: 2, AvailableReplicas: 2, TargetReplicas: 2}}},
		{"DaemonSet", "{}", "{desiredNumberScheduled: 3, currentNumberScheduled: 3, updatedNumberScheduled: 3, numberAvailable: 3}", []entities.ObjectVersion{
			{Version: "v1", Active: true, Replicas: 3, AvailableReplicas: 3, TargetReplicas: 3},
		}},
	} {
		require.Equal(t, row.want, unmarkedVersions(o(row.kind, row.spec, row.status), names), row.kind+row.status)
	}
	rolling := o("Deployment", `{replicas: 2, template: {metadata: {annotations: {converge/template: new}}}}`, "{replicas: 3, updatedReplicas: 1, availableReplicas: 2}")
	set := object(t, `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-2, annotations: {converge/stamp: new, deployment.kubernetes.io/revision: "2"}},
		spec: {replicas: 1}, status: {replicas: 1}}`)
	require.Equal(t, []entities.ObjectVersion{
		{Version: "v2", Active: true, Replicas: 1, TargetReplicas: 2}, {Version: "v1", Active: true, Replicas: 2, AvailableReplicas: 2},
	}, deploymentVersions(rolling, []*unstructured.Unstructured{set}, names))
}
