package sources

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/intent/internal/canonical"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Objects that another tool deployed carry annotations that tell it when and how to apply them. A service can ask that those of one tool have
// the same meaning here; the annotations of Converge on the same object come first. Annotations that need nothing here (what the tool's own
// controllers write, options that are always on, and those that keep an object: runtimes/kubernetes/keep.go) are in no table.

// The tools whose annotations can be honoured.
const (
	ArgoCD = "argocd"
	Flux   = "flux"
)

// Honoured is an object after the annotations of a tool.
type Honoured struct {
	Object     *Object // nil: the tool would not apply it with the others
	Excluded   string  // the reason why it is neither applied nor removed; then Object is nil
	CreateOnly bool    // it is applied only if it does not exist
	// Changes are the annotations that have an effect here, Refused those that have none although they ask for one, with the reason.
	Changes []string
	Refused map[string]string
}

// Honour gives an object the meaning that its annotations have for a tool. The object itself is not changed. An encrypted object cannot be
// changed; its annotations are refused. servedFirst reports that the service declares the definition of its kind, or that Kubernetes has it.
func (o *Object) Honour(tool string, servedFirst bool) (Honoured, error) {
	fields := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(o.Data))
	decoder.UseNumber() // digits stay as they are
	if err := decoder.Decode(&fields); err != nil {
		return Honoured{}, err
	}
	metadata, _ := fields["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	h := &honouring{kind: o.Kind, servedFirst: servedFirst, given: map[string]string{}, add: map[string]string{}, refused: map[string]string{}}
	if tool == Flux { // it reads its labels in the same way
		labels, _ := metadata["labels"].(map[string]any)
		h.read(labels)
	}
	h.read(annotations)
	if tool == ArgoCD {
		h.argo()
	} else {
		h.flux()
	}
	result := Honoured{Object: o, Excluded: h.excluded, CreateOnly: h.createOnly, Changes: slices.Compact(slices.Sorted(slices.Values(h.changes))), Refused: h.refused}
	switch {
	case h.dropped:
		result.Object = nil
	case len(h.add) > 0 && o.Encrypted:
		for _, name := range result.Changes {
			h.refused[name] = "the object is encrypted and cannot be changed"
		}
		result.Changes = nil
	case len(h.add) > 0:
		if annotations == nil {
			annotations = map[string]any{}
			metadata["annotations"] = annotations
		}
		for name, value := range h.add {
			annotations[name] = value
		}
		data, err := canonical.JSON(fields)
		if err != nil {
			return Honoured{}, err
		}
		changed := *o
		changed.Data, changed.Digest = data, canonical.Hash(data)
		result.Object = &changed
	}
	return result, nil
}

// honouring reads the annotations of one object.
type honouring struct {
	kind                string
	given, add, refused map[string]string
	changes             []string
	servedFirst         bool
	dropped, createOnly bool
	excluded            string
}

// read takes in the texts of annotations or labels.
func (h *honouring) read(entries map[string]any) {
	for name, value := range entries {
		if text, ok := value.(string); ok {
			h.given[name] = text
		}
	}
}

// set adds an annotation of Converge for one of the tool, unless the object has it.
func (h *honouring) set(from, name, value string) {
	h.changes = append(h.changes, from)
	if _, own := h.given[name]; !own {
		h.add[name] = value
	}
}

func (h *honouring) drop(from string) { h.changes, h.dropped = append(h.changes, from), true }

// exclude leaves the object out, and out of removals too.
func (h *honouring) exclude(from string) {
	h.drop(from)
	h.excluded = from + ": " + h.given[from]
}

func (h *honouring) refuse(from, why string) { h.refused[from] = why }

// listOf splits a list separated by commas.
func listOf(text string) (all []string) {
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}

