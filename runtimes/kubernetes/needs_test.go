package kubernetes

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/kubetest"
)

// inNewNamespace is an instance in a namespace that does not exist; the test removes it at its end.
func (d *recordingCluster) inNewNamespace(version string, objects ...string) (runtimes.Request, string) {
	d.Helper()
	name := "new-" + d.namespace
	in := d.instance(version, objects...)
	in.Payload.Address["namespace"] = name
	in.Payload.Kubernetes.CreateNamespace = true
	d.Cleanup(func() {
		_ = d.admin.typed.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	return in, name
}

// With createNamespace the namespace of the instance is created, also if no declared object is in it: its inventory is. A plan lists it.
func TestCreateNamespaceWithoutObjectsInIt(t *testing.T) {
	rows := map[string][]string{
		"no objects":                    {},
		"only cluster-scoped objects":   {"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS}, rules: []}"},
		"an object in another one":      {"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}}"},
		"an object in a declared one":   {"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: more-NS}}", "{apiVersion: v1, kind: Namespace, metadata: {name: more-NS}}"},
		"a hook":                        {`{apiVersion: v1, kind: ConfigMap, metadata: {name: hook, annotations: {converge/hook: pre-install}}}`},
		"a hook in another one":         {`{apiVersion: v1, kind: ConfigMap, metadata: {name: hook, namespace: NS, annotations: {converge/hook: post-install}}}`},
		"an object in it, and a hook":   {`{apiVersion: v1, kind: ConfigMap, metadata: {name: hook, annotations: {converge/hook: pre-install}}}`, config},
		"a cluster-scoped object first": {`{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: NS, annotations: {converge/wave: "-1"}}, value: 1}`, config},
	}
	for name, objects := range rows {
		t.Run(name, func(t *testing.T) {
			d := newTestCluster(t).recording()
			t.Cleanup(func() {
				ctx := context.Background()
				_ = d.admin.typed.RbacV1().ClusterRoles().Delete(ctx, d.namespace, metav1.DeleteOptions{})
				_ = d.admin.typed.SchedulingV1().PriorityClasses().Delete(ctx, d.namespace, metav1.DeleteOptions{})
				_ = d.admin.typed.CoreV1().Namespaces().Delete(ctx, "more-"+d.namespace, metav1.DeleteOptions{})
			})
			named := make([]string, len(objects))
			for i, o := range objects {
				named[i] = strings.ReplaceAll(o, "NS", d.namespace)
			}
			in, namespace := d.inNewNamespace("v1", named...)
			plan, err := d.Plan(t.Context(), in)
			require.NoError(t, err)
			require.Equal(t, runtimes.Change{Action: runtimes.ActionCreate, Type: "Namespace", Name: namespace, Message: "createNamespace"}, plan[0])
			require.Len(t, plan, len(objects)+1)

			require.Contains(t, d.mustApply(in), "created namespace "+namespace)
			_, err = d.admin.typed.CoreV1().ConfigMaps(namespace).Get(t.Context(), inventoryName(in.Owner), metav1.GetOptions{})
			require.NoError(t, err)
			d.wait("an apply that changes nothing", func() bool {
				d.takeWrites()
				d.mustApply(in)
				writes, _ := d.takeWrites()
				return len(writes) == 0
			}, func() any { return nil })
			plan, err = d.Plan(t.Context(), in)
			require.NoError(t, err)
			require.Empty(t, plan)
		})
	}
}

// Without createNamespace a missing namespace refuses the apply before anything is written, with the option to set.
func TestMissingNamespaceWithoutObjectsInItIsRefused(t *testing.T) {
	d := newTestCluster(t).recording()
	in, namespace := d.inNewNamespace("v1", strings.ReplaceAll("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS}, rules: []}", "NS", d.namespace))
	in.Payload.Kubernetes.CreateNamespace = false
	text := d.mustRefuse(in, false)
	require.Contains(t, text, `namespaces "`+namespace+`" not found`)
	require.Contains(t, text, "set createNamespace")
	_, err := d.admin.typed.RbacV1().ClusterRoles().Get(t.Context(), d.namespace, metav1.GetOptions{})
	require.Error(t, err)
}

// podWith is a Pod with more fields in its spec.
func podWith(name, spec string) string {
	return "{apiVersion: v1, kind: Pod, metadata: {name: " + name + "}, spec: {" + spec + ", containers: [{name: c, image: web, resources: {requests: {memory: 1Gi}, limits: {memory: 1Gi}}}]}}"
}

// An object that admission refuses because of another object of the same payload, which this apply creates or changes before it, is tried
// after that one. A plan says so, and nothing is refused.
func TestObjectsAreTriedAfterWhatAdmissionLooksUp(t *testing.T) {
	quota := func(pods string) string {
		return "{apiVersion: v1, kind: ResourceQuota, metadata: {name: small}, spec: {hard: {pods: \"" + pods + "\"}}}"
	}
	claim := func(size string) string {
		return "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], storageClassName: NS, resources: {requests: {storage: " + size + "}}}}"
	}
	class := func(expands string) string {
		return "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: NS}, provisioner: example.com/none, allowVolumeExpansion: " + expands + "}"
	}
	limits := func(least string) string {
		return "{apiVersion: v1, kind: LimitRange, metadata: {name: small}, spec: {limits: [{type: Pod, max: {memory: " + least + "}}]}}"
	}
	rows := map[string]struct {
		before, after []string
		prepare       func(*recordingCluster)
		as, message   string
	}{
		"the class of a pod": {
			after:   []string{podWith("web", "priorityClassName: NS"), "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: NS}, value: 10}"},
			message: "tried once PriorityClass/NS has changed",
		},
		"the class of a pod, in an earlier wave": {
			after:   []string{strings.Replace(podWith("web", "priorityClassName: NS"), "{name: web}", `{name: web, annotations: {converge/wave: "1"}}`, 1), "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: NS}, value: 10}"},
			message: "tried once PriorityClass/NS has changed",
		},
		"the account of a pod": {
			after:   []string{podWith("web", "serviceAccountName: robot"), "{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}"},
			message: "tried once ServiceAccount/robot has changed",
		},
		"the runtime of a pod": {
			after:   []string{podWith("web", "runtimeClassName: NS"), "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: NS}, handler: fast}"},
			message: "tried once RuntimeClass/NS has changed",
		},
		"a limit that is raised": {
			before: []string{limits("500Mi")}, after: []string{limits("2Gi"), podWith("web", "restartPolicy: Never")},
			message: "tried once LimitRange/small has changed",
		},
		"a quota that is raised": {
			before: []string{quota("0")}, after: []string{quota("9"), podWith("web", "restartPolicy: Never")},
			prepare: func(d *recordingCluster) {
				kubetest.AwaitRefusal(d, d.admin.typed, d.namespace, "exceeded quota: small", nil)
			},
			message: "tried once ResourceQuota/small has changed",
		},
		"a class whose volumes may grow": {
			before: []string{class("false"), claim("1Gi")}, after: []string{class("true"), claim("2Gi")},
			prepare: func(d *recordingCluster) {
				d.patchAs("binder", "PersistentVolumeClaim", "data", `{"status":{"phase":"Bound"}}`, "status")
			},
			message: "tried once StorageClass/NS has changed",
		},
		"the role of a binding": {
			after: []string{
				"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reads}, rules: [{apiGroups: [\"\"], resources: [configmaps], verbs: [get]}]}",
				"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: binds}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reads}}",
			},
			as: "binder",
			prepare: func(d *recordingCluster) {
				d.grant("binder", d.namespace, rbacv1.PolicyRule{APIGroups: []string{"", "rbac.authorization.k8s.io"}, Resources: []string{"configmaps", "roles", "rolebindings"}, Verbs: []string{"get", "list", "watch", "create", "patch", "update"}})
			},
			message: "tried once Role/reads has changed",
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			d := newTestCluster(t, func(user *clientcmdapi.AuthInfo) { user.Impersonate = row.as }).recording()
			t.Cleanup(func() {
				ctx := context.Background()
				_ = d.admin.typed.SchedulingV1().PriorityClasses().Delete(ctx, d.namespace, metav1.DeleteOptions{})
				_ = d.admin.typed.NodeV1().RuntimeClasses().Delete(ctx, d.namespace, metav1.DeleteOptions{})
				_ = d.admin.typed.StorageV1().StorageClasses().Delete(ctx, d.namespace, metav1.DeleteOptions{})
			})
			at := func(version string, objects []string) runtimes.Request {
				named := make([]string, len(objects))
				for i, o := range objects {
					named[i] = strings.ReplaceAll(o, "NS", d.namespace)
				}
				return d.instance(version, named...)
			}
			if row.before != nil {
				d.mustApply(at("v1", row.before))
			}
			if row.prepare != nil {
				row.prepare(d)
			}
			in := at("v2", row.after)
			plan, err := d.Plan(t.Context(), in)
			require.NoError(t, err)
			require.NotContains(t, actionsOf(plan), runtimes.ActionRefuse, plan)
			require.Contains(t, messagesOf(plan), strings.ReplaceAll(row.message, "NS", d.namespace))
			d.mustApply(in)
		})
	}
}

func actionsOf(plan []runtimes.Change) (all []runtimes.Action) {
	for _, c := range plan {
		all = append(all, c.Action)
	}
	return all
}

func messagesOf(plan []runtimes.Change) (all []string) {
	for _, c := range plan {
		all = append(all, c.Message)
	}
	return all
}

// What admission looks up and this apply does not change, or changes later, refuses the apply before it changes anything.
func TestWhatAdmissionMissesRefusesAtOnce(t *testing.T) {
	rows := map[string][]string{
		"a class of nobody":           {podWith("web", "priorityClassName: NS"), config},
		"a class of another name":     {podWith("web", "priorityClassName: NS-2"), "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: NS}, value: 10}"},
		"a class in a later wave":     {podWith("web", "priorityClassName: NS"), `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: NS, annotations: {converge/wave: "1"}}, value: 10}`},
		"an account in another space": {podWith("web", "serviceAccountName: robot"), "{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: default}}"},
		"a class that is refused too": {podWith("web", "priorityClassName: NS"), `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: NS}, value: 2000000000}`},
	}
	for name, objects := range rows {
		t.Run(name, func(t *testing.T) {
			d := newTestCluster(t).recording()
			var named []string
			for _, o := range objects {
				named = append(named, strings.ReplaceAll(o, "NS", d.namespace))
			}
			_, err := d.Apply(t.Context(), d.instance("v1", named...))
			require.ErrorContains(t, err, "apply Pod "+d.namespace+"/web: ")
			writes, _ := d.takeWrites()
			require.Empty(t, writes)
		})
	}
}

// A refusal that only the new namespace brings to light has changed no more than that namespace, and says so: no object of an earlier wave
// is applied before all are tried there.
func TestALateRefusalNamesWhatChanged(t *testing.T) {
	bad := `{apiVersion: v1, kind: Service, metadata: {name: web, annotations: {converge/wave: "5"}}, spec: {ports: [{port: 700000}]}}`
	early := configOf("settings", "x", `converge/wave: "-5"`)
	hook := `{apiVersion: v1, kind: ConfigMap, metadata: {name: "Not A Name", annotations: {converge/hook: post-install}}}`
	for name, row := range map[string]struct {
		objects []string
		create  bool
		says    string
	}{
		"createNamespace":                     {objects: []string{early, bad}, create: true, says: "; changed before this refusal: created namespace NS"},
		"a declared namespace":                {objects: []string{early, bad, "{apiVersion: v1, kind: Namespace, metadata: {name: NS}}"}, says: "; changed before this refusal: created Namespace/NS"},
		"a refused hook in the new namespace": {objects: []string{early, hook}, create: true, says: "; changed before this refusal: created namespace NS"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestCluster(t).recording()
			_, namespace := d.inNewNamespace("v1")
			var named []string
			for _, o := range row.objects {
				named = append(named, strings.ReplaceAll(o, "NS", namespace))
			}
			in, _ := d.inNewNamespace("v1", named...)
			in.Payload.Kubernetes.CreateNamespace = row.create
			text := d.mustRefuse(in, true)
			require.Contains(t, text, strings.ReplaceAll(row.says, "NS", namespace))
			_, err := d.admin.typed.CoreV1().ConfigMaps(namespace).Get(t.Context(), "settings", metav1.GetOptions{})
			require.True(t, apierrors.IsNotFound(err), err)
		})
	}
}
