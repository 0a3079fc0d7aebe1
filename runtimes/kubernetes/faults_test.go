package kubernetes

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/kubetest"
)

// While the server is unavailable nothing is known; when it is back, readings recover automatically, and callers that got an error
// get a hint.
func TestAnUnavailableServerIsUnknownAndRecovers_D17(t *testing.T) {
	b := newTestCluster(t)
	v1 := b.instance("v1", config)
	b.put(v1)
	b.until(v1, "v1", settled("v1"))
	hints := b.hintsOf()
	drain(hints)

	b.proxy.shut()
	err := b.untilError(v1, runtimes.CodeUnreachable)
	// Either the watch finds it first, or the runtime's own check.
	require.Regexp(t, "^observe "+b.namespace+"/web in prod: "+
		"(list configmaps in all namespaces|check that the API server answers): .*refused", err.Error())
	require.NoError(t, b.admin.typed.CoreV1().ConfigMaps(b.namespace).Delete(t.Context(), "settings", metav1.DeleteOptions{}))

	b.proxy.unlock()
	b.waitHint(hints)
	b.until(v1, "changes during the outage", func(objects []entities.Object) bool { return objects[0].Message == "does not exist" })
	drain(hints)
	b.put(v1)
	b.waitHint(hints)
	b.until(v1, "v1 again", settled("v1"))
}

func TestAServerThatNeverAnsweredIsUnreachable(t *testing.T) {
	b := newTestCluster(t)
	b.proxy.shut()
	_, err := b.Observe(t.Context(), b.instance("v1", config))
	require.True(t, hasCode(err, runtimes.CodeUnreachable), err)
}

// An observation ends when its context ends, also when the server accepts and does not answer.
func TestObservingEndsWithItsContext(t *testing.T) {
	b := newTestCluster(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	b.hold.Store(&release)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // the deadline is what is tested
	defer cancel()
	_, err := b.Observe(ctx, b.instance("v1", config))
	require.True(t, hasCode(err, runtimes.CodeTimeout), err)

	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = b.Observe(ctx, b.instance("v1", config))
	require.ErrorIs(t, err, context.Canceled)
}

func TestCredentialsThatAreNotAccepted(t *testing.T) {
	b := newTestCluster(t, func(user *clientcmdapi.AuthInfo) { *user = clientcmdapi.AuthInfo{Token: "expired"} })
	_, err := b.Observe(t.Context(), b.instance("v1", config))
	require.True(t, hasCode(err, runtimes.CodeUnauthorized), err)
}

// grant gives a user verbs in a namespace, or in all when it is empty.
func (b *testCluster) grant(user, namespace string, rules ...rbacv1.PolicyRule) {
	b.Helper()
	name := fmt.Sprintf("%s-%s", b.namespace, user)
	subjects := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}}
	rbac := b.admin.typed.RbacV1()
	_, err := rbac.Roles(namespace).Create(b.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	require.NoError(b, err)
	_, err = rbac.RoleBindings(namespace).Create(b.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}, metav1.CreateOptions{})
	require.NoError(b, err)
}

func as(user string) func(*clientcmdapi.AuthInfo) {
	return func(info *clientcmdapi.AuthInfo) { info.Impersonate = user }
}

// A worker without rights says which one is missing; with rights in one namespace it works there.
func TestRightsInOneNamespaceAreEnough(t *testing.T) {
	b := newTestCluster(t, as("narrow"))
	v1 := b.instance("v1", config, deploymentOf("web:1", 1, ""))
	b.put(v1)
	_, err := b.Observe(t.Context(), v1)
	require.True(t, hasCode(err, runtimes.CodeForbidden), err)
	require.Contains(t, err.Error(), "list configmaps in "+b.namespace)

	read := []string{"get", "list", "watch", "patch"}
	b.grant("narrow", b.namespace,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps", "pods", "events"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments", "replicasets"}, Verbs: read})
	b.until(v1, "v1 by rights in the namespace", settled("v1"))
	hints := b.hintsOf()
	b.waitQuiet(v1, hints)
	before := b.requests.Load()
	b.observe(v1)
	b.requireFewRequests(before, 0, "idle, in one namespace")

	require.NoError(t, b.admin.typed.CoreV1().ConfigMaps(b.namespace).Delete(t.Context(), "settings", metav1.DeleteOptions{}))
	b.waitHint(hints)
}

// Pods are read to say more; without the right to, a Deployment that is not well says so and is no error.
func TestForbiddenPodsAreReported(t *testing.T) {
	b := newTestCluster(t, as("podless"))
	read := []string{"get", "list", "watch", "patch"}
	b.grant("podless", b.namespace,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments", "replicasets"}, Verbs: read})
	v1 := b.instance("v1", deploymentOf("web:nopull", 1, ""))
	b.put(v1)
	seen := b.until(v1, "why the pods are unknown", func(objects []entities.Object) bool {
		return objects[0].Status == entities.ObjectPending && len(objects[0].Versions) == 1 && objects[0].Versions[0].Replicas == 1
	})
	require.Contains(t, seen[0].Message, "its pods cannot be read: list pods in "+b.namespace)
}

const thing = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.read.example.com}
spec:
  group: read.example.com
  scope: Namespaced
  names: {kind: %[2]s, plural: %[1]ss, singular: %[1]s}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// A definition that is removed under the watch, and one that is not there yet, leave objects absent;
