package kubernetes

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

// removal is the plan of a removal, a line for each object: it has to write nothing.
func (d *recordingCluster) removal(in runtimes.Request) (lines []string) {
	d.Helper()
	d.takeWrites()
	changes, err := d.PlanRemoval(d.Context(), in)
	require.NoError(d, err)
	writes, _ := d.takeWrites()
	require.Empty(d, writes)
	for _, c := range changes {
		line := string(c.Action) + " " + c.Type + "/" + c.Name
		if c.Message != "" {
			line += ": " + c.Message
		}
		lines = append(lines, line)
	}
	return lines
}

// Claims that a StatefulSet has made stay with their data, unless it declares their removal; claims of others are not named.
func TestAPlannedRemovalNamesTheClaimsOfAStatefulSet_A24_H5(t *testing.T) {
	d := newTestCluster(t).recording()
	set := func(says string) string {
		return "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {replicas: 0, serviceName: db, " + says + "selector: {matchLabels: {app: db}}, " +
			"template: {metadata: {labels: {app: db}}, spec: {containers: [{name: db, image: 'db:1'}]}}, " +
			"volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}}"
	}
	d.mustApply(d.instance("v1", set("")))
	for _, name := range []string{"data-db-0", "data-db-1", "data-db-old", "other"} { // as its controller names and labels them
		claim := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": map[string]any{
			"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
		}}}
		claim.SetName(name)
		claim.SetLabels(map[string]string{"app": "db"})
		_, err := d.admin.resourceClient(d.resourceOf("PersistentVolumeClaim"), d.namespace).Create(t.Context(), claim, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.Equal(t, []string{
		"remove StatefulSet/db",
		"keep PersistentVolumeClaim/data-db-0: StatefulSet/db created it, and keeps it",
		"keep PersistentVolumeClaim/data-db-1: StatefulSet/db created it, and keeps it",
	}, d.removal(d.instance("v1", set(""))))

	v2 := d.instance("v2", set("persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}, "))
	d.mustApply(v2)
	require.Equal(t, []string{
		"remove StatefulSet/db",
		"remove PersistentVolumeClaim/data-db-0: StatefulSet/db created it, and has whenDeleted: Delete",
		"remove PersistentVolumeClaim/data-db-1: StatefulSet/db created it, and has whenDeleted: Delete",
	}, d.removal(v2))
}

// denyDeletes makes the server refuse to delete a ConfigMap.
func (d *recordingCluster) denyDeletes(name string) {
	d.Helper()
	policies, fails := d.admin.typed.AdmissionregistrationV1(), admission.Fail
	policy := &admission.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: d.namespace}, Spec: admission.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fails,
		MatchConstraints: &admission.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": d.namespace}},
			ResourceRules: []admission.NamedRuleWithOperations{{RuleWithOperations: admission.RuleWithOperations{
				Operations: []admission.OperationType{admission.Delete},
				Rule:       admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}}},
		},
		Validations: []admission.Validation{{Expression: "oldObject.metadata.name != '" + name + "'", Message: "not today"}},
	}}
	_, err := policies.ValidatingAdmissionPolicies().Create(d.Context(), policy, metav1.CreateOptions{})
	require.NoError(d, err)
	d.Cleanup(func() {
		_ = policies.ValidatingAdmissionPolicies().Delete(context.Background(), d.namespace, metav1.DeleteOptions{})
	})
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(d.Context(), &admission.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: d.namespace},
		Spec:       admission.ValidatingAdmissionPolicyBindingSpec{PolicyName: d.namespace, ValidationActions: []admission.ValidationAction{admission.Deny}},
	}, metav1.CreateOptions{})
	require.NoError(d, err)
	d.Cleanup(func() {
		_ = policies.ValidatingAdmissionPolicyBindings().Delete(context.Background(), d.namespace, metav1.DeleteOptions{})
	})
}

// A deletion that the server would refuse is reported before, and so is an object that is already being deleted and stays.
func TestAPlannedRemovalReportsRefusals_A24(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", config, configOf("held", "x"))
	d.mustApply(v1)
	d.denyDeletes("settings")
	require.Eventually(t, func() bool { // a policy is in force a moment after it was made
		return strings.Contains(strings.Join(d.removal(v1), "\n"), "refuse ")
	}, time.Minute, 50*time.Millisecond)
	lines := strings.Join(d.removal(v1), "\n")
	require.Contains(t, lines, "remove ConfigMap/held")
	require.Contains(t, lines, "refuse ConfigMap/settings: delete ConfigMap "+d.namespace+"/settings: ")
	require.Contains(t, lines, "not today")
	require.ErrorContains(t, d.Remove(t.Context(), v1), "not today")
}

// The plan of a removal is refused for an instance of another installation, as the removal is.
func TestAPlannedRemovalOfAnotherInstallationIsRefused_A24_H10(t *testing.T) {
	d := newTestCluster(t).recording()
	theirs := d.instance("v1", config)
	theirs.Installation, theirs.Fence = "theirs", &runtimes.Fence{Installation: "theirs", Epoch: 1, Sequence: 1, Target: "a"}
	d.mustApply(theirs)
	ours := d.instance("v1", config)
	ours.Installation, ours.Fence = "ours", &runtimes.Fence{Installation: "ours", Epoch: 1, Sequence: 1, Target: "a"}
	_, err := d.PlanRemoval(t.Context(), ours)
	require.ErrorContains(t, err, "it belongs to the installation theirs")
	require.ErrorContains(t, d.Remove(t.Context(), ours), "it belongs to the installation theirs")
}
