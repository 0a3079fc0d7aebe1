package kubernetes

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// refusedDrift compares an object with a declaration whose dry run the server refuses, without the server. A declared field counts as
// different if the live object has another value and Converge is not its owner any more: the server may store a value in another form
// than the declared one, but then the field still belongs to the apply that wrote it. The live object is complete, with its managedFields.
func refusedDrift(live *unstructured.Unstructured, d declared) ([]difference, error) {
	over, err := overlayOf(live, d)
	if err != nil {
		return nil, err
	}
	ours := appliedFields(live)
	found := differences(live, &unstructured.Unstructured{Object: over.merged})
	return slices.DeleteFunc(dropDifferences(found, d.omittedPaths(live)), func(f difference) bool {
		return containsPath(ours, f.at) || f.Old == "" && isEmptyText(f.New)
	}), nil
}

// isEmptyText reports whether a value, as JSON, is one that the server may store as an absent field.
func isEmptyText(text string) bool {
	return slices.Contains([]string{"", "{}", "[]", `""`, "0", "false", "null"}, text)
}
