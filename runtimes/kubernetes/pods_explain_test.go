package kubernetes

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/kubetest"
)

// waitMessage observes until the message of an object of that type contains a text.
func (d *recordingCluster) waitMessage(in runtimes.Request, kind, text string) entities.Object {
	d.Helper()
	var found entities.Object
	d.until(in, text, func(objects []entities.Object) bool {
		for _, o := range objects {
			if o.Type == kind && strings.Contains(o.Message, text) {
				found = o
			}
		}
		return found.Name != ""
	})
	return found
}

// clearRecent clears the cache, so that events and logs are requested at once, and not only every half a minute.
func (d *recordingCluster) clearRecent() {
	d.recent.mu.Lock()
	defer d.recent.mu.Unlock()
	d.recent.events, d.recent.logs = nil, nil
}

// advanceClock advances the clock of the runtime.
func (d *recordingCluster) advanceClock(by time.Duration) {
	d.now = func() time.Time { return time.Now().Add(by) }
}

func logOf(o entities.Object) (lines []string) {
	for _, e := range o.Events {
		if strings.HasPrefix(e.Message, logPrefix) {
			lines = append(lines, e.Message)
		}
	}
	return lines
}

const speaks = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, template: {
	metadata: {labels: {app: web}, annotations: {kubelab/run: "true"}}, spec: {containers: [{name: web, image: "web:1", command: ["/bin/sh", "-c",
	"for i in 1 2 3 4 5 6; do echo line $i; done; echo token=s3cr3t-token; exit 3"]}]}}}}`

// A container that crashes: the last lines that it wrote, without the values of Secrets.
func TestLastLogLinesOfACrash_G5(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", speaks, "{apiVersion: v1, kind: Secret, metadata: {name: web}, stringData: {token: s3cr3t-token}}")
	d.mustApply(v1)
	var said []string
	d.until(v1, "the log", func(objects []entities.Object) bool {
		for _, o := range objects {
			if said = logOf(o); len(said) > 0 {
				return strings.HasPrefix(o.Message, "CrashLoopBackOff web-") && strings.Contains(o.Message, "exit code 3")
			}
		}
		d.clearRecent()
		return false
	})
	require.Equal(t, []string{"log of web: line 3", "log of web: line 4", "log of web: line 5", "log of web: line 6", "log of web: token=***"}, said)
}

// The termination message of a container is without the values of Secrets too.
func TestTerminationMessageOfAContainer_G5(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", workloadYAML("StatefulSet", "db", "db:notready", ""), "{apiVersion: v1, kind: Secret, metadata: {name: db}, stringData: {token: s3cr3t-token}}")
	d.mustApply(v1)
	var seen entities.Object
	d.until(v1, "how its container ended", func(objects []entities.Object) bool {
		for _, o := range objects {
			if seen = o; strings.Contains(o.Message, "CrashLoopBackOff db-0") {
				return true
			}
		}
		// Repeated until it shows, and the simulated node keeps it.
		_, _ = d.admin.typed.CoreV1().Pods(d.namespace).Patch(t.Context(), "db-0", types.StrategicMergePatchType, []byte(`{"status":{"containerStatuses":[{"name":"c","image":"db","imageID":"","ready":false,"restartCount":3,
			"state":{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{"exitCode":3,"message":"cannot log in with s3cr3t-token"}}}]}}`), metav1.PatchOptions{}, "status")
		return false
	})
	require.Contains(t, seen.Message, "CrashLoopBackOff db-0: cannot log in with ***")
}

// A Job that failed says how its pod ended, and what that said.
func TestLastLogLinesOfAFailedJob_G5(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", `{apiVersion: batch/v1, kind: Job, metadata: {name: once}, spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never,
		containers: [{name: c, image: "x", command: ["/bin/sh", "-c", "echo no such table; exit 3"]}]}}}}`)
	d.mustApply(v1)
	var seen entities.Object
	d.until(v1, "the log of the Job that failed", func(objects []entities.Object) bool {
		seen = objects[0]
		d.clearRecent()
		return seen.Status == entities.ObjectFailed && len(logOf(seen)) > 0
	})
	require.Contains(t, seen.Message, "Job failed: BackoffLimitExceeded")
	require.Contains(t, seen.Message, "exit code 3")
	require.Equal(t, []string{"log of c: no such table"}, logOf(seen))
}

// A lost node is named, and so is a pod on it that does not terminate.
func TestPodsOfALostNode_C9(t *testing.T) {
	d := newTestCluster(t).recording()
	node := "lost-" + d.namespace
	nodes := d.admin.typed.CoreV1().Nodes()
	_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = nodes.Delete(context.Background(), node, metav1.DeleteOptions{}) })
	_, err = nodes.Patch(t.Context(), node, "application/merge-patch+json", []byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown",
		"message":"Kubelet stopped posting node status.","lastTransitionTime":"2026-01-02T03:04:05Z","lastHeartbeatTime":"2026-01-02T03:04:05Z"}]}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	v1 := d.instance("v1", strings.NewReplacer("spec: {containers", "spec: {nodeName: "+node+", containers", "metadata: {labels", `metadata: {annotations: {kubelab/stop-in: 1h}, labels`).
		Replace(workloadYAML("StatefulSet", "db", "db:notready", "")))
	d.mustApply(v1)
	seen := d.waitMessage(v1, "StatefulSet", "NodeNotReady db-0: node "+node+" does not answer since 03:04:05 (NodeStatusUnknown: Kubelet stopped posting node status.)")
	require.Equal(t, entities.ObjectPending, seen.Status)

	require.NoError(t, d.admin.typed.CoreV1().Pods(d.namespace).Delete(t.Context(), "db-0", metav1.DeleteOptions{}))
	d.advanceClock(10 * time.Minute)
	seen = d.waitMessage(v1, "StatefulSet", "Terminating db-0: it should have been gone for")
	require.Contains(t, seen.Message, "kubectl delete pod --force db-0")
}

// A pod that runs and is not ready says what its node says of it.
func TestAnUnreadyPodHasAReason_C9(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", deploymentOf("web:notready", 1, ""))
	d.mustApply(v1)
	d.waitMessage(v1, "Deployment", "Available: 0/1")
	pods, err := d.admin.typed.CoreV1().Pods(d.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	pod := pods.Items[0]
	_, err = d.admin.typed.CoreV1().Events(d.namespace).Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: d.namespace}, Type: corev1.EventTypeWarning, Reason: "Unhealthy",
		Message: "Readiness probe failed: HTTP probe failed with statuscode: 503", LastTimestamp: metav1.Now(),
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: pod.Name, Namespace: d.namespace, UID: pod.UID},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	d.advanceClock(10 * time.Minute)
	d.waitMessage(v1, "Deployment", pod.Name+" is not ready: Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 503")
}

// A rollout that is superseded half way, and an image that becomes available late: the current state is reported, and failures of the
// version before do not count for the current one.
func TestSupersededAndLate_C9(t *testing.T) {
	d := newTestCluster(t).recording()
	at := func(version, image string) runtimes.Request { return d.instance(version, deploymentOf(image, 2, "")) }
	v1 := at("v1", "web:1")
	d.mustApply(v1)
	d.until(v1, "v1", settled("v1"))
	v2, v3 := at("v2", "web:nopull"), at("v3", "web:3")
	d.mustApply(v2)
	d.waitMessage(v2, "Deployment", "ImagePullBackOff web-")
	d.advanceClock(10 * time.Minute)
	require.Equal(t, entities.ObjectFailed, d.waitMessage(v2, "Deployment", "ImagePullBackOff web-").Status)
	d.now = time.Now
	d.mustApply(v3)
	for _, o := range d.until(v3, "v3", settled("v3")) {
		require.NotContains(t, o.Message, "ImagePull")
	}
	late := d.instance("v4", deploymentOf("web:4", 2, "kubelab/pull-in: 3s"))
	d.mustApply(late)
	d.until(late, "the image exists now", settled("v4"))
}

// What keeps pods out of a namespace is named with what to change, also where it is a controller that is refused.
func TestRefusedPodsHaveAdvice_H3(t *testing.T) {
	for name, row := range map[string]struct {
		prepare func(*recordingCluster)
		object  string
		kind    string
		says    []string
		failed  bool
	}{
		"a quota, of a Deployment": {
			prepare: func(d *recordingCluster) {
				_, err := d.admin.typed.CoreV1().ResourceQuotas(d.namespace).Create(d.Context(), &corev1.ResourceQuota{
					ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": quantity.MustParse("0")}},
				}, metav1.CreateOptions{})
				require.NoError(d, err)
				kubetest.AwaitRefusal(d, d.admin.typed, d.namespace, "exceeded quota: small", nil)
			},
			object: deploymentOf("web:1", 1, ""), kind: "Deployment",
			says: []string{"its pods are refused: FailedCreate", "exceeded quota: small", "ResourceQuota small: raise its spec.hard[pods]"},
		},
		"a quota that wants resources, of a StatefulSet": {
			prepare: func(d *recordingCluster) {
				_, err := d.admin.typed.CoreV1().ResourceQuotas(d.namespace).Create(d.Context(), &corev1.ResourceQuota{
					ObjectMeta: metav1.ObjectMeta{Name: "counted"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"limits.cpu": quantity.MustParse("1")}},
				}, metav1.CreateOptions{})
				require.NoError(d, err)
				kubetest.AwaitRefusal(d, d.admin.typed, d.namespace, "failed quota: counted", nil)
			},
			object: workloadYAML("StatefulSet", "web", "web:1", ""), kind: "StatefulSet", failed: true,
			says: []string{"its pods are refused: FailedCreate", "must specify limits.cpu for: c", "ResourceQuota counted counts it: set resources of the containers"},
		},
		"Pod Security, of a Deployment": {
			prepare: func(d *recordingCluster) {
				_, err := d.admin.typed.CoreV1().Namespaces().Patch(d.Context(), d.namespace, "application/merge-patch+json",
					[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
				require.NoError(d, err)
				kubetest.AwaitRefusal(d, d.admin.typed, d.namespace, "violates PodSecurity", nil)
			},
			object: deploymentOf("web:1", 1, ""), kind: "Deployment", failed: true,
			says: []string{"its pods are refused: FailedCreate", `violates PodSecurity "restricted:latest"`},
		},
		"a LimitRange, of a Job": {
			prepare: func(d *recordingCluster) {
				_, err := d.admin.typed.CoreV1().LimitRanges(d.namespace).Create(d.Context(), &corev1.LimitRange{
					ObjectMeta: metav1.ObjectMeta{Name: "most"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
						Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{"cpu": quantity.MustParse("100m")},
					}}},
				}, metav1.CreateOptions{})
				require.NoError(d, err)
				kubetest.AwaitRefusal(d, d.admin.typed, d.namespace, "maximum cpu usage per Container is 100m", func(spec *corev1.PodSpec) {
					spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": quantity.MustParse("2")}
				})
			},
			object: strings.Replace(jobYAML("/bin/true"), `image: "x"`, `image: "x", resources: {limits: {cpu: "2"}}`, 1), kind: "Job", failed: true,
			says: []string{"its pods are refused: FailedCreate", "maximum cpu usage per Container is 100m", "LimitRange of the namespace: its maximum for cpu of a Container"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestCluster(t).recording()
			row.prepare(d)
			v1 := d.instance("v1", row.object)
			d.mustApply(v1)
			d.advanceClock(20 * time.Second)
			var seen entities.Object
			for _, text := range row.says {
				seen = d.waitMessage(v1, row.kind, text)
			}
			require.Equal(t, row.failed, seen.Status == entities.ObjectFailed, seen.Message)
		})
	}
}

// A pod that is declared itself is refused at once, and not as a matter of rights.
func TestARefusedObjectHasAdvice_H3(t *testing.T) {
	d := newTestCluster(t).recording()
	_, err := d.admin.typed.CoreV1().Namespaces().Patch(t.Context(), d.namespace, "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	kubetest.AwaitRefusal(t, d.admin.typed, d.namespace, "violates PodSecurity", nil)
	why := d.mustRefuse(d.instance("v1", "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: web}]}}"), true)
	require.Contains(t, why, "allowPrivilegeEscalation != false")
	require.Contains(t, why, "change the namespace's label pod-security.kubernetes.io/enforce")
	require.NotContains(t, why, "grant that user the permission")
	why = d.mustRefuse(d.instance("v1", "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {priorityClassName: absent, containers: [{name: web, image: web}]}}"), false)
	require.Contains(t, why, "create PriorityClass absent, or change spec.priorityClassName")
}

// A server whose fairness lets nothing through is named as that, and neither a reading nor an apply counts as a failure of the
// version. The answer is that of API priority and fairness, but for Retry-After, for which client-go would wait ten times.
func TestTooManyRequestsAreNoFailure(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", config)
	d.mustApply(v1)
	d.until(v1, "v1", settled("v1"))
	d.injectFault(func(req *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusTooManyRequests, Request: req, ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "X-Kubernetes-Pf-Flowschema-Uid": {"a"}, "X-Kubernetes-Pf-Prioritylevel-Uid": {"b"}},
			Body:   io.NopCloser(strings.NewReader("Too many requests, please try again later.\n")),
		}, nil
	})
	_, err := d.Apply(t.Context(), d.instance("v2", configOf("settings", "c")))
	require.ErrorContains(t, err, "API priority and fairness currently rejects requests of this user")
	require.True(t, runtimes.IsUnready(err), "nothing was changed yet")

	unseen := d.instance("v1", "{apiVersion: batch/v1, kind: CronJob, metadata: {name: a}, spec: {schedule: '* * * * *', jobTemplate: {spec: {template: {spec: {containers: [{name: a, image: a}]}}}}}}")
	var reading *entities.ReadingError
	require.ErrorAs(t, d.untilError(unseen, runtimes.CodeThrottled), &reading)
	require.True(t, reading.Throttled)
	require.Contains(t, reading.Message, "give the worker a FlowSchema")
}

// The namespace that is made carries what is declared for it.
func TestANamespaceIsCreatedWithLabels(t *testing.T) {
	d := newTestCluster(t).recording()
	in := d.instance("v1", config)
	home := d.namespace + "-made"
	in.Payload.Address = map[string]string{"namespace": home}
	in.Payload.Kubernetes.CreateNamespace = true
	in.Payload.Kubernetes.NamespaceLabels = map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}
	in.Payload.Kubernetes.NamespaceAnnotations = map[string]string{"owner": "team-web"}
	require.Contains(t, d.mustApply(in), "created namespace "+home)
	made, err := d.admin.typed.CoreV1().Namespaces().Get(t.Context(), home, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "baseline", made.Labels["pod-security.kubernetes.io/enforce"])
	require.Equal(t, "team-web", made.Annotations["owner"])
}