// when it is there (again), its objects are seen.
func TestAKindIsInstalledAndRemoved(t *testing.T) {
	b := newTestCluster(t)
	kind := "Thing" + b.namespace[len("read-"):]
	plural := "thing" + b.namespace[len("read-"):]
	definition := fmt.Sprintf(thing, plural, kind)
	custom := fmt.Sprintf("{apiVersion: read.example.com/v1, kind: %s, metadata: {name: a}, spec: {size: 1}}", kind)
	in := b.instance("v1", custom)
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	remove := func() {
		_ = b.admin.dynamic.Resource(crds).Delete(context.Background(), plural+"s.read.example.com", metav1.DeleteOptions{})
	}
	t.Cleanup(remove)

	seen := b.observe(in)
	require.Equal(t, "does not exist: the server does not know the kind "+kind+" of read.example.com/v1", seen[0].Message)
	for range 2 {
		crd := b.instance("v1", definition)
		b.put(crd)
		b.until(crd, "the definition", settled("v1"))
		b.until(in, "the kind", func(objects []entities.Object) bool { return objects[0].Message == "does not exist" })
		b.put(in)
		b.until(in, "an object of it", settled("v1"))
		remove()
		b.until(in, "the kind gone", func(objects []entities.Object) bool {
			return objects[0].Message != "does not exist" && len(objects[0].Versions) == 0
		})
	}
}

// What is wrong with an image or a command is reported at once, and fails the object when it lasts.
func TestPodsThatCannotStart(t *testing.T) {
	b := newTestCluster(t)
	v1 := b.instance("v1", deploymentOf("web:nopull", 1, ""))
	b.put(v1)
	seen := b.until(v1, "the pull that fails", func(objects []entities.Object) bool {
		return len(objects[0].Events) > 0 && strings.Contains(objects[0].Message, "Image")
	})
	require.Equal(t, entities.ObjectPending, seen[0].Status)
	require.Regexp(t, `^(ErrImagePull|ImagePullBackOff) web-[a-z0-9]+-[a-z0-9]+: .+`, seen[0].Message)
	require.Regexp(t, `^(Deployment|ReplicaSet) web`, seen[0].Events[0].Message)
	b.now = func() time.Time { return time.Now().Add(b.def.Kubernetes.FailAfter + time.Second) }
	require.Equal(t, entities.ObjectFailed, b.observe(v1)[0].Status)

	b.now = time.Now
	v2 := b.instance("v2", deploymentOf("web:crash", 1, ""))
	b.put(v2)
	b.until(v2, "the crash", func(objects []entities.Object) bool {
		return objects[0].Status == entities.ObjectPending && objects[0].Versions[0].Version == "v2" && strings.HasPrefix(objects[0].Message, "CrashLoopBackOff web-")
	})
}

func TestAQuotaIsReportedWithTheServersMessage(t *testing.T) {
	b := newTestCluster(t)
	b.put(b.instance("v1", "{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {pods: '0'}}}"))
	b.wait("the quota", func() bool {
		q, err := b.admin.typed.CoreV1().ResourceQuotas(b.namespace).Get(t.Context(), "none", metav1.GetOptions{})
		if err == nil && len(q.Status.Hard) == 0 { // its controller need not run here
			q.Status.Hard = q.Spec.Hard
			q.Status.Used = corev1.ResourceList{"pods": resourceapi.MustParse("0")}
			_, err = b.admin.typed.CoreV1().ResourceQuotas(b.namespace).UpdateStatus(t.Context(), q, metav1.UpdateOptions{})
		}
		return err == nil && len(q.Status.Hard) > 0
	}, func() any { return nil })
	kubetest.AwaitRefusal(t, b.admin.typed, b.namespace, "exceeded quota", nil)
	v1 := b.instance("v1", deploymentOf("web:1", 1, ""))
	b.put(v1)
	b.until(v1, "the quota in the message", func(objects []entities.Object) bool {
		o := objects[0]
		return o.Status == entities.ObjectPending && len(o.Versions) == 1 && strings.Contains(o.Message, "FailedCreate") && strings.Contains(o.Message, "exceeded quota")
	})
}

// A refusal alone is no drift: no field that Converge applied was changed by others. The message says why the server refuses the
// declaration.
func TestARefusalWithoutAnEditIsNoDrift(t *testing.T) {
	b := newTestCluster(t)
	v1 := b.instance("v1", `
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a, command: ["true"]}]}}}
`)
	b.put(v1)
	b.until(v1, "the Job", settled("v1"))
	hints := b.hintsOf()
	b.waitQuiet(v1, hints)
	other := b.instance("v1", `
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: b, command: ["true"]}]}}}
`)
	seen := b.observe(other)
	require.Equal(t, entities.ObjectSucceeded, seen[0].Status)
	require.False(t, seen[0].Versions[0].Drifted)
	require.Contains(t, seen[0].Message, "the server refuses the declaration: ")
	require.Contains(t, seen[0].Message, "field is immutable")
	before := b.requests.Load()
	b.observe(other)
	b.requireFewRequests(before, 0, "requested again without a change")
	b.now = func() time.Time { return time.Now().Add(refusalTTL + time.Second) }
	b.observe(other)
	b.requireFewRequests(before, 2, "not compared again: a dry run, and the server's own object")
}

