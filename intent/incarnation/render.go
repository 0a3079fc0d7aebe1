package incarnation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// RenderInput are the values that a release adds to an incarnation.
type RenderInput struct {
	Version     string
	FullVersion string // in the form for runtimes; Version if empty
	// Parameters are values for all channels. ChannelParameters are values for one channel each, and take precedence. Values have JSON
	// types; text is converted to the parameter's type.
	Parameters        map[string]any
	ChannelParameters map[string]map[string]any
	// Instances limits rendering to these instances, by display name. It ignores those that the service does not have. Nil is all.
	Instances []string
}

// Render renders the payloads of one service and version by the display name of the instance: production, or production/eu-3. The value
// of a parameter is, in ascending precedence: its default, perReleaseChannel, the release's value for all channels, the release's value
// for this channel. The error of an invalid input is a *strict.Fault.
func Render(inc *Incarnation, service string, in RenderInput) (map[string]entities.Payload, error) {
	doc, ok := inc.Service(service)
	if !ok {
		return nil, unknownService(inc, service)
	}
	for _, version := range []string{in.Version, cmp.Or(in.FullVersion, in.Version)} {
		if fault := config.CheckFullVersion(version); fault != nil {
			return nil, fault
		}
	}
	given, err := doc.mergeParameters(in)
	if err != nil {
		return nil, err
	}
	payloads := map[string]entities.Payload{}
	for i := range doc.Channels {
		instance := &doc.Channels[i]
		for _, m := range instance.members() {
			id := instance.id(m).String()
			if in.Instances != nil && !slices.Contains(in.Instances, id) {
				continue
			}
			scope := inc.scope(doc, instance, m)
			scope.Version, scope.FullVersion = in.Version, cmp.Or(in.FullVersion, in.Version)
			scope.Given = given[instance.Channel]
			payload, t := doc.payload(instance, m, scope)
			if t != nil {
				return nil, renderFault(service, t)
			}
			payloads[id] = payload
		}
	}
	return payloads, nil
}

func renderFault(service string, t *substitute.ScopedFault) *strict.Fault {
	fault := t.Fault
	fault.Message = fmt.Sprintf("render %s: %s", service, fault.Message)
	return &fault
}

func unknownService(inc *Incarnation, service string) *strict.Fault {
	fault := strict.Unknown("unknown-service", fmt.Sprintf("application %s has no service %q", inc.Application(), service), service, inc.Services())
	return &fault
}

// Template is a payload without a version: substitutions of values that only a release provides remain. Its digest shows whether a
// change of configuration affects the instance. The argument is its display name.
func (i *Incarnation) Template(service, instance string) (entities.Payload, error) {
	doc, ok := i.Service(service)
	if !ok {
		return entities.Payload{}, unknownService(i, service)
	}
	channel, _, _ := strings.Cut(instance, "/")
	if in, ok := doc.instance(channel); ok {
		for _, m := range in.members() {
			if in.id(m).String() == instance {
				return i.template(doc, in, m)
			}
		}
	}
	return entities.Payload{}, &strict.Fault{Code: "unknown-channel", Message: fmt.Sprintf("service %s is not deployed to release channel %q", service, instance)}
}

func (i *Incarnation) template(doc *Service, instance *InstanceDoc, m *Member) (entities.Payload, error) {
	payload, t := doc.payload(instance, m, i.scope(doc, instance, m))
	if t != nil {
		return entities.Payload{}, renderFault(doc.Name, t)
	}
	return payload, nil
}

// scope returns the names for substitutions of an instance, without a version.
func (i *Incarnation) scope(doc *Service, instance *InstanceDoc, m *Member) *substitute.Scope {
	channel := i.channel(instance.Channel)
	return &substitute.Scope{
		Application: i.doc.Application, Service: doc.Name, Channel: instance.Channel, Identity: channel.Identity(),
		Labels: channel.Labels, Constants: channel.Constants, Runtime: m.Runtime, RuntimeLabels: m.RuntimeLabels,
		Addons: doc.Addons, Types: doc.types(), Declared: instance.Parameters, Reported: keepOutput,
	}
}

// keepOutput keeps references to outputs of extensions. The compiler has checked the names.
func keepOutput(string, string) (string, *strict.Fault) { return "", nil }

// payload renders an instance. The payload contains only the parameters and constants that it uses.
func (s *Service) payload(instance *InstanceDoc, m *Member, scope *substitute.Scope) (entities.Payload, *substitute.ScopedFault) {
	payload := entities.Payload{
		Application: scope.Application, Service: s.Identity(), Channel: scope.Identity,
		Runtime: m.Runtime, Kind: m.Kind,
	}
	custom, t := s.custom(instance, scope)
	if t != nil {
		return payload, t
	}
	payload.Custom = custom
	if payload.Kubernetes, t = m.Kubernetes.payload(scope); t != nil {
		return payload, t
	}
	if payload.ECS, t = m.ECS.payload(scope); t != nil {
		return payload, t
	}
	for name, v := range scope.Params {
		if v.Kind == entities.ParamSecret {
			continue // reported where it is used
		}
		payload.Parameters = with(payload.Parameters, name, v.V)
	}
	addresses := *scope
	addresses.AddressOnly = true
	for name, text := range m.Address {
		resolved, t := addresses.Text(text)
		if t != nil {
			return payload, t
		}
		payload.Address = with(payload.Address, name, resolved)
	}
	payload.Constants = addresses.UsedConstants
	return payload, nil
}

