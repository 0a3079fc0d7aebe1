package incarnation

import (
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// MaxSpec bounds a service spec in bytes, packed as it goes through a workflow's history, and
// maxChannels the instances of one service, so that what is said of all of them at once stays small
// (docs/operating.md, Limits).
const (
	MaxSpec     = 32 << 10
	maxChannels = 500
)

// Specs derives from an incarnation what the decision needs of each service, by service. Runtimes
// are the definitions of those that its services run on. Incarnation and Hash stay empty, so that
// entities.DigestOf of a spec changes only with its content.
func Specs(inc *Incarnation, runtimes []entities.RuntimeDefinition) (map[string]entities.Spec, error) {
	known := map[string]entities.RuntimeDefinition{}
	for _, definition := range runtimes {
		known[definition.Name] = definition
	}
	specs := map[string]entities.Spec{}
	for i := range inc.doc.Services {
		spec, err := inc.spec(&inc.doc.Services[i], known)
		if err != nil {
			return nil, err
		}
		if err := boundSpec(spec); err != nil {
			return nil, err
		}
		specs[spec.Service] = spec
	}
	return specs, nil
}

// boundSpec refuses a spec that workflows cannot hold. Packing costs a millisecond, so that only
// specs are packed that are not small enough as they are.
func boundSpec(spec entities.Spec) error {
	if n := len(spec.Channels); n > maxChannels {
		return &strict.Fault{
			Code: "too-many-channels", Message: fmt.Sprintf("service %s goes to %d release channels", spec.Service, n),
			Expected: fmt.Sprintf("at most %d", maxChannels),
		}
	}
	if !protocol.Large(spec) {
		return nil
	}
	if packed, err := protocol.Pack(spec); err != nil || len(packed) > MaxSpec {
		return &strict.Fault{
			Code: "spec-too-large", Message: fmt.Sprintf("the rules of service %s have %d bytes, packed", spec.Service, len(packed)),
			Expected: fmt.Sprintf("at most %d: fewer release channels, labels, preconditions or protections", MaxSpec),
		}
	}
	return nil
}

// runtimeSpec is the part of a definition that the decision needs.
func runtimeSpec(d entities.RuntimeDefinition) entities.RuntimeSpec {
	spec := entities.RuntimeSpec{
		Kind: d.Kind, Digest: entities.DigestOf(d), Looks: true, Remote: d.Remote, Timing: d.Timing,
		MaxApplies: d.MaxApplies, ApproveApplies: d.ApproveApplies, CanRemove: CanRemove(d),
	}
	if d.Custom != nil {
		spec.Mode, spec.Looks = d.Custom.Mode, d.Custom.Fetch != nil
	}
	return spec
}

// CanRemove tells whether what runs on a runtime can be taken down (A24).
func CanRemove(d entities.RuntimeDefinition) bool { return d.Custom == nil || d.Custom.Remove != nil }

func (i *Incarnation) spec(doc *Service, known map[string]entities.RuntimeDefinition) (entities.Spec, error) {
	spec := entities.Spec{
		Application: i.doc.Application, Service: doc.Name, ServiceID: i.doc.Application + "." + doc.Name,
		Description: doc.Description, Parameters: doc.paramSpecs(),
		Version: doc.Version, InitialVersion: doc.InitialVersion, DeclaredAt: doc.DeclaredAt,
		ConfigChanges: doc.ConfigChanges, ProgressDeadline: time.Duration(doc.ProgressDeadline),
		Runtimes: map[string]entities.RuntimeSpec{},
		Grants:   i.doc.Grants, Identity: i.doc.Identity, Notifications: i.doc.Notifications, Remove: doc.Remove,
	}
	for _, channel := range i.doc.Channels {
		instance, ok := doc.instance(channel.Name)
		if !ok {
			continue
		}
		template, err := i.Template(doc.Name, channel.Name)
		if err != nil {
			return spec, err
		}
		runtime, ok := known[instance.Runtime]
		if !ok {
			return spec, &strict.Fault{Code: "unknown-runtime", Message: fmt.Sprintf("service %s runs on runtime %q in release channel %s, which has no definition", doc.Name, instance.Runtime, channel.Name)}
		}
		spec.Runtimes[instance.Runtime] = runtimeSpec(runtime)
		spec.Channels = append(spec.Channels, entities.ChannelSpec{
			Name: channel.Name, Labels: channel.Labels, Runtime: instance.Runtime, Template: entities.DigestOf(template),
			Conditions: conditionsAmong(i.doc.Channels, channel, func(name string) bool { _, ok := doc.instance(name); return ok }),
			Checks:     instance.Checks, Extensions: instance.Extensions,
			Drift: instance.Drift, ProgressDeadline: time.Duration(instance.ProgressDeadline),
			NoRollback: instance.NoRollback || channel.NoRollback || runtime.NoRollback,
		})
	}
	return spec, nil
}

// paramSpecs lists the parameters; one is required when some channel has no value for it.
func (s *Service) paramSpecs() []entities.ParamSpec {
	var all []entities.ParamSpec
	for _, p := range s.Parameters {
		spec := entities.ParamSpec{Name: p.Name, Type: p.Type}
		for _, instance := range s.Channels {
			if _, ok := instance.Parameters[p.Name]; !ok {
				spec.Required = true
			}
		}
		all = append(all, spec)
	}
	return all
}

// Manifest names the spec of every service of an incarnation by digest, so that a publication
// tells only the services whose spec changed.
type Manifest map[string]string

// ManifestOf makes the manifest of specs.
func ManifestOf(specs map[string]entities.Spec) Manifest {
	manifest := Manifest{}
	for service, spec := range specs {
		manifest[service] = entities.DigestOf(spec)
	}
	return manifest
}

// Digest names the manifest in the store.
func (m Manifest) Digest() string { return entities.DigestOf(m) }

// Since lists, sorted, the services that changed or are new since another manifest, and those that
// are gone.
func (m Manifest) Since(from Manifest) (changed, removed []string) {
	for service, digest := range m {
		if from[service] != digest {
			changed = append(changed, service)
		}
	}
	for service := range from {
		if _, declared := m[service]; !declared {
			removed = append(removed, service)
		}
	}
	slices.Sort(changed)
	slices.Sort(removed)
	return changed, removed
}
