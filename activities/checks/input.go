package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
)

// Limits of an entities.CheckInput as JSON, in bytes. All overrides of an ECS task together have at most 8,192 characters.
const (
	maxInput     = 64 << 10
	maxTaskInput = 4 << 10
)

// input returns the data of the release under evaluation, and its JSON of at most limit bytes. If the data is not available, it fails: a
// check must not pass without its input.
func (p Sources) input(ctx context.Context, a Request, limit int) (entities.CheckInput, []byte, error) {
	status, err := p.ownStatus(ctx)
	if err != nil {
		return entities.CheckInput{}, nil, err
	}
	in := inputOf(a, status)
	if p.Addons != nil {
		if in.Addons, err = p.Addons(ctx); err != nil {
			return in, nil, fmt.Errorf("the addons of the service: %w", err)
		}
	}
	return in.Bounded(limit)
}

// ownStatus returns the status of the service.
func (p Sources) ownStatus(ctx context.Context) (protocol.Status, error) {
	if p.Own == nil {
		return protocol.Status{}, errors.New("the status of the release is not available here")
	}
	status, err := p.Own(ctx)
	if err != nil {
		return protocol.Status{}, fmt.Errorf("status of the release: %w", err)
	}
	return status, nil
}

func inputOf(a Request, s protocol.Status) entities.CheckInput {
	in := entities.CheckInput{
		Schema: entities.CheckInputSchema, Application: a.Definition.Application, Service: a.Definition.Service, ServiceID: a.ServiceID,
		Channel: a.Definition.Channel,
		Release: entities.CheckRelease{ID: a.Evaluation.Release, Version: a.version(), FullVersion: a.Evaluation.FullVersion},
		Phases:  map[string]string{}, Channels: []entities.CheckChannel{}, Objects: []entities.Object{},
	}
	if n := slices.IndexFunc(s.Releases, func(r protocol.ReleaseStatus) bool { return r.ID == a.Evaluation.Release }); n >= 0 {
		r := s.Releases[n]
		in.Release.Incarnation, in.Release.By, in.Release.Proven, in.Release.At, in.Phases = r.Incarnation, r.By, r.Proven, r.At, r.Phases
	}
	for _, c := range s.Channels {
		in.Channels = append(in.Channels, entities.CheckChannel{Name: c.Name, Status: c.Status, Health: c.Health, Current: c.Current, Target: c.Target})
		if c.Name == in.Channel {
			in.Objects, in.Omitted = append(in.Objects, runtimes.ByUrgency(c.Objects)...), c.Omitted
		}
	}
	return in
}
