package sources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/canonical"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Kustomize applies patches in the renderer process, and only to their target objects. Other objects stay byte-identical. This package
// selects the targets, so that it can reject a patch without a target.

// patched is the result of a patch.
type patched struct {
	objects []*Object // in the order of the input; nil: deleted
	faults  []strict.Fault
}

// patchFile reads a patch file, and checks that it contains a patch.
func (l *objectLoader) patchFile(s *config.Document[config.Service], at string, p config.ObjectPatch) {
	switch {
	case s.Faulty(at):
	case (p.Path == "") == (p.Patch == ""):
		l.reportFault(s, at, strict.Fault{Code: "one-of", Message: "a patch has one source", Expected: `either "patch" or "path"`})
	case p.Path != "":
		l.readAt(s, at+".path", p.Path, asList(func(full string) *strict.Fault {
			text, fault := l.Read(full, config.MaxSource)
			if fault == nil {
				l.into.Patches[full] = string(text)
			}
			return fault
		}))
	}
}

// Patch applies a patch once to the same objects, for all services and channels.
func (from *Objects) Patch(objects []*Object, target *config.PatchTarget, text string) ([]*Object, []strict.Fault) {
	key := strings.Builder{}
	for _, o := range objects {
		key.WriteString(o.Digest + o.Source + "\n")
	}
	to, err := canonical.JSON([]any{target, text})
	if err != nil {
		return nil, []strict.Fault{{Code: "patch", Message: err.Error()}}
	}
	memo := canonical.Hash(append([]byte(key.String()), to...))
	from.mu.Lock()
	defer from.mu.Unlock()
	if from.patched[memo] == nil {
		result := &patched{}
		if result.objects, result.faults, err = patch(objects, target, text); err != nil {
			result.faults = append(result.faults, refusal("patch", "", err))
		}
		from.patched[memo] = result
	}
	return from.patched[memo].objects, from.patched[memo].faults
}

func patch(objects []*Object, target *config.PatchTarget, text string) ([]*Object, []strict.Fault, error) {
	parts, err := patchesIn(text, target != nil)
	if err != nil {
		return nil, nil, err
	}
	all := append([]*Object{}, objects...)
	for _, p := range parts {
		chosen, err := p.selectObjects(all, target)
		if err != nil {
			return nil, nil, err
		}
		faults, err := p.apply(all, chosen)
		if err != nil || len(faults) > 0 {
			return nil, faults, err
		}
	}
	return all, nil, nil
}

// onePatch is a strategic merge patch, or a list of operations.
type onePatch struct {
	merge map[string]any
	list  []any
}

// patchesIn reads a patch file: one patch if there is a target, else any number of documents that name their objects.
func patchesIn(text string, targeted bool) (all []onePatch, err error) {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var node yaml.Node
		if err := config.DecodeNode(decoder, &node); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("the patch is not valid YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		var v any
		if err := node.Decode(&v); err != nil {
			return nil, fmt.Errorf("the patch cannot be read: %s", strict.OneLine(err.Error()))
		}
		switch v := v.(type) {
		case map[string]any:
			all = append(all, onePatch{merge: v})
		case []any:
			all = append(all, onePatch{list: v})
		default:
			return nil, &Refusal{"the patch is neither a mapping nor a list", "part of an object, or a list of operations: {op, path, value}"}
		}
	}
	switch {
	case len(all) == 0:
		return nil, &Refusal{"the patch is empty", "part of an object, or a list of operations"}
	case targeted && len(all) > 1:
		return nil, &Refusal{"the patch has several documents, and a target", "one of them for each target"}
	}
	return all, nil
}

// selectObjects returns the indexes of the target objects of a patch.
func (p onePatch) selectObjects(objects []*Object, target *config.PatchTarget) ([]int, error) {
	if target == nil {
		var err error
		if target, err = p.ownTarget(); err != nil {
			return nil, err
		}
	}
	matches, err := matcher(*target)
	if err != nil {
		return nil, err
	}
	var chosen []int
	for i, o := range objects {
		if o == nil || !matches(o) {
			continue
		}
		if o.Encrypted {
			return nil, &Refusal{fmt.Sprintf("%s is encrypted by SOPS, and a change would invalidate its MAC", o.ID()), "a target without it"}
		}
		chosen = append(chosen, i)
	}
	if len(chosen) == 0 {
		return nil, &Refusal{"the patch matches no object", "a target that matches an object of the service; patches are applied after all sources"}
	}
	return chosen, nil
}

// ownTarget returns the target that a strategic merge patch contains.
func (p onePatch) ownTarget() (*config.PatchTarget, error) {
	text := func(of map[string]any, key string) string { text, _ := of[key].(string); return text }
	metadata, _ := p.merge["metadata"].(map[string]any)
	kind, name := text(p.merge, "kind"), text(metadata, "name")
	if kind == "" || name == "" {
		return nil, &Refusal{"the patch has no target", `"target", or a strategic merge patch with kind and metadata.name`}
	}
	quote := regexp.QuoteMeta
	target := &config.PatchTarget{Kind: quote(kind), Name: quote(name), Namespace: quote(text(metadata, "namespace"))}
	if group, _, found := strings.Cut(text(p.merge, "apiVersion"), "/"); found {
		target.Group = quote(group)
	}
	return target, nil
}

