package checks

import (
	"context"
	"errors"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/configured"
	"github.com/converge-engine/converge/entities/protocol"
)

// configRollout passes when it is a service's turn to get a configuration that several services of its application get. Releases that
// people and CI make by version pass.
type configRollout struct{ sources Sources }

func (c configRollout) Evaluate(ctx context.Context, a Request) (entities.CheckReading, error) {
	d := &a.Definition
	switch {
	case d.ConfigRollout == nil:
		return incomplete(a)
	case c.sources.Services == nil:
		return entities.CheckReading{}, errors.New("other services are not available here")
	case a.Version == a.Evaluation.FullVersion:
		return pass("it is not a config release")
	}
	incarnation, err := c.sources.incarnation(ctx, a)
	if err != nil {
		return entities.CheckReading{}, err
	}
	all, err := c.sources.Services.Configured(ctx, d.Application, incarnation)
	if err != nil {
		return entities.CheckReading{}, err
	}
	admission := configured.Next(*d.ConfigRollout, incarnation, all, protocol.ServiceID(d.Application, a.Service), a.Evaluation.Release, a.Now)
	r := entities.CheckReading{Verdict: entities.Wait, Reason: admission.Reason, Next: admission.At}
	switch {
	case admission.Allowed:
		r.Verdict = entities.Pass
	case admission.Halted:
		r.Verdict = entities.Fail
	}
	return r, nil
}
