package sources

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// Annotations of hooks: when they run, their order, and when they are deleted. Helm's annotations are converted to these, and a manifest
// may use them, too.
const (
	annotationHook       = "converge/hook"
	annotationHookWeight = "converge/hook-weight"
	annotationHookDelete = "converge/hook-delete-policy"
)

// The annotations of Helm's hooks.
const (
	HelmHook       = "helm.sh/hook"
	helmHookWeight = "helm.sh/hook-weight"
	helmHookDelete = "helm.sh/hook-delete-policy"
)

// hookEvents lists the times at which a hook may run, in their order.
var hookEvents = []string{
	"pre-install", "post-install", "pre-upgrade", "post-upgrade", "pre-rollback", "post-rollback", "pre-delete", "post-delete", "on-failure",
}

var deletePolicies = []string{"before-hook-creation", "hook-succeeded", "hook-failed"}

// IsDeployed reports whether an object with these annotations is deployed: it is no hook of Helm, or one that runs here. Hooks of tests
// do not.
func IsDeployed(annotations map[string]any) bool {
	events, ok := annotations[HelmHook].(string)
	return !ok || filterKnown(events, hookEvents) != ""
}

// normalizeHook converts a Helm hook to a Converge hook, and reports whether to keep the object.
func normalizeHook(fields map[string]any) bool {
	metadata, _ := fields["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if !IsDeployed(annotations) {
		return false
	}
	events, ok := annotations[HelmHook].(string)
	if !ok {
		return true
	}
	text := func(name string) string {
		text, _ := annotations[name].(string)
		return text
	}
	annotations[annotationHook] = filterKnown(events, hookEvents)
	if weight, err := strconv.Atoi(text(helmHookWeight)); err == nil && weight != 0 { // a missing weight is 0, as in Helm
		annotations[annotationHookWeight] = strconv.Itoa(weight)
	}
	if policy := filterKnown(text(helmHookDelete), deletePolicies); policy != "" {
		annotations[annotationHookDelete] = policy
	}
	for _, name := range []string{HelmHook, helmHookWeight, helmHookDelete} {
		delete(annotations, name)
	}
	return true
}

// filterKnown returns the known items of a comma-separated list, in the order of known.
func filterKnown(list string, known []string) string {
	given := strings.Split(strings.ReplaceAll(list, " ", ""), ",")
	return strings.Join(slices.DeleteFunc(slices.Clone(known), func(one string) bool { return !slices.Contains(given, one) }), ",")
}

// hookFault returns the problem of a hook annotation; is reports whether it is one.
func hookFault(key, text string) (fault *strict.Fault, is bool) {
	badValue := func(expected string) *strict.Fault {
		return &strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%q is not possible here", strict.Clip(text)), Expected: expected}
	}
	switch key {
	case annotationHook:
		if !allOf(text, hookEvents) {
			return badValue("a list of " + strings.Join(hookEvents, ", ")), true
		}
	case annotationHookDelete:
		if !allOf(text, deletePolicies) {
			return badValue("a list of " + strings.Join(deletePolicies, ", ")), true
		}
	case annotationHookWeight:
		if n, err := strconv.ParseInt(text, 10, 32); err != nil || strconv.FormatInt(n, 10) != text {
			return badValue(`a whole number in quotes, such as "-5"`), true
		}
	default:
		return nil, false
	}
	return nil, true
}

// allOf reports whether a list is not empty and has only known items.
func allOf(list string, known []string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if !slices.Contains(known, strings.TrimSpace(one)) {
			return false
		}
	}
	return true
}