// matcher returns a function that matches objects with a target.
func matcher(t config.PatchTarget) (func(*Object) bool, error) {
	fields := []struct{ pattern, what string }{{t.Group, "group"}, {t.Version, "version"}, {t.Kind, "kind"}, {t.Name, "name"}, {t.Namespace, "namespace"}}
	patterns := make([]*regexp.Regexp, len(fields))
	for i, f := range fields {
		var err error
		if patterns[i], err = regexp.Compile("^(?:" + f.pattern + ")$"); err != nil {
			return nil, fmt.Errorf("target.%s is not a regular expression: %w", f.what, err)
		}
	}
	byLabels, err := labels.Parse(t.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("target.labelSelector cannot be read: %s", strict.OneLine(err.Error()))
	}
	byAnnotations, err := labels.Parse(t.AnnotationSelector)
	if err != nil {
		return nil, fmt.Errorf("target.annotationSelector cannot be read: %s", strict.OneLine(err.Error()))
	}
	return func(o *Object) bool {
		var head struct {
			APIVersion string `json:"apiVersion"`
			Metadata   struct{ Labels, Annotations labels.Set }
		}
		_ = json.Unmarshal(o.Data, &head) // the data is valid JSON of an object
		_, version, grouped := strings.Cut(head.APIVersion, "/")
		if !grouped {
			version = head.APIVersion
		}
		for i, value := range []string{o.Group, version, o.Kind, o.Name, o.Namespace} {
			if fields[i].pattern != "" && !patterns[i].MatchString(value) {
				return false
			}
		}
		return byLabels.Matches(head.Metadata.Labels) && byAnnotations.Matches(head.Metadata.Annotations)
	}, nil
}

// apply patches the chosen objects with Kustomize, and replaces them.
func (p onePatch) apply(all []*Object, chosen []int) ([]strict.Fault, error) {
	for _, i := range chosen {
		kustomization, err := p.kustomization(all[i])
		if err != nil {
			return nil, err
		}
		files := map[string][]byte{"kustomization.yaml": kustomization, "object.json": all[i].Data}
		answer, err := render(Order{Kustomization: ".", Files: files})
		if err == nil {
			err = checkDigits(files, answer.Texts[0].Data)
		}
		if err != nil {
			return nil, fmt.Errorf("%s cannot be patched: %w", all[i].ID(), err)
		}
		changed, faults := all[i].changed(answer.Texts[0].Data)
		if len(faults) > 0 {
			return faults, nil
		}
		all[i] = changed
	}
	return nil, nil
}

// kustomization returns a kustomization that patches one object.
func (p onePatch) kustomization(o *Object) ([]byte, error) {
	entry := map[string]any{}
	var part any = p.list
	if p.merge != nil {
		part = p.mergeFor(o)
	} else {
		entry["target"] = map[string]any{"kind": regexp.QuoteMeta(o.Kind)}
	}
	text, err := json.Marshal(part)
	if err != nil {
		return nil, fmt.Errorf("the patch cannot be JSON: %w", err)
	}
	entry["patch"] = string(text)
	return json.Marshal(map[string]any{"resources": []string{"./object.json"}, "patches": []any{entry}})
}

// mergeFor returns a strategic merge patch with the object's identity, so that lists are merged by the rules of its kind.
func (p onePatch) mergeFor(o *Object) map[string]any {
	var is struct {
		APIVersion string `json:"apiVersion"`
	}
	_ = json.Unmarshal(o.Data, &is) // as above
	merge := map[string]any{}
	for key, value := range p.merge {
		merge[key] = value
	}
	metadata := map[string]any{}
	given, _ := p.merge["metadata"].(map[string]any)
	for key, value := range given {
		metadata[key] = value
	}
	delete(metadata, "namespace")
	metadata["name"] = o.Name
	if o.Namespace != "" {
		metadata["namespace"] = o.Namespace
	}
	merge["apiVersion"], merge["kind"], merge["metadata"] = is.APIVersion, o.Kind, metadata
	return merge
}

// changed parses a patched object; nil: it was deleted.
func (o *Object) changed(text []byte) (*Object, []strict.Fault) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	built := readTexts([]Text{{Name: o.Source, Data: text}}, false, nil)
	switch {
	case len(built.Faults) > 0:
		return nil, built.Faults
	case len(built.Objects) != 1:
		return nil, []strict.Fault{{Code: "patch", Message: fmt.Sprintf("the patch creates %d objects from %s", len(built.Objects), o.ID()), Expected: "one"}}
	}
	is := built.Objects[0]
	if is.ID() != o.ID() || is.Group != o.Group {
		return nil, []strict.Fault{{Code: "patch", Message: fmt.Sprintf("the patch creates %s from %s", is.ID(), o.ID()), Expected: "the same kind, name and namespace"}}
	}
	return is, nil
}
