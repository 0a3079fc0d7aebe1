package preview

import (
	"context"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// questions collects what to ask the runtimes and where the answers belong.
type questions struct {
	planner     *Planner
	application string
	items       []protocol.PreviewItem
	payloads    []entities.Payload
}

// about adds a channel to a service, to be asked about.
func (q *questions) about(ctx context.Context, s *Service, spec *entities.Spec, c entities.ChannelSpec, present, version string, payload entities.Payload) error {
	digest, err := q.planner.Store.PutPayload(ctx, payload)
	if err != nil {
		return err
	}
	runtime := spec.Runtimes[c.Runtime] // where it goes now, whichever it was rendered for
	s.Channels = append(s.Channels, Channel{Runtime: c.Runtime, Present: present, Version: version})
	q.items = append(q.items, protocol.PreviewItem{
		Service: spec.Service, ServiceID: spec.ServiceID, Channel: c.Name, Runtime: c.Runtime,
		RuntimeDigest: runtime.Digest, Remote: runtime.Remote, FullVersion: version, Payload: digest,
	})
	q.payloads = append(q.payloads, payload)
	return nil
}

// forget takes back what was to be asked about a service, the last one.
func (q *questions) forget(service string) {
	for len(q.items) > 0 && q.items[len(q.items)-1].Service == service {
		q.items, q.payloads = q.items[:len(q.items)-1], q.payloads[:len(q.payloads)-1]
	}
}

// answer asks, and puts the answers where they belong: the channels are in the order of the items.
func (q *questions) answer(ctx context.Context, plan *Plan, service, what string) error {
	plan.Schema = Schema
	answers, err := q.planner.ask(ctx, q.application, service, what, q.items)
	if err != nil {
		return err
	}
	n := 0
	for s := range plan.Services {
		for c := range plan.Services[s].Channels {
			channel := &plan.Services[s].Channels[c]
			channel.ItemPreview = answers[n]
			if channel.Unseen() {
				channel.Told = q.sent(ctx, plan.Services[s].Service, *channel, q.payloads[n])
			}
			n++
		}
	}
	plan.count()
	return nil
}

// sent compares what a runtime would be sent with what it was sent for the version that is there.
// When that cannot be found out any more, everything counts as new.
func (q *questions) sent(ctx context.Context, service string, c Channel, payload entities.Payload) []protocol.PreviewField {
	var before *entities.Payload
	if c.Present != "" {
		draft, err := q.planner.draft(ctx, protocol.PrepareRequest{
			Application: q.application, Service: service, Version: c.Present, FullVersion: c.Present, Channels: []string{c.Channel},
		})
		if there, ok := draft.Payloads[c.Channel]; ok && err == nil {
			before = &there
		}
	}
	return payloadChanges(before, payload, c.Present, c.Version)
}
