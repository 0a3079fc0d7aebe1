package checks

import (
	"context"

	"github.com/converge-engine/converge/entities"
)

// serviceStable passes while another service is healthy in the channel. A pause or a waiting release of that service does not matter,
// because neither affects the running version.
type serviceStable struct{ sources Sources }

func (c serviceStable) Evaluate(ctx context.Context, a Request) (entities.CheckReading, error) {
	return c.sources.evaluateOther(ctx, a, func(o other) (entities.CheckReading, error) {
		name, status, health := dependencyNode(a), o.channel.Status, o.channel.Health
		switch {
		case health != string(entities.StatusConverged):
		case o.channel.Target == "": // nothing runs there
			return wait("%s was never released", name)
		case status != health:
			return pass("%s is healthy at %s, and %s", name, o.channel.Target, status)
		default:
			return pass("%s is %s at %s", name, status, o.channel.Target)
		}
		r, err := wait("%s is %s", name, health)
		if entities.Status(health).Stuck() {
			r.Verdict = entities.Fail
		}
		return r, err
	})
}
