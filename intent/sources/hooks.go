package sources

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// What Helm does by hooks is done by waves: those before an installation or upgrade come before
// everything, those after it last, in the order of their weights.
const (
	hookWave  = 100_000
	maxWeight = 50_000
)

// reopen puts substitutions back for the tokens that a chart was rendered with.
func reopen(node *yaml.Node, seen map[*yaml.Node]bool) {
	if node == nil || seen[node] {
		return
	}
	seen[node] = true
	if node.Kind == yaml.ScalarNode {
		node.Value = Reopen(node.Value)
	}
	for _, inner := range node.Content {
		reopen(inner, seen)
	}
}

// hook turns a Helm hook into an object of a wave, and tells whether it is one to keep: hooks of
// tests, deletions and rollbacks are not.
func hook(fields map[string]any) bool {
	metadata, _ := fields["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	events, ok := annotations["helm.sh/hook"].(string)
	if !ok {
		return true
	}
	when := strings.Split(strings.ReplaceAll(events, " ", ""), ",")
	is := func(events ...string) bool {
		return slices.ContainsFunc(when, func(event string) bool { return slices.Contains(events, event) })
	}
	wave := 0
	switch {
	case is("pre-install", "pre-upgrade"):
		wave = -hookWave
	case is("post-install", "post-upgrade"):
		wave = hookWave
	default:
		return false
	}
	text, _ := annotations["helm.sh/hook-weight"].(string)
	weight, _ := strconv.Atoi(text) // no weight is 0, as Helm has it
	wave += min(max(weight, -maxWeight), maxWeight)
	for _, name := range []string{"helm.sh/hook", "helm.sh/hook-weight", "helm.sh/hook-delete-policy"} {
		delete(annotations, name)
	}
	if _, given := annotations[annotationWave]; !given {
		annotations[annotationWave] = strconv.Itoa(wave)
	}
	// Without a policy, too, Helm deletes a hook before it makes it again.
	annotations[annotationRecreate] = "true"
	return true
}
