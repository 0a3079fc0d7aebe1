package incarnation

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// RenderInput is what a release adds to an incarnation.
type RenderInput struct {
	Version     string
	FullVersion string // as runtimes see it; Version when empty
	// Parameters are values for all channels, ChannelParameters for one each; the latter win.
	// Values are as JSON has them; text is read as the parameter's type.
	Parameters        map[string]any
	ChannelParameters map[string]map[string]any
	// Channels to render for; those that the service does not go to are left out. Nil is all.
	Channels []string
}

// Render makes the payloads of one service and version, by channel. The default of a parameter gives way
// to perReleaseChannel, that to the release's value for all channels, that to the one for this. The error
// of a wrong input is a *strict.Fault.
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
	given, err := doc.given(in)
	if err != nil {
		return nil, err
	}
	payloads := map[string]entities.Payload{}
	for i := range doc.Channels {
		instance := &doc.Channels[i]
		if in.Channels != nil && !slices.Contains(in.Channels, instance.Channel) {
			continue
		}
		scope := inc.scope(doc, instance)
		scope.Version, scope.FullVersion = in.Version, cmp.Or(in.FullVersion, in.Version)
		scope.Given = given[instance.Channel]
		payload, t := doc.payload(instance, scope)
		if t != nil {
			return nil, renderFault(service, t)
		}
		payloads[instance.Channel] = payload
	}
	return payloads, nil
}

func renderFault(service string, t *substitute.Trouble) *strict.Fault {
	fault := t.Fault
	fault.Message = fmt.Sprintf("render %s: %s", service, fault.Message)
	return &fault
}

func unknownService(inc *Incarnation, service string) *strict.Fault {
	names := inc.Services()
	fault := strict.Unknown("unknown-service", fmt.Sprintf("application %s has no service %q", inc.Application(), service), service, names)
	return &fault
}

// Template is a payload with the version and what only a release gives left open: substitutions of
// them stand as they are. Its digest tells whether a change of configuration touched the channel.
func (i *Incarnation) Template(service, channel string) (entities.Payload, error) {
	doc, ok := i.Service(service)
	if !ok {
		return entities.Payload{}, unknownService(i, service)
	}
	instance, ok := doc.instance(channel)
	if !ok {
		return entities.Payload{}, &strict.Fault{Code: "unknown-channel", Message: fmt.Sprintf("service %s does not go to release channel %q", service, channel)}
	}
	payload, t := doc.payload(instance, i.scope(doc, instance))
	if t != nil {
		return entities.Payload{}, renderFault(service, t)
	}
	return payload, nil
}

// scope is what substitutions of an instance may name, the version left open.
func (i *Incarnation) scope(doc *Service, instance *Instance) *substitute.Scope {
	channel := i.channel(instance.Channel)
	return &substitute.Scope{
		Application: i.doc.Application, Service: doc.Name, Channel: instance.Channel,
		Labels: channel.Labels, Constants: channel.Constants, Types: doc.types(), Declared: instance.Parameters,
	}
}

// payload renders an instance. Only parameters and constants that it uses become part of it.
func (s *Service) payload(instance *Instance, scope *substitute.Scope) (entities.Payload, *substitute.Trouble) {
	payload := entities.Payload{
		Application: scope.Application, Service: s.Name, Channel: instance.Channel,
		Runtime: instance.Runtime, Kind: instance.Kind,
	}
	custom, t := s.custom(instance, scope)
	if t != nil {
		return payload, t
	}
	payload.Custom = custom
	if payload.Kubernetes, t = instance.Kubernetes.payload(scope); t != nil {
		return payload, t
	}
	for name, v := range scope.Params {
		if v.Kind == entities.ParamSecret {
			continue // named where it is used
		}
		payload.Parameters = with(payload.Parameters, name, v.V)
	}
	addresses := *scope
	addresses.AddressOnly = true
	for name, text := range instance.Address {
		resolved, t := addresses.Text(text)
		if t != nil {
			return payload, t
		}
		payload.Address = with(payload.Address, name, resolved)
	}
	payload.Constants = addresses.UsedConstants
	return payload, nil
}

// custom renders what commands receive, nil when that is nothing.
func (s *Service) custom(instance *Instance, scope *substitute.Scope) (*entities.CustomPayload, *substitute.Trouble) {
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

// payload names the objects and what their substitutions stand for; of nothing it is nil.
func (k *Kubernetes) payload(scope *substitute.Scope) (*entities.KubernetesPayload, *substitute.Trouble) {
	if k == nil {
		return nil, nil
	}
	payload := &entities.KubernetesPayload{Bundle: k.Bundle, Prune: k.Prune, Adopt: k.Adopt, CreateNamespace: k.CreateNamespace}
	for _, name := range k.Names {
		v, t := scope.Lookup(name)
		if t != nil {
			return nil, t
		}
		payload.Values = with(payload.Values, name, v.V)
	}
	return payload, nil
}

// with adds an entry to a map that is nil while it is empty.
func with[V any](all map[string]V, name string, v V) map[string]V {
	if all == nil {
		all = map[string]V{}
	}
	all[name] = v
	return all
}
