package checks

import (
	"context"

	"github.com/converge-engine/converge/entities"
)

// serviceStable passes while another service is CONVERGED in the channel.
type serviceStable struct{ sources Sources }

func (c serviceStable) Evaluate(ctx context.Context, a Asked) (entities.CheckReading, error) {
	return c.sources.onOther(ctx, a, func(o other) (entities.CheckReading, error) {
		name := otherOf(a)
		switch {
		case o.channel.Status != string(entities.StatusConverged):
		case o.channel.Target == "": // nothing runs there that could be stable
			return wait("%s was never released", name)
		default:
			return pass("%s is %s at %s", name, o.channel.Status, o.channel.Target)
		}
		r, err := wait("%s is %s", name, o.channel.Status)
		if o.stuck() {
			r.Verdict = entities.Fail
		}
		return r, err
	})
}
