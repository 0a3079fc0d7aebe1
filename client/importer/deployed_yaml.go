package importer

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/entities"
)

// writtenService is a service in the form in which it is written.
type writtenService struct {
	APIVersion        string           `yaml:"apiVersion"`
	Kind              string           `yaml:"kind"`
	Name              string           `yaml:"name"`
	Runtime           string           `yaml:"runtime,omitempty"`
	InitialVersion    string           `yaml:"initialVersion"`
	ReleaseChannels   []string         `yaml:"releaseChannels,omitempty"`
	Dependencies      []map[string]any `yaml:"dependencies,omitempty"`
	Kubernetes        map[string]any   `yaml:"kubernetes"`
	PerReleaseChannel []map[string]any `yaml:"perReleaseChannel,omitempty"`
}

// yaml returns the configuration.
func (w writer) yaml() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Imported from %s. Its objects are adopted once: Converge takes over their fields, and removes what is not declared\n"+
		"# here. Check converge plan first, and stop %s before converge config publish.\n", w.tool, w.tool.applier())
	for _, line := range w.omitted {
		fmt.Fprintf(&b, "# Omitted: %s\n", entities.Visible(line))
	}
	channels, runtimes := w.channels(), w.runtimes(w.to.Application)
	written := []map[string]any{}
	for i, channel := range channels {
		refs := []any{}
		for _, r := range runtimes {
			if at, ok := r.byChannel[channel]; ok {
				refs = append(refs, map[string]any{"name": r.nameFor(at.cluster), "namespace": cmp.Or(at.namespace, "default")})
			}
		}
		c := map[string]any{"name": channel, "runtimes": refs}
		if i > 0 && channel != defaultChannel {
			c["preconditions"] = []any{map[string]any{"releaseChannelStable": map[string]any{"releaseChannel": channels[i-1]}}}
		}
		written = append(written, c)
	}
	documents := []any{map[string]any{"apiVersion": "converge/v1", "kind": "Application", "name": w.to.Application, "releaseChannels": written}}
	for _, r := range runtimes {
		for _, cluster := range r.clusters() {
			connection := map[string]any{}
			if cluster != "" {
				connection["context"] = cluster
			}
			runtime := map[string]any{"apiVersion": "converge/v1", "kind": "Runtime", "name": r.nameFor(cluster), "kubernetes": connection}
			if w.to.ReadOnly {
				runtime["access"] = "read"
			}
			documents = append(documents, runtime)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		documents = append(documents, w.serviceDocument(name, runtimes, channels))
	}
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	for _, document := range documents {
		if err := encoder.Encode(document); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), encoder.Close()
}

// place is a namespace of a cluster.
type place struct{ cluster, namespace string }

// writtenRuntime is a runtime, with its target in each channel.
type writtenRuntime struct {
	name      string
	byChannel map[string]place
}

