package incarnation

import (
	"fmt"
	"maps"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// ParametersIn are the values that a service's parameters have in a channel for what is given:
// those of the configuration, and a release's over them. Text may still name a version or a constant.
// Secrets are left out.
func ParametersIn(inc *Incarnation, service, channel string, in RenderInput) (map[string]any, error) {
	doc, ok := inc.Service(service)
	if !ok {
		return nil, unknownService(inc, service)
	}
	instance, ok := doc.instance(channel)
	if !ok {
		return nil, &strict.Fault{Code: "unknown-channel", Message: fmt.Sprintf("service %s does not go to release channel %q", service, channel)}
	}
	given, err := doc.given(in)
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

// given merges a release's parameters by channel and turns them into values of their types.
func (s *Service) given(in RenderInput) (map[string]map[string]any, error) {
	all, err := s.fit("", in.Parameters)
	if err != nil {
		return nil, err
	}
	var channels []string
	merged := map[string]map[string]any{}
	for _, instance := range s.Channels {
		channels = append(channels, instance.Channel)
		values := maps.Clone(all)
		own, err := s.fit(instance.Channel, in.ChannelParameters[instance.Channel])
		if err != nil {
			return nil, err
		}
		maps.Copy(values, own)
		merged[instance.Channel] = values
	}
	for _, channel := range strict.Keys(in.ChannelParameters) {
		if _, known := merged[channel]; !known {
			fault := strict.Unknown("unknown-channel", fmt.Sprintf("service %s does not go to a release channel %q", s.Name, channel), channel, channels)
			return nil, &fault
		}
	}
	return merged, nil
}

// fit checks names and types of values given for one channel, or for all ("").
func (s *Service) fit(channel string, values map[string]any) (map[string]any, error) {
	types := s.types()
	fitting := map[string]any{}
	for _, name := range strict.Keys(values) {
		shown := name
		if channel != "" {
			shown = channel + ":" + name
		}
		kind, known := types[name]
		if !known {
			fault := strict.Unknown("unknown-parameter", fmt.Sprintf("service %s has no parameter %q", s.Name, shown), name, strict.Keys(types))
			return nil, &fault
		}
		if s.fixed(channel, name) {
			return nil, &strict.Fault{
				Code: "fixed-parameter", Message: fmt.Sprintf("parameter %s shapes the chart of %s, so it is set in the configuration only", shown, s.Name),
				Expected: "its default or perReleaseChannel to say it",
			}
		}
		v, fault := substitute.FitText(values[name], kind)
		if fault != nil {
			fault.Message = fmt.Sprintf("parameter %q is %s", shown, substitute.Describe(values[name]))
			return nil, fault
		}
		fitting[name] = v
	}
	return fitting, nil
}

// fixed tells whether a parameter is fixed by the configuration in a channel, or in any ("").
func (s *Service) fixed(channel, parameter string) bool {
	return slices.ContainsFunc(s.Channels, func(i Instance) bool {
		return (channel == "" || i.Channel == channel) && i.Kubernetes != nil && slices.Contains(i.Kubernetes.Fixed, parameter)
	})
}

// Given checks the parameters of a release without rendering and returns them with the values that
// rendering uses: two releases whose results are equal mean the same.
func Given(inc *Incarnation, service string, in RenderInput) (RenderInput, error) {
	doc, ok := inc.Service(service)
	if !ok {
		return in, unknownService(inc, service)
	}
	if _, err := doc.given(in); err != nil {
		return in, err
	}
	in.Parameters, _ = doc.fit("", in.Parameters)
	channels := map[string]map[string]any{}
	for channel, values := range in.ChannelParameters {
		channels[channel], _ = doc.fit(channel, values)
	}
	in.ChannelParameters = channels
	return in, nil
}

// Carry returns what of a release's parameters still means something in another incarnation: those
// that it declares with a type they fit and lets releases set, for channels that the service still
// goes to. A config
// release renders an earlier version's parameters, and a parameter that is no longer declared must
// not stand in the way of the very change that removed it.
func Carry(inc *Incarnation, service string, in RenderInput) RenderInput {
	doc, ok := inc.Service(service)
	if !ok {
		return in
	}
	in.Parameters = doc.carry("", in.Parameters)
	channels := map[string]map[string]any{}
	for channel, values := range in.ChannelParameters {
		if _, goes := doc.instance(channel); goes {
			channels[channel] = doc.carry(channel, values)
		}
	}
	in.ChannelParameters = channels
	return in
}

func (s *Service) carry(channel string, values map[string]any) map[string]any {
	types := s.types()
	carried := map[string]any{}
	for name, v := range values {
		kind, declared := types[name]
		if _, fault := substitute.FitText(v, kind); declared && fault == nil && !s.fixed(channel, name) {
			carried[name] = v
		}
	}
	return carried
}