// The annotations of Argo CD.
const (
	argoHook       = "argocd.argoproj.io/hook"
	argoHookDelete = "argocd.argoproj.io/hook-delete-policy"
	argoWave       = "argocd.argoproj.io/sync-wave"
	argoOptions    = "argocd.argoproj.io/sync-options"
	argoCompare    = "argocd.argoproj.io/compare-options"
	argoHealth     = "argocd.argoproj.io/ignore-healthcheck"
	argoLink       = "link.argocd.argoproj.io/"
)

// argoMoments are the moments of Argo CD's hooks, and of Helm's as it reads them, with ours. No moment: it runs with the other objects.
var argoMoments = map[string]string{
	"PreSync": "pre-install,pre-upgrade,pre-rollback", "PostSync": "post-install,post-upgrade,post-rollback", "Sync": "",
	"pre-install": "pre-install,pre-upgrade,pre-rollback", "pre-upgrade": "pre-install,pre-upgrade,pre-rollback",
	"post-install": "post-install,post-upgrade,post-rollback", "post-upgrade": "post-install,post-upgrade,post-rollback",
	"SyncFail": "on-failure", "PreDelete": "pre-delete", "PostDelete": "post-delete", "pre-delete": "pre-delete", "post-delete": "post-delete",
}

// argoPolicies are the deletion policies of Argo CD's hooks, with ours.
var argoPolicies = map[string]string{"HookSucceeded": "hook-succeeded", "HookFailed": "hook-failed", "BeforeHookCreation": "before-hook-creation"}

func (h *honouring) argo() {
	if isHook := h.argoHook(); !isHook {
		h.argoWave(argoWave, annotationWave)
	}
	h.argoOptions()
	if value := h.given[argoCompare]; slices.Contains(listOf(value), "ServerSideDiff=false") {
		h.refuse(argoCompare, "objects are always compared by the server")
	}
	if h.given[argoHealth] == "true" {
		h.refuse(argoHealth, "the health of every object counts")
	}
	for _, name := range strict.Keys(h.given) {
		if link, ok := strings.CutPrefix(name, argoLink); ok {
			_, address, titled := strings.Cut(h.given[name], "|")
			if !titled {
				address = h.given[name]
			}
			h.set(name, annotationLink+link, address)
		}
	}
}

// argoHook reads the annotations of a hook; isHook is false if the object is none.
func (h *honouring) argoHook() (isHook bool) {
	from, fromWeight, fromDelete := argoHook, argoWave, argoHookDelete
	text, ok := h.given[argoHook]
	if !ok {
		from, fromDelete = HelmHook, helmHookDelete
		if text, ok = h.given[HelmHook]; !ok || text == "crd-install" {
			return false
		}
		if _, wave := h.given[argoWave]; !wave {
			fromWeight = helmHookWeight
		}
	}
	types := listOf(text)
	if slices.Contains(types, "Skip") {
		h.drop(from)
		return true
	}
	events, withOthers := h.momentsOf(from, types)
	switch {
	case events != "":
		h.set(from, annotationHook, filterKnown(events, hookEvents))
		h.argoWave(fromWeight, annotationHookWeight)
		h.argoPolicy(fromDelete)
	case withOthers:
		h.set(from, annotationRecreate, "true")
		h.argoWave(fromWeight, annotationWave)
		if policies := listOf(h.given[fromDelete]); len(policies) > 0 && !slices.Equal(policies, []string{"BeforeHookCreation"}) {
			h.refuse(fromDelete, "a hook of the moment Sync stays until the next version")
		}
	default:
		h.drop(from)
	}
	return true
}

// momentsOf are our moments for those of a hook; withOthers reports whether it runs with the other objects.
func (h *honouring) momentsOf(from string, types []string) (events string, withOthers bool) {
	var all []string
	for _, one := range types {
		moments, known := argoMoments[one]
		switch {
		case !known:
			h.refuse(from, "Argo CD has no hook at "+one+"; the object is left out unless it has another moment")
		case moments == "":
			withOthers = true
		default:
			all = append(all, moments)
		}
	}
	if withOthers && len(all) > 0 {
		h.refuse(from, "a hook does not also run with the other objects")
	}
	return strings.Join(all, ","), withOthers
}