// StatefulSets, DaemonSets and Jobs are read as far as Deployments are.
func TestOtherWorkloads(t *testing.T) {
	b := newTestCluster(t)
	template := `{metadata: {labels: {app: %[1]s}, annotations: {kubelab/ready-in: 300ms}}, spec: {containers: [{name: a, image: "a:%[2]s"}]}}`
	objects := func(tag string) []string {
		return []string{
			fmt.Sprintf("{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent}, spec: {selector: {matchLabels: {app: agent}}, template: "+template+"}}", "agent", tag),
			fmt.Sprintf("{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {serviceName: db, replicas: 2, selector: {matchLabels: {app: db}}, template: "+template+"}}", "db", tag),
			"{apiVersion: batch/v1, kind: CronJob, metadata: {name: nightly}, spec: {schedule: '0 3 * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}}}",
		}
	}
	v1, v2 := b.instance("v1", objects("1")...), b.instance("v2", objects("2")...)
	b.put(v1)
	b.until(v1, "v1", settled("v1"))
	b.put(v2)
	b.until(v2, "two versions of the StatefulSet", func(objects []entities.Object) bool {
		return len(objects[1].Versions) == 2 && objects[1].Status == entities.ObjectPending || len(objects[2].Versions) == 2 && objects[2].Status == entities.ObjectPending
	})
	b.until(v2, "v2", settled("v2"))
}

// Nothing of ours continues after Close, also when the server is unavailable.
func TestCloseLeavesNothingBehind(t *testing.T) {
	for name, down := range map[string]bool{"well": false, "server unavailable": true} {
		t.Run(name, func(t *testing.T) {
			b := newExclusiveTestCluster(t)
			v1 := b.instance("v1", config, deploymentOf("web:1", 1, ""))
			b.put(v1)
			b.clusters.Close()
			b.clusters = &Clusters{}
			before := runtime.NumGoroutine()
			rt, err := New(b.def, b.clusters)
			require.NoError(t, err)
			b.Runtime = rt
			b.until(v1, "v1", settled("v1"))
			require.Greater(t, runtime.NumGoroutine(), before)
			if down {
				b.proxy.shut()
				b.untilError(v1, runtimes.CodeUnreachable)
			}
			b.clusters.Close()
			_, err = b.Observe(t.Context(), v1)
			require.Error(t, err)
			b.wait("the end of all goroutines", func() bool { return runtime.NumGoroutine() <= before }, func() any { return stacks() })
		})
	}
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

func TestOneHintReachesEveryListenerUntilItStops(t *testing.T) {
	b := newTestCluster(t)
	v1 := b.instance("v1", config)
	b.put(v1)
	b.until(v1, "v1", settled("v1"))
	first, second := b.hintsOf(), make(chan runtimes.Owner, 100)
	stop := b.Watch(func(o runtimes.Owner) { second <- o })
	change := func(value string) {
		patch := fmt.Sprintf(`{"data":{"other":"%s"}}`, value)
		_, err := b.admin.typed.CoreV1().ConfigMaps(b.namespace).Patch(t.Context(), "settings", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	change("1")
	b.waitHint(first)
	b.wait("the second listener", func() bool { return len(second) > 0 }, func() any { return nil })
	stop()
	drain(first)
	drain(second)
	change("2")
	b.waitHint(first)
	require.Empty(t, second)
}

// While what fails is going to be replaced by what is asked about, and pods of that run already, the failure is not of that: a
// rollback must not count as failed because of the version that it replaces.
func TestAFailedVersionDoesNotFailItsRollback(t *testing.T) {
	b := newTestCluster(t)
	v1, broken := b.instance("v1", deploymentOf("web:1", 2, "")), b.instance("v2", deploymentOf("web:nopull", 2, ""))
	b.put(v1)
	b.until(v1, "v1", settled("v1"))
	b.put(broken)
	b.now = func() time.Time { return time.Now().Add(b.def.Kubernetes.FailAfter + time.Second) }
	failed := func(objects []entities.Object) bool { return objects[0].Status == entities.ObjectFailed }
	b.until(broken, "v2 has failed", failed)

	seen := b.observe(v1)[0] // as an observation that comes before the watch has brought the change back
	require.Equal(t, entities.ObjectPending, seen.Status)
	require.Contains(t, seen.Message, "reported status is from before the apply: ")
	b.put(v1)
	b.until(v1, "v1 again", func(objects []entities.Object) bool {
		require.False(t, failed(objects), objects[0].Message)
		return settled("v1")(objects)
	})
}
