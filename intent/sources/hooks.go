package sources

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// Annotations of hooks: the moments at which they run, their order, and when they are deleted. Those of Helm become these, and a
// manifest may have them, too.
const (
	annotationHook       = "converge/hook"
	annotationHookWeight = "converge/hook-weight"
	annotationHookDelete = "converge/hook-delete-policy"
)

// moments are those at which a hook may run, in the order in which they come.
var moments = []string{"pre-install", "post-install", "pre-upgrade", "post-upgrade", "pre-rollback", "post-rollback"}

var deletePolicies = []string{"before-hook-creation", "hook-succeeded", "hook-failed"}

// hook turns a Helm hook into one of Converge, and reports whether it is an object to keep: hooks of tests and of deletions are
// not.
func hook(fields map[string]any) bool {
	metadata, _ := fields["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	events, ok := annotations["helm.sh/hook"].(string)
	if !ok {
		return true
	}
	text := func(name string) string {
		text, _ := annotations[name].(string)
		return text
	}
	runs := only(events, moments)
	if runs == "" {
		return false
	}
	annotations[annotationHook] = runs
	if weight, err := strconv.Atoi(text("helm.sh/hook-weight")); err == nil && weight != 0 { // no weight is 0, as Helm has it
		annotations[annotationHookWeight] = strconv.Itoa(weight)
	}
	if policy := only(text("helm.sh/hook-delete-policy"), deletePolicies); policy != "" {
		annotations[annotationHookDelete] = policy
	}
	for _, name := range []string{"helm.sh/hook", "helm.sh/hook-weight", "helm.sh/hook-delete-policy"} {
		delete(annotations, name)
	}
	return true
}

// only is what of a list separated by commas is known, in the order in which it is known.
func only(list string, known []string) string {
	given := strings.Split(strings.ReplaceAll(list, " ", ""), ",")
	return strings.Join(slices.DeleteFunc(slices.Clone(known), func(one string) bool { return !slices.Contains(given, one) }), ",")
}

// wrongHook is what is wrong with an annotation of a hook; false: it is none.
func wrongHook(key, text string) (fault *strict.Fault, is bool) {
	wrong := func(expected string) *strict.Fault {
		return &strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%q is not possible here", strict.Clip(text)), Expected: expected}
	}
	switch key {
	case annotationHook:
		if !allOf(text, moments) {
			return wrong("a list of " + strings.Join(moments, ", ")), true
		}
	case annotationHookDelete:
		if !allOf(text, deletePolicies) {
			return wrong("a list of " + strings.Join(deletePolicies, ", ")), true
		}
	case annotationHookWeight:
		if n, err := strconv.ParseInt(text, 10, 32); err != nil || strconv.FormatInt(n, 10) != text {
			return wrong(`a whole number in quotes, such as "-5"`), true
		}
	default:
		return nil, false
	}
	return nil, true
}

// allOf reports whether a list has nothing else than what is known, and something.
func allOf(list string, known []string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if !slices.Contains(known, strings.TrimSpace(one)) {
			return false
		}
	}
	return true
}