// clusters returns its targets, its own cluster first.
func (r writtenRuntime) clusters() []string {
	var all []string
	for _, at := range r.byChannel {
		all = append(all, at.cluster)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// nameFor returns the name of the runtime for one of its clusters.
func (r writtenRuntime) nameFor(cluster string) string {
	if cluster == "" {
		return r.name
	}
	return r.name + "-" + NameOf(cluster)
}

func (s *deployedService) locations() map[string]place {
	at := map[string]place{}
	for channel, part := range s.parts {
		at[channel] = place{part.cluster, part.namespace}
	}
	return at
}

// runtimes returns as many runtimes as are needed for each service to be in its own namespaces. They are named after the application,
// since the runtimes of a store have different names, and after their clusters.
func (d *deployed) runtimes(application string) (all []writtenRuntime) {
	for _, name := range slices.Sorted(maps.Keys(d.services)) {
		at := d.services[name].locations()
		fits := func(r writtenRuntime) bool {
			for channel, where := range at {
				if other, ok := r.byChannel[channel]; ok && other != where {
					return false
				}
			}
			return true
		}
		i := slices.IndexFunc(all, fits)
		if i < 0 {
			name := application
			if len(all) > 0 {
				name = fmt.Sprintf("%s-%d", application, len(all)+1)
			}
			all = append(all, writtenRuntime{name: name, byChannel: map[string]place{}})
			i = len(all) - 1
		}
		maps.Copy(all[i].byChannel, at)
	}
	return all
}

// runtimesOf returns the names of the runtimes of a service by channel, if there are several to choose from.
func runtimesOf(at map[string]place, runtimes []writtenRuntime) map[string]string {
	if len(runtimes) == 1 {
		return nil
	}
	names := map[string]string{}
	i := slices.IndexFunc(runtimes, func(r writtenRuntime) bool {
		return !slices.ContainsFunc(slices.Collect(maps.Keys(at)), func(c string) bool { return r.byChannel[c] != at[c] })
	})
	for channel, where := range at {
		names[channel] = runtimes[i].nameFor(where.cluster)
	}
	return names
}

// serviceDocument returns a service: the fields that all its channels share, and the differences of each.
func (d *deployed) serviceDocument(name string, runtimes []writtenRuntime, channels []string) writtenService {
	s := d.services[name]
	w := writtenService{APIVersion: "converge/v1", Kind: "Service", Name: name, InitialVersion: cmp.Or(s.version, "adopted")}
	for _, other := range s.needs {
		w.Dependencies = append(w.Dependencies, map[string]any{"service": other, "rule": "stable"})
	}
	own := slices.SortedFunc(maps.Keys(s.parts), compareChannels)
	if len(own) < len(channels) {
		w.ReleaseChannels = own
	}
	at := runtimesOf(s.locations(), runtimes)
	w.Runtime = at[own[0]]
	var parts []map[string]any
	for _, channel := range own {
		parts = append(parts, s.parts[channel].kubernetes)
	}
	w.Kubernetes = common(parts)
	for _, channel := range own {
		over := map[string]any{}
		if differs := subtract(s.parts[channel].kubernetes, w.Kubernetes); len(differs) > 0 {
			over["kubernetes"] = differs
		}
		if s.parts[channel].observe {
			over["drift"] = "observe"
		}
		if at[channel] != w.Runtime {
			over["runtime"] = at[channel]
		}
		if len(over) > 0 {
			over["releaseChannel"] = channel
			w.PerReleaseChannel = append(w.PerReleaseChannel, over)
		}
	}
	w.Kubernetes["adopt"] = true
	if s.tag != nil {
		w.Kubernetes = merged(w.Kubernetes, map[string]any{"helm": map[string]any{"values": s.tag}})
	}
	return w
}

// common returns the fields that are equal in all mappings.
func common(all []map[string]any) map[string]any {
	same := map[string]any{}
	for name, value := range all[0] {
		inner, nested := value.(map[string]any)
		of := []map[string]any{inner}
		equal := true
		for _, other := range all[1:] {
			equal = equal && reflect.DeepEqual(other[name], value)
			mapping, ok := other[name].(map[string]any)
			nested = nested && ok
			of = append(of, mapping)
		}
		if equal {
			same[name] = value
		} else if nested {
			if shared := common(of); len(shared) > 0 {
				same[name] = shared
			}
		}
	}
	return same
}

// subtract returns the fields of a mapping that another one does not have.
func subtract(all, other map[string]any) map[string]any {
	rest := map[string]any{}
	for name, value := range all {
		inner, nested := value.(map[string]any)
		shared, has := other[name].(map[string]any)
		switch {
		case reflect.DeepEqual(other[name], value):
		case nested && has:
			rest[name] = subtract(inner, shared)
		default:
			rest[name] = value
		}
	}
	return rest
}

// merged returns a mapping with another one merged over it, recursively where both have mappings.
func merged(lower, upper map[string]any) map[string]any {
	all := maps.Clone(lower)
	if all == nil {
		all = map[string]any{}
	}
	for name, value := range upper {
		inner, nested := value.(map[string]any)
		if below, ok := all[name].(map[string]any); ok && nested {
			value = merged(below, inner)
		}
		all[name] = value
	}
	return all
}

// nest returns a value below the keys of a path.
func nest(keys []string, value any) map[string]any {
	for i := len(keys) - 1; i > 0; i-- {
		value = map[string]any{keys[i]: value}
	}
	return map[string]any{keys[0]: value}
}