func (h *honouring) argoWave(from, to string) {
	text, ok := h.given[from]
	if !ok {
		return
	}
	wave, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	switch {
	case err != nil:
		h.refuse(from, "it is no whole number")
	case wave != 0:
		h.set(from, to, strconv.FormatInt(wave, 10))
	}
}

func (h *honouring) argoPolicy(from string) {
	var all []string
	for _, one := range listOf(h.given[from]) {
		policy, known := argoPolicies[one]
		if !known && slices.Contains(deletePolicies, one) {
			policy, known = one, true // of Helm
		}
		if !known {
			h.refuse(from, "there is no policy "+one)
			continue
		}
		all = append(all, policy)
	}
	if len(all) > 0 {
		h.set(from, annotationHookDelete, filterKnown(strings.Join(all, ","), deletePolicies))
	}
}

// argoSkipDryRun is for an object whose definition is applied together with it.
const argoSkipDryRun = "SkipDryRunOnMissingResource=true"

// argoRefused are the options of one object that have no effect here. Those that are always on, and those that keep an object, need nothing.
var argoRefused = map[string]string{
	"Replace=true":                   "objects are applied by the server and not replaced: fields of others stay",
	argoSkipDryRun:                   "every object is tried before the first change, unless this service declares the definition of its kind",
	"ServerSideApply=false":          "objects are always applied by the server",
	"Validate=false":                 "the server checks every object",
	"ClientSideApplyMigration=false": "an adoption takes over the fields of client-side applies",
}

func (h *honouring) argoOptions() {
	options := listOf(h.given[argoOptions])
	for _, option := range options {
		switch {
		case option == "Force=true":
			h.set(argoOptions, annotationRecreate, "true")
		case option == "PrunePropagationPolicy=foreground", option == "PrunePropagationPolicy=orphan":
			h.set(argoOptions, annotationPrune, strings.TrimPrefix(option, "PrunePropagationPolicy="))
		case option == "Replace=true" && slices.Contains(options, "Force=true"):
		case option == argoSkipDryRun && h.servedFirst: // it is tried once its kind is served
		case argoRefused[option] != "":
			h.refuse(argoOptions, option+": "+argoRefused[option])
		}
	}
}

// The annotations of Flux.
const (
	fluxReconcile = "kustomize.toolkit.fluxcd.io/reconcile"
	fluxApply     = "kustomize.toolkit.fluxcd.io/ssa"
	fluxForce     = "kustomize.toolkit.fluxcd.io/force"
	fluxDrift     = "helm.toolkit.fluxcd.io/driftDetection"
)

func (h *honouring) flux() {
	switch value := h.given[fluxApply]; {
	case strings.EqualFold(value, "Ignore"):
		h.exclude(fluxApply)
	case strings.EqualFold(value, "IfNotPresent"):
		h.changes, h.createOnly = append(h.changes, fluxApply), true
	}
	if strings.EqualFold(h.given[fluxReconcile], "disabled") {
		h.exclude(fluxReconcile)
	}
	if strings.EqualFold(h.given[fluxForce], "enabled") {
		h.set(fluxForce, annotationRecreate, "true")
	}
	if strings.EqualFold(h.given[fluxDrift], "disabled") {
		h.refuse(fluxDrift, "use ignoreDifferences of the service")
	}
}

// Pointers are the JSON pointers of all declared fields of an object but those that identify it.
func (o *Object) Pointers() ([]string, error) {
	fields := map[string]any{}
	if err := json.Unmarshal(o.Data, &fields); err != nil {
		return nil, err
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1").Replace
	var all []string
	for name := range fields {
		if name != "apiVersion" && name != "kind" && name != "metadata" {
			all = append(all, "/"+escape(name))
		}
	}
	metadata, _ := fields["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		entries, _ := metadata[field].(map[string]any)
		for name := range maps.Keys(entries) {
			all = append(all, "/metadata/"+field+"/"+escape(name))
		}
	}
	slices.Sort(all)
	return all, nil
}
