package compile

import (
	"fmt"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// renamedServices checks the former names of services. A former name must not be a current service, and belongs to one service only.
func (c *compiler) renamedServices() {
	declared := map[config.Name]*config.Document[config.Service]{}
	for _, s := range c.config.Services {
		declared[s.Spec.Name] = s
	}
	from := map[config.Name]config.Name{}
	for _, s := range c.config.Services {
		old := s.Spec.RenamedFrom
		fault := strict.Fault{Code: "bad-value", Expected: "its former name, which nothing else has"}
		switch other := declared[old]; {
		case old == "":
			continue
		case old == s.Spec.Name:
			fault.Message = fmt.Sprintf("service %q is renamed from itself", string(old))
		case other != nil:
			fault.Message = fmt.Sprintf("service %q is still declared at %s:%d", string(old), other.File, other.At("name").Line)
		case from[old] != "":
			fault.Message = fmt.Sprintf("service %q is renamed from %q, too", string(from[old]), string(old))
		default:
			from[old] = s.Spec.Name
			continue
		}
		c.report(s.Decoder, "renamedFrom", fault)
	}
}
