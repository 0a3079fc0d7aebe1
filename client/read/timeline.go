package read

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/timeline"
)

// Timeline returns the input of the timeline of the service: its history and its workflow's status, or, for a removed service, its last
// configuration. problem is the reason why neither is known, or "" if one is.
func (t Trail) Timeline(ctx context.Context, stores Store, now time.Time) (in timeline.Input, problem string, err error) {
	in = timeline.Input{Now: now}
	lines, err := t.Entries(ctx, stores, true)
	if err != nil {
		return in, "", err
	}
	for _, l := range lines {
		in.Lines = append(in.Lines, l.AuditEntry)
	}
	s := state.State{}
	if err = t.calls.Query(ctx, t.service.ID(), protocol.QueryState, &s); err == nil {
		in.Needs = channelDependencies(s.Spec)
		in.Status, err = Status(ctx, t.calls, t.service)
	} else if errors.Is(err, connection.ErrNotFound) {
		var last *entities.Spec
		if last, err = t.lastSpec(ctx, stores); err == nil {
			in.Needs = channelDependencies(last)
			for _, name := range last.ChannelNames() {
				in.Status.Channels = append(in.Status.Channels, protocol.ChannelStatus{Name: name})
			}
		}
	}
	if err != nil {
		problem = fmt.Sprintf("the current state is unknown: %s", err)
	}
	return in, problem, nil
}

// channelDependencies returns, by channel, the channels in which a release must have succeeded first.
func channelDependencies(spec *entities.Spec) map[string][]string {
	all := map[string][]string{}
	if spec == nil {
		return all
	}
	for _, c := range spec.Channels {
		for _, condition := range c.Conditions {
			if condition.Kind.OnChannels() {
				all[c.Name] = append(all[c.Name], condition.Channels...)
			}
		}
	}
	return all
}

// lastSpec returns the spec of the service in the newest incarnation that contained it.
func (t Trail) lastSpec(ctx context.Context, stores Store) (*entities.Spec, error) {
	at, _, _, err := t.Open(ctx, stores)
	if err != nil {
		return nil, err
	}
	defer at.Close() // only read
	application, service := protocol.TrailOf(t.ID)
	numbers, err := at.ListNumbers(ctx, application)
	if err != nil {
		return nil, err
	}
	for _, number := range slices.Backward(numbers) {
		inc, err := at.Number(ctx, application, number)
		if err != nil {
			return nil, err
		}
		manifest, err := at.Manifest(ctx, inc.Manifest)
		if err != nil {
			return nil, err
		}
		if digest, declared := manifest[service]; declared {
			spec, err := at.Spec(ctx, digest)
			return &spec, err
		}
	}
	return nil, fmt.Errorf("no incarnation of %s contains it", application)
}
