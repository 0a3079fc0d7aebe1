package kubernetes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/runtimes"
)

// Whole numbers above 2^53 keep their digits in the cluster, and are neither drift nor a change.
func TestWholeNumbersKeepTheirDigits(t *testing.T) {
	d := newTestCluster(t).recording()
	group := strings.ReplaceAll(d.namespace, "-", "") + ".dev"
	definition := `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.` + group + `},
		spec: {group: ` + group + `, scope: Namespaced, names: {plural: widgets, kind: Widget},
		versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object,
		required: [big], properties: {big: {type: integer, format: int64}, free: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}}]}}`
	widget := func(big, id string) string {
		return `{apiVersion: ` + group + `/v1, kind: Widget, metadata: {name: w}, spec: {big: ` + big + `, free: {all: [{id: ` + id + `}], small: 1}}}`
	}
	v1 := d.instance("v1", definition, widget("9007199254740993", "1234567890123456789"))
	d.wait("the kind is served", func() bool { _, err := d.Apply(t.Context(), v1); return err == nil }, func() any { return nil })
	r, err := d.cluster.resource(t.Context(), schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Widget"})
	require.NoError(t, err)
	live, err := d.admin.resourceClient(r, d.namespace).Get(t.Context(), "w", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, int64(9007199254740993), nestedMap(live.Object, "spec")["big"])
	require.Equal(t, map[string]any{"all": []any{map[string]any{"id": int64(1234567890123456789)}}, "small": int64(1)}, nestedMap(live.Object, "spec", "free"))
	d.until(v1, "v1", settled("v1"))
	require.Equal(t, []string{"unchanged 2 objects"}, d.mustApply(v1))

	plan, err := d.Plan(t.Context(), d.instance("v1", definition, widget("9007199254740995", "1234567890123456789")))
	require.NoError(t, err)
	require.Len(t, plan, 1)
	require.Equal(t, []runtimes.FieldChange{{Path: "spec.big", Old: "9007199254740993", New: "9007199254740995"}}, plan[0].Fields)
}
