package workflows

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// rollBack rolls a release back. If other aspects were released on top of it, the version to return to is rendered first: the caller gets
// the error if it cannot be rendered.
func (s *service) rollBack(ctx workflow.Context, r verb.Request, who entities.Who) (any, error) {
	row := verb.Find(s.verbs, protocol.Rollback)
	targets := s.state.RollbackTargets(r.Version, r.Channel)
	if len(targets) > 0 {
		if _, err := s.judge(row, r, who); err != nil { // before rendering
			return nil, asRefusal(err)
		}
	}
	if err := s.renderTargets(ctx, targets, &r); err != nil {
		return nil, asRefusal(err)
	}
	return s.applyVerb(row, r, who)
}

// renderTargets renders rollback targets, those of one version together.
func (s *service) renderTargets(ctx workflow.Context, targets []state.RollbackRender, r *verb.Request) error {
	r.RollbackTargets = map[entities.InstanceID]entities.Target{}
	for len(targets) > 0 {
		n, first := 0, targets[0]
		var ids []entities.InstanceID
		for n < len(targets) && targets[n].FullVersion == first.FullVersion && targets[n].Incarnation == first.Incarnation {
			ids = append(ids, targets[n].Instance)
			n++
		}
		request := protocol.PrepareRequest{Version: first.Version, FullVersion: first.FullVersion, Incarnation: first.Incarnation, Hash: first.Hash, Instances: ids}
		if _, values := entities.SplitVersion(first.FullVersion); len(values) > 0 {
			request.Version, request.Values = "", first.Aspect
		}
		prepared, err := s.prepare(ctx, request)
		if err != nil {
			return fmt.Errorf("rollback target %s cannot be rendered: %w", first.FullVersion, errors.New(errorText(err)))
		}
		for _, id := range ids {
			r.RollbackTargets[id] = entities.Target{FullVersion: first.FullVersion, Incarnation: prepared.Incarnation, Payload: prepared.Payloads[id].Digest}
		}
		targets = targets[n:]
	}
	return nil
}
