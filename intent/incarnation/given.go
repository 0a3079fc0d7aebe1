package incarnation

import (
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

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
		values := map[string]any{}
		for name, v := range all {
			values[name] = v
		}
		own, err := s.fit(instance.Channel, in.ChannelParameters[instance.Channel])
		if err != nil {
			return nil, err
		}
		for name, v := range own {
			values[name] = v
		}
		merged[instance.Channel] = values
	}
	for _, channel := range strict.Keys(in.ChannelParameters) {
		if _, known := merged[channel]; !known {
			return nil, &strict.Fault{
				Code: "unknown-channel", Message: fmt.Sprintf("service %s does not go to a release channel %q", s.Name, channel),
				Expected: strict.OneOf(channels), Suggestion: strict.Nearest(channel, channels),
			}
		}
	}
	return merged, nil
}

// fit checks names and types of values given for one channel, or for all ("").
func (s *Service) fit(channel string, values map[string]any) (map[string]any, error) {
	types := map[string]entities.ParamType{}
	for _, p := range s.Parameters {
		types[p.Name] = p.Type
	}
	fitting := map[string]any{}
	for _, name := range strict.Keys(values) {
		shown := name
		if channel != "" {
			shown = channel + ":" + name
		}
		kind, known := types[name]
		if !known {
			return nil, &strict.Fault{
				Code: "unknown-parameter", Message: fmt.Sprintf("service %s has no parameter %q", s.Name, shown),
				Expected: strict.OneOf(strict.Keys(types)), Suggestion: strict.Nearest(name, strict.Keys(types)),
			}
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
