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
	ways := s.state.WaysBack(r.Version, r.Channel)
	if len(ways) > 0 {
		if _, err := s.judge(row, r, who); err != nil { // before rendering
			return nil, refused(err)
		}
	}
	if err := s.renderWays(ctx, ways, &r); err != nil {
		return nil, refused(err)
	}
	return s.effect(row, r, who)
}

// renderWays renders rollback targets, those of one version together.
func (s *service) renderWays(ctx workflow.Context, ways []state.Way, r *verb.Request) error {
	r.Ways = map[entities.InstanceID]entities.Target{}
	for len(ways) > 0 {
		n, first := 0, ways[0]
		var ids []entities.InstanceID
		for n < len(ways) && ways[n].As == first.As && ways[n].Incarnation == first.Incarnation {
			ids = append(ids, ways[n].Instance)
			n++
		}
		request := protocol.PrepareRequest{Version: first.Of, FullVersion: first.As, Incarnation: first.Incarnation, Hash: first.Hash, Instances: ids}
		if _, values := entities.SplitVersion(first.As); len(values) > 0 {
			request.Version, request.Values = "", first.Aspect
		}
		prepared, err := s.prepare(ctx, request)
		if err != nil {
			return fmt.Errorf("rollback target %s cannot be rendered: %w", first.As, errors.New(errorText(err)))
		}
		for _, id := range ids {
			r.Ways[id] = entities.Target{FullVersion: first.As, Incarnation: prepared.Incarnation, Payload: prepared.Payloads[id].Digest}
		}
		ways = ways[n:]
	}
	return nil
}