// custom renders the input of commands; nil if it is empty.
func (s *Service) custom(instance *InstanceDoc, scope *substitute.Scope) (*entities.CustomPayload, *substitute.ScopedFault) {
	if len(instance.Env) == 0 && len(instance.Files) == 0 {
		return nil, nil
	}
	custom := &entities.CustomPayload{}
	for _, name := range strict.Keys(instance.Env) {
		v, t := scope.Env(instance.Env[name])
		if t != nil {
			return nil, t
		}
		custom.Env = with(custom.Env, name, v)
	}
	for _, name := range instance.Files {
		custom.Files = with(custom.Files, name, s.Files[name])
	}
	return custom, nil
}

// payload returns references to the objects and the values of their substitutions; nil if there are none.
func (k *Kubernetes) payload(scope *substitute.Scope) (*entities.KubernetesPayload, *substitute.ScopedFault) {
	if k == nil {
		return nil, nil
	}
	payload := &entities.KubernetesPayload{
		Bundled: entities.Bundled{Bundle: k.Bundle}, Prune: k.Prune, Adopt: k.Adopt, CreateNamespace: k.CreateNamespace,
		RemoveClaims: k.RemoveClaims, RemoveForeign: k.RemoveForeign, Excluded: k.Excluded,
	}
	payload.NamespaceLabels, payload.NamespaceAnnotations = k.NamespaceLabels, k.NamespaceAnnotations
	for _, ignored := range k.Ignore {
		name, t := scope.Text(ignored.Name) // of an object that is created only once
		if t != nil {
			return nil, t
		}
		ignored.Name = name
		payload.Ignore = append(payload.Ignore, ignored)
	}
	var t *substitute.ScopedFault
	payload.Values, t = valuesOf(k.Names, scope)
	return payload, t
}

// payload returns references to the task definition and the service, and the values of their substitutions; nil if there are none.
func (e *ECS) payload(scope *substitute.Scope) (*entities.ECSPayload, *substitute.ScopedFault) {
	if e == nil {
		return nil, nil
	}
	values, t := valuesOf(e.Names, scope)
	return &entities.ECSPayload{Bundled: entities.Bundled{Bundle: e.Bundle, Values: values}, Prune: e.Prune, Adopt: e.Adopt}, t
}

// valuesOf returns the values of the names in a bundle; nil if there are none.
func valuesOf(names []string, scope *substitute.Scope) (values map[string]any, t *substitute.ScopedFault) {
	for _, name := range names {
		v, t := scope.Lookup(name)
		if t != nil {
			return nil, t
		}
		values = with(values, name, v.V)
	}
	return values, nil
}

// with adds an entry to a map, and creates a nil map.
func with[V any](all map[string]V, name string, v V) map[string]V {
	if all == nil {
		all = map[string]V{}
	}
	all[name] = v
	return all
}

// ParametersIn returns the values of a service's parameters in a channel: those of the configuration, overridden by those of the
// release. Text may still contain substitutions of the version or a constant. Secrets are omitted.
func ParametersIn(inc *Incarnation, service, channel string, in RenderInput) (map[string]any, error) {
	doc, ok := inc.Service(service)
	if !ok {
		return nil, unknownService(inc, service)
	}
	instance, ok := doc.instance(channel)
	if !ok {
		return nil, &strict.Fault{Code: "unknown-channel", Message: fmt.Sprintf("service %s is not deployed to release channel %q", service, channel)}
	}
	given, err := doc.mergeParameters(in)
	if err != nil {
		return nil, err
	}
	values := maps.Clone(instance.Parameters)
	if values == nil {
		values = map[string]any{}
	}
	maps.Copy(values, given[channel])
	for _, p := range doc.Parameters {
		if p.Type == entities.ParamSecret {
			delete(values, p.Name)
		}
	}
	return values, nil
}

// mergeParameters merges a release's parameters by channel and converts them to their types.
func (s *Service) mergeParameters(in RenderInput) (map[string]map[string]any, error) {
	all, err := s.convertValues("", in.Parameters)
	if err != nil {
		return nil, err
	}
	var channels []string
	merged := map[string]map[string]any{}
	for _, instance := range s.Channels {
		channels = append(channels, instance.Channel)
		values := maps.Clone(all)
		own, err := s.convertValues(instance.Channel, in.ChannelParameters[instance.Channel])
		if err != nil {
			return nil, err
		}
		maps.Copy(values, own)
		merged[instance.Channel] = values
	}
	for _, channel := range strict.Keys(in.ChannelParameters) {
		if _, known := merged[channel]; !known {
			fault := strict.Unknown("unknown-channel", fmt.Sprintf("service %s is not deployed to release channel %q", s.Name, channel), channel, channels)
			return nil, &fault
		}
	}
	return merged, nil
}

