package compile

import (
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// ignoredDifferences compiles the differences that a path declares as not managed. Each problem is reported once for all channels.
func (c *compiler) ignoredDifferences(in *strict.Decoder, at string, given []config.IgnoredDifference) (all []entities.IgnoredDifference) {
	for n, d := range given {
		here := strict.Index(at, n)
		switch {
		case len(d.JQPathExpressions) > 0:
			c.reportIn(in, here+".jqPathExpressions", "", substitute.ScopedFault{Fault: strict.Fault{
				Code: "bad-value", Message: "jq expressions are not supported",
				Expected: "the fields as jsonPointers (/spec/replicas), or their writers as managedFieldsManagers",
			}})
			continue
		case len(d.JSONPointers)+len(d.ManagedFieldsManagers) == 0 && !in.Faulty(here):
			c.reportIn(in, here, "", substitute.ScopedFault{Fault: strict.Fault{
				Code: "missing-field", Message: "it selects objects, and no fields", Expected: `"jsonPointers" or "managedFieldsManagers"`,
			}})
			continue
		}
		all = append(all, entities.IgnoredDifference{
			Group: string(d.Group), Kind: string(d.Kind), Name: string(d.Name), Namespace: string(d.Namespace),
			JSONPointers: strict.Map(d.JSONPointers, func(p config.JSONPointer) string { return string(p) }),
			Managers:     strict.Map(d.ManagedFieldsManagers, func(p config.NamePattern) string { return string(p) }),
		})
	}
	return all
}
