package incarnation

import (
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// MaxSpec bounds a compressed service spec in bytes, because it is stored in a workflow's history. maxChannels bounds the instances of
// one service, so that messages about all of them stay small (docs/reference.md, Limits).
const (
	MaxSpec     = 32 << 10
	maxChannels = 500
	// maxChecks bounds the checks of one service in a release channel: protections, conditions on other services, pre- and
	// postconditions. MaxSpec bounds the checks of all channels.
	maxChecks = 40
)

// Specs derives the decision input of each service from an incarnation. Runtimes are the definitions of the runtimes that the services
// run on. Incarnation and Hash stay empty, so that entities.DigestOf a spec changes only with its content.
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

// boundSpec rejects a spec that is too large for workflows. Compression takes a millisecond, so it only compresses specs that are too
// large without it.
func boundSpec(spec entities.Spec) error {
	if n := len(spec.Channels); n > maxChannels {
		return &strict.Fault{
			Code: "too-many-channels", Message: fmt.Sprintf("service %s has %d release channels", spec.Title(), n),
			Expected: fmt.Sprintf("at most %d", maxChannels),
		}
	}
	if n := len(spec.IDs()); n > maxChannels {
		return &strict.Fault{
			Code: "too-many-instances", Message: fmt.Sprintf("service %s has %d instances in its release channels", spec.Title(), n),
			Expected: fmt.Sprintf("at most %d: fewer runtimes in its fleets", maxChannels),
		}
	}
	if err := boundChecks(spec); err != nil {
		return err
	}
	if !protocol.Large(spec) {
		return nil
	}
	if packed, err := protocol.Pack(spec); err != nil || len(packed) > MaxSpec {
		return &strict.Fault{
			Code: "spec-too-large", Message: fmt.Sprintf("the rules of service %s have %d bytes, compressed", spec.Title(), len(packed)),
			Expected: fmt.Sprintf("at most %d: fewer release channels, labels, preconditions or protections", MaxSpec),
		}
	}
	return nil
}

// boundChecks rejects more checks than are evaluated at once.
func boundChecks(spec entities.Spec) error {
	for n := range spec.Channels {
		if c := &spec.Channels[n]; len(c.Checks) > maxChecks {
			return &strict.Fault{
				Code: "too-many-checks", Message: fmt.Sprintf("release channel %s has %d checks of service %s", c.Name, len(c.Checks), spec.Title()),
				Expected: fmt.Sprintf("at most %d: fewer protections, preconditions or dependencies", maxChecks),
			}
		}
	}
	return nil
}

// runtimeSpec returns the part of a definition that the decision needs.
func runtimeSpec(d entities.RuntimeDefinition) entities.RuntimeSpec {
	spec := entities.RuntimeSpec{
		Kind: d.Kind, Digest: entities.DigestOf(d), Observable: true, Remote: d.Remote, Timing: d.Timing,
		MaxApplies: d.MaxApplies, ApproveApplies: d.ApproveApplies, CanRemove: CanRemove(d), ReadOnly: d.ReadOnly,
	}
	if d.Custom != nil {
		spec.Mode, spec.Observable = d.Custom.Mode, d.Custom.Fetch != nil
	}
	return spec
}

// CanRemove reports whether workloads on a runtime can be removed (A24).
func CanRemove(d entities.RuntimeDefinition) bool {
	return !d.ReadOnly && (d.Custom == nil || d.Custom.Remove != nil)
}

func (i *Incarnation) spec(doc *Service, known map[string]entities.RuntimeDefinition) (entities.Spec, error) {
	spec := entities.Spec{
		Application: i.doc.Application, Service: doc.Identity(), ServiceID: i.doc.Application + "." + doc.Identity(), Others: i.renamedKeys(doc),
		Description: doc.Description, Parameters: doc.paramSpecs(),
		Version: doc.Version, InitialVersion: doc.InitialVersion, DeclaredAt: doc.DeclaredAt,
		ConfigChanges: doc.ConfigChanges, ProgressDeadline: time.Duration(doc.ProgressDeadline),
		Runtimes: map[string]*entities.RuntimeSpec{},
		Grants:   i.doc.Grants, Identity: i.doc.Identity, Notifications: i.doc.Notifications, Remove: doc.Remove, GatedRollback: doc.GatesApplyToRollback, Maestro: doc.Maestro,
		NoRollbackBelow: doc.NoRollbackBelow, Aspects: doc.Aspects,
	}
	if doc.Key != "" {
		spec.Name = doc.Name
	}
	for _, channel := range i.doc.Channels {
		instance, ok := doc.instance(channel.Name)
		if !ok {
			continue
		}
		c := entities.ChannelSpec{
			Name: channel.Name, Key: channel.Key, Labels: channel.Labels,
			Conditions: conditionsAmong(i.doc.Channels, channel, func(name string) bool { _, ok := doc.instance(name); return ok }),
			Checks:     instance.Checks, Extensions: instance.Extensions,
			Drift: instance.Drift, ProgressDeadline: time.Duration(instance.ProgressDeadline),
			NoRollback: instance.NoRollback || channel.NoRollback, OnDelete: channel.OnDelete,
		}
		readOnly := false
		for _, m := range instance.members() {
			template, err := i.template(doc, instance, m)
			if err != nil {
				return spec, err
			}
			runtime, ok := known[m.Runtime]
			if !ok {
				return spec, &strict.Fault{Code: "unknown-runtime", Message: fmt.Sprintf("service %s runs on runtime %q in release channel %s, which has no definition", doc.Name, m.Runtime, channel.Name)}
			}
			declared := runtimeSpec(runtime)
			spec.Runtimes[m.Runtime] = &declared
			digest := entities.DigestOf(template)
			// The digest is only compared. The full digests of hundreds of instances would be half of the size limit of a workflow's input.
			if len(instance.Fleet) > 0 {
				digest = entities.ShortDigestOf(template)
			}
			c.Instances = append(c.Instances, entities.InstanceSpec{Name: instance.id(m).Name, Runtime: m.Runtime, Template: digest, MovedFrom: m.MovedFrom})
			c.NoRollback = c.NoRollback || runtime.NoRollback
			readOnly = readOnly || runtime.ReadOnly
		}
		spec.Channels = append(spec.Channels, c)
		if channel.ReportOnly || readOnly {
			spec.Channels[len(spec.Channels)-1].SetReportOnly()
		}
		if channel.Rollout != nil {
			spec.Channels[len(spec.Channels)-1].SetRollout(*channel.Rollout)
		}
		if len(doc.Aspects) > 0 {
			spec.Channels[len(spec.Channels)-1].MarkAspects()
		}
	}
	return spec, nil
}

// UndeclaredMoves lists the services that an incarnation moves to other runtimes than the previous one without declaring the move
// (movedFrom), one line each. A move into a fleet cannot be declared: the fleet must include the current runtime. A nil previous
// incarnation has no services.
func UndeclaredMoves(before, inc *Incarnation) []string {
	var messages []string
	if before == nil {
		return nil
	}
	for n := range inc.doc.Services {
		service := &inc.doc.Services[n]
		oldService, ok := before.Service(service.Identity())
		if !ok {
			continue
		}
		for _, channel := range service.Channels {
			oldChannel, ok := oldService.instance(before.channelName(inc.channel(channel.Channel).Identity()))
			if ok && len(oldChannel.Fleet) == 0 && len(channel.Fleet) > 0 && !slices.ContainsFunc(channel.Fleet, func(m Member) bool { return m.Runtime == oldChannel.Runtime }) {
				messages = append(messages, fmt.Sprintf("%s would move from runtime %s to a fleet without it in %s, and its objects would be orphaned; let the selector match %s, and remove its label later to take it out of the fleet",
					service.Name, oldChannel.Runtime, channel.Channel, oldChannel.Runtime))
			}
			if !ok || len(oldChannel.Fleet)+len(channel.Fleet) > 0 || oldChannel.Runtime == channel.Runtime || channel.MovedFrom != nil && channel.MovedFrom.Runtime == oldChannel.Runtime {
				continue
			}
			messages = append(messages, fmt.Sprintf("%s would move from runtime %s to %s in %s; to move it, declare there: {name: %s, movedFrom: {runtime: %s, then: keep}} (or remove)",
				service.Name, oldChannel.Runtime, channel.Runtime, channel.Channel, channel.Runtime, oldChannel.Runtime))
		}
	}
	return messages
}

// paramSpecs lists the parameters. A parameter is required if some channel has no value for it.
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

// Manifest maps every service of an incarnation to the digest of its spec, so that a publication notifies only services with a changed
// spec.
type Manifest map[string]string

// ManifestOf makes the manifest of specs.
func ManifestOf(specs map[string]entities.Spec) Manifest {
	manifest := Manifest{}
	for service, spec := range specs {
		manifest[service] = entities.DigestOf(spec)
	}
	return manifest
}

// Digest returns the name of the manifest in the store.
func (m Manifest) Digest() string { return entities.DigestOf(m) }

// Since returns the sorted services that changed or are new since another manifest, and those that were removed.
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

// Upstream lists the channels that a channel waits for.
func Upstream(channel Channel) []string {
	var names []string
	for _, condition := range channel.Conditions {
		for _, name := range condition.Channels {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// conditionsAmong returns a channel's conditions for a service that goes to some channels only. A skipped channel is replaced by the
// channels that it waits for, so that skipping one never weakens the order of the others.
func conditionsAmong(channels []Channel, channel Channel, included func(string) bool) []entities.Condition {
	var result []entities.Condition
	add := func(condition entities.Condition) {
		at := slices.IndexFunc(result, func(o entities.Condition) bool { return o.ID == condition.ID })
		switch {
		case len(condition.Channels) == 0:
		case at < 0:
			result = append(result, condition)
		default:
			result[at] = mergeConditions(result[at], condition)
		}
	}
	for _, condition := range channel.Conditions {
		if !condition.Kind.OnChannels() {
			result = append(result, condition) // of this channel only
			continue
		}
		names := skipMissingChannels(channels, condition.Channels, included)
		if condition.ID != "channel-stable/"+condition.Channels[0] || slices.Equal(names, condition.Channels) {
			condition.Channels = names
			add(condition)
			continue
		}
		for _, name := range names {
			one := condition
			one.ID, one.Channels = "channel-stable/"+name, []string{name}
			add(one)
		}
	}
	return result
}

// mergeConditions combines two conditions on the same channels.
func mergeConditions(a, b entities.Condition) entities.Condition {
	a.For = max(a.For, b.For)
	switch {
	case a.Kind == entities.ChannelHealthy:
	case b.Kind == entities.ChannelHealthy:
		a.Kind = b.Kind
	case a.For > 0:
		a.Kind = entities.ChannelStableFor
	}
	return a
}

// skipMissingChannels replaces channels that a service skips by the channels that they wait for.
func skipMissingChannels(channels []Channel, names []string, included func(string) bool) []string {
	var result []string
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		if included(name) {
			result = append(result, name)
			return
		}
		at := slices.IndexFunc(channels, func(c Channel) bool { return c.Name == name })
		for _, next := range Upstream(channels[at]) {
			visit(next)
		}
	}
	for _, name := range names {
		visit(name)
	}
	return result
}
