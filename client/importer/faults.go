package importer

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/config"
)

// This file leaves out the services at which the compiler finds problems.

// faults assigns the problems of a configuration to its services.
type faults struct {
	writer
	untagged map[string]bool       // services whose chart keeps the tag of its image
	yielded  map[string]bool       // objects that were left to another service, by service and channel
	objects  map[string][]manifest // of the files, by service and channel
}

// dropFaulty leaves out the services with problems, until there are none, or only problems of no service.
func (w writer) dropFaulty(check func() error) error {
	f := faults{w, map[string]bool{}, map[string]bool{}, map[string][]manifest{}}
	for {
		err := check()
		var found config.Problems
		if !errors.As(err, &found) || len(found) == 0 || !f.settle(found) {
			f.finish()
			return err
		}
	}
}

// settle changes the services with problems, and reports whether there are any.
func (f faults) settle(found config.Problems) (changed bool) {
	text, err := f.yaml()
	if err != nil {
		return false
	}
	left := map[string]bool{}
	for _, p := range found {
		name := f.serviceOf(p, text)
		s := f.services[name]
		switch {
		case s == nil:
		case f.yield(name, p):
			changed = true
		case left[name]:
		case s.tag != nil: // perhaps the chart does not accept the version
			s.tag, f.untagged[name], left[name], changed = nil, true, true, true
		default:
			f.omit("%s: %s", name, textOf(p))
			delete(f.services, name)
			changed = true
		}
	}
	return changed && len(f.services) > 0
}

// textOf returns a problem with its place, unless that is in the configuration that is written.
func textOf(p config.Problem) string {
	if p.File == "converge.yaml" {
		return p.Message
	}
	return fmt.Sprintf("%s:%d: %s: %s", p.File, p.Line, p.Path, p.Message)
}

// finish notes what is not imported of the services that are.
func (f faults) finish() {
	for _, name := range slices.Sorted(maps.Keys(f.untagged)) {
		if f.services[name] != nil {
			f.omit("the image tag of %s does not become its version: the chart does not accept it", name)
		}
	}
	f.dropNeeds()
}

// sharedObject matches the message about an object that two services declare, and the channels where they do.
var sharedObject = regexp.MustCompile(`^([^ /]+)/([^ ]+) .*is declared by service "([^"]+)" too, .* in release channels? (.+)$`)

// yield leaves an object that another service declares, too, to that service, in the channels where it does, and reports whether that is
// possible: once, and if the service has no other object of that kind and name.
func (f faults) yield(name string, p config.Problem) bool {
	shared := sharedObject.FindStringSubmatch(p.Message)
	if shared == nil || shared[3] == name {
		return false
	}
	kind, object, parts := shared[1], shared[2], f.services[name].parts
	channels := strings.Split(shared[4], ", ")
	for _, channel := range channels {
		part, known := parts[channel]
		if !known || f.yielded[name+" "+channel+" "+kind+"/"+object] || f.countIn(name+" "+channel, part, kind, object) > 1 {
			return false
		}
	}
	for _, channel := range channels {
		f.yielded[name+" "+channel+" "+kind+"/"+object] = true
		kubernetes := parts[channel].kubernetes
		kubernetes["patches"] = append(slices.Clone(listAt(kubernetes, "patches")), map[string]any{
			"target": map[string]any{"kind": kind, "name": object},
			"patch":  fmt.Sprintf("{apiVersion: v1, kind: %s, metadata: {name: %s}, $patch: delete}", kind, object),
		})
	}
	f.omit("%s/%s of %s: %s declares it, too, and has it here", kind, object, name, shared[3])
	return true
}

// countIn counts the objects of a kind and name among the files of a part, which are read once. Those of a chart are not known.
func (f faults) countIn(key string, part deployedPart, kind, name string) (n int) {
	objects, read := f.objects[key]
	if !read {
		objects = reader{directory(f.to.Dir), f.deployed}.rendered(part.kubernetes)
		f.objects[key] = objects
	}
	for _, o := range objects {
		if textAt(o.fields, "kind") == kind && textAt(o.fields, "metadata", "name") == name {
			n++
		}
	}
	return n
}

// serviceOf returns the service that has a problem: by the line of the configuration, or by the file of its source; otherwise "".
func (f faults) serviceOf(p config.Problem, text []byte) string {
	if p.File == "converge.yaml" {
		return serviceAt(text, p.Line)
	}
	for _, name := range slices.Sorted(maps.Keys(f.services)) {
		for _, part := range f.services[name].parts {
			for _, source := range sourcePaths(part.kubernetes) {
				if p.File == source || strings.HasPrefix(p.File, source+"/") {
					return name
				}
			}
		}
	}
	return ""
}

// sourcePaths are the files and directories of a part.
func sourcePaths(kubernetes map[string]any) (paths []string) {
	for _, each := range append(listAt(kubernetes, "manifests"), textAt(kubernetes, "kustomize"), textAt(kubernetes, "helm", "chart")) {
		if text := fmt.Sprint(each); text != "" {
			paths = append(paths, path.Clean(text))
		}
	}
	return paths
}

// serviceAt returns the service that is declared at a line, or "".
func serviceAt(text []byte, line int) (name string) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		if decoder.Decode(&document) != nil || len(document.Content) == 0 || document.Content[0].Line > line {
			return name
		}
		var declared struct{ Kind, Name string }
		if name = ""; document.Decode(&declared) == nil && declared.Kind == "Service" {
			name = declared.Name
		}
	}
}
