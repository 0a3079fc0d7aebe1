package incarnation

import (
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

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
	types := map[string]entities.ParamType{}
	for _, p := range s.Parameters {
		types[p.Name] = p.Type
	}
	carried := map[string]any{}
	for name, v := range values {
		kind, declared := types[name]
		if _, fault := substitute.FitText(v, kind); declared && fault == nil && !s.fixed(channel, name) {
			carried[name] = v
		}
	}
	return carried
}