// convertValues checks the names and types of values for one channel, or for all ("").
func (s *Service) convertValues(channel string, values map[string]any) (map[string]any, error) {
	types := s.types()
	converted := map[string]any{}
	for _, name := range strict.Keys(values) {
		displayName := name
		if channel != "" {
			displayName = channel + ":" + name
		}
		kind, known := types[name]
		if !known {
			fault := strict.Unknown("unknown-parameter", fmt.Sprintf("service %s has no parameter %q", s.Name, displayName), name, strict.Keys(types))
			return nil, &fault
		}
		if s.fixedInChart(channel, name) {
			return nil, &strict.Fault{
				Code: "fixed-parameter", Message: fmt.Sprintf("parameter %s shapes the chart of %s, so it is set in the configuration only", displayName, s.Name),
				Expected: "its default, or a value in perReleaseChannel",
			}
		}
		v, fault := substitute.FitText(values[name], kind)
		if fault != nil {
			fault.Message = fmt.Sprintf("parameter %q is %s", displayName, substitute.Describe(values[name]))
			return nil, fault
		}
		converted[name] = v
	}
	return converted, nil
}

// fixedInChart reports whether the configuration fixes a parameter in a channel, or in any ("").
func (s *Service) fixedInChart(channel, parameter string) bool {
	return slices.ContainsFunc(s.Channels, func(i InstanceDoc) bool {
		return (channel == "" || i.Channel == channel) && i.first().Kubernetes != nil && slices.Contains(i.first().Kubernetes.Fixed, parameter)
	})
}

// NormalizeParameters checks the parameters of a release without rendering. It returns them with the values that rendering uses: releases
// with equal results have the same meaning.
func NormalizeParameters(inc *Incarnation, service string, in RenderInput) (RenderInput, error) {
	doc, ok := inc.Service(service)
	if !ok {
		return in, unknownService(inc, service)
	}
	if _, err := doc.mergeParameters(in); err != nil {
		return in, err
	}
	in.Parameters, _ = doc.convertValues("", in.Parameters)
	channels := map[string]map[string]any{}
	for channel, values := range in.ChannelParameters {
		channels[channel], _ = doc.convertValues(channel, values)
	}
	in.ChannelParameters = channels
	return in, nil
}

// CheckSettable rejects parameters that only the configuration may set: secrets, and those that are declared so. It is called when a
// version is first named; the meaning of an existing version does not change. The error is a *strict.Fault.
func CheckSettable(inc *Incarnation, service string, in RenderInput) error {
	doc, ok := inc.Service(service)
	if !ok {
		return unknownService(inc, service)
	}
	given := []map[string]any{in.Parameters}
	for _, channel := range strict.Keys(in.ChannelParameters) {
		given = append(given, in.ChannelParameters[channel])
	}
	for _, values := range given {
		for _, name := range strict.Keys(values) {
			if doc.notSettable(name) {
				return &strict.Fault{
					Code: "fixed-parameter", Message: fmt.Sprintf("parameter %s of %s is set in the configuration only", name, service),
					Expected: "its default, a value in perReleaseChannel, or overridable: true in its declaration",
				}
			}
		}
	}
	return nil
}

// notSettable reports whether the declaration of a parameter forbids values of releases.
func (s *Service) notSettable(name string) bool {
	return slices.ContainsFunc(s.Parameters, func(p Parameter) bool { return p.Name == name && !p.Settable() })
}

// CompatibleParameters returns the parameters of a release that are still valid in another incarnation: declared there with a compatible
// type, settable by releases, and for channels of the service. A config release renders the parameters of an earlier version, and a removed
// parameter must not block the change that removed it.
func CompatibleParameters(inc *Incarnation, service string, in RenderInput) RenderInput {
	doc, ok := inc.Service(service)
	if !ok {
		return in
	}
	in.Parameters = doc.compatible("", in.Parameters)
	channels := map[string]map[string]any{}
	for channel, values := range in.ChannelParameters {
		if _, inChannel := doc.instance(channel); inChannel {
			channels[channel] = doc.compatible(channel, values)
		}
	}
	in.ChannelParameters = channels
	return in
}

func (s *Service) compatible(channel string, values map[string]any) map[string]any {
	types := s.types()
	kept := map[string]any{}
	for name, v := range values {
		kind, declared := types[name]
		if _, fault := substitute.FitText(v, kind); declared && fault == nil && !s.fixedInChart(channel, name) && !s.notSettable(name) {
			kept[name] = v
		}
	}
	return kept
}
