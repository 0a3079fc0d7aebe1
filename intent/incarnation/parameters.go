package incarnation

import (
	"fmt"
	"maps"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
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
