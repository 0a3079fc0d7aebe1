package preview

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/intent/incarnation"
)

// Removal plans what `delete` would remove of a service: one channel of it, or everything if channel is empty.
func (p *Planner) Removal(ctx context.Context, s *state.State, channel string) (*Plan, error) {
	q := &previewItems{planner: p, application: s.Application}
	service := Service{Service: s.Title(), Removal: true, Channels: []Channel{}}
	what := "delete " + s.Application + "/" + s.Title()
	var err error
	who := entities.Who{Name: p.By}
	if channel == "" {
		_, err = s.Delete(who, "", time.Now())
	} else {
		what += " " + channel
		_, err = s.TakeDown(channel, who, "", time.Now())
	}
	if err != nil {
		service.Refused = err.Error()
	}
	q.removals(&service, s, s.RemovalsOf(channel))
	if err != nil && len(service.Channels)+len(service.Notes) == 0 {
		return nil, &Refused{err.Error()}
	}
	plan := &Plan{Application: s.Application, Services: []Service{service}}
	if s.Spec != nil {
		plan.Incarnation = s.Spec.Incarnation
	}
	return plan, q.resolve(ctx, plan, s.Service, what)
}

// removals adds the removed instances to a service with Removal.
func (q *previewItems) removals(service *Service, s *state.State, all []state.Removal) {
	for _, r := range all {
		if r.KeepReason != "" {
			service.Notes = append(service.Notes, fmt.Sprintf("%s %s stays: %s", s.DisplayName(r.ID), r.Target.FullVersion, r.KeepReason))
			continue
		}
		key := s.Key(r.ID)
		service.Channels = append(service.Channels, Channel{Instance: r.ID, Runtime: r.Runtime, Present: r.Target.FullVersion})
		q.items = append(q.items, protocol.PreviewItem{
			Service: s.Service, ServiceID: s.Spec.ServiceID, Channel: key.Channel, Instance: key.Name, Runtime: r.Runtime,
			RuntimeDigest: r.Spec.Digest, Remote: r.Spec.Remote, FullVersion: r.Target.FullVersion, Payload: r.Target.Payload, Removal: true,
		})
		q.payloads = append(q.payloads, entities.Payload{}) // no payload is sent
	}
}

// addRemovals adds objects that the directory no longer declares and whose removal is declared, service by service.
func (d *directory) addRemovals(ctx context.Context, plan *Plan, manifest incarnation.Manifest) error {
	for _, name := range entities.SortedKeys(manifest) {
		before, err := d.planner.Store.Spec(ctx, manifest[name])
		if err != nil {
			continue // a damaged or missing spec is reported by the publication
		}
		now, declared := d.specs[name]
		if !declared {
			now = entities.Spec{Application: before.Application, Service: before.Service}
		}
		if d.planner.State == nil || !removesSome(&before, &now, declared) {
			continue
		}
		if err := d.addServiceRemovals(ctx, plan, name, now); err != nil {
			return fmt.Errorf("service %s: %w", name, err)
		}
	}
	return nil
}

// removesSome reports whether a channel, or an instance of one, disappears whose removal is declared.
func removesSome(before, now *entities.Spec, declared bool) bool {
	was := before.WithChannelNames(entities.RenamedChannels(before, now))
	return slices.ContainsFunc(was.IDs(), func(id entities.InstanceID) bool {
		channel, _ := was.Channel(id.Channel)
		_, stays := now.Instance(id)
		return !stays && (channel.OnDelete == entities.DeleteRemoves || before.Remove || declared && now.Remove)
	})
}

// addServiceRemovals applies the new rules to the state of a service, as the service will.
func (d *directory) addServiceRemovals(ctx context.Context, plan *Plan, name string, now entities.Spec) error {
	s, err := d.planner.State(ctx, name)
	if err != nil || s == nil || s.Spec == nil {
		return err
	}
	at := time.Now()
	now.Incarnation, now.Hash = d.after, d.compiled.Incarnation.Hash()
	s.ApplyNames(&now, entities.Who{Name: d.planner.By}, at)
	s.ApplySpec(&now, "", at)
	service := Service{Service: name, Removal: true, Channels: []Channel{}}
	d.removals(&service, s, s.UndeclaredRemovals())
	if len(service.Channels)+len(service.Notes) > 0 {
		plan.Services = append(plan.Services, service)
	}
	return nil
}
