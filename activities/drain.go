package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/drain"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file drains a runtime and restores it (A16).

// drainInterval is the least time between two checks of the services' progress. If the queries are slow, it is four times their duration.
const drainInterval = time.Second

// Drain notifies the services that are permitted to leave a runtime, or to return. It returns when the permits differ from those in the
// request. The permits are stored where services read them (InForce, LoadSpec, Adopt). A service with an outdated permit is notified again.
// Drain is idempotent and may be restarted at any time.
func (a *Activities) Drain(ctx context.Context, r protocol.AnnouncePause) (protocol.DrainAnswer, error) {
	if r.Runtime == "" || r.Pause == nil || r.Pause.Drain == nil {
		return protocol.DrainAnswer{}, refuse("drain of runtime %q: expected a runtime and its drain", r.Runtime)
	}
	heartbeatCtx, stop := context.WithCancel(ctx)
	defer stop()
	go sendHeartbeats(heartbeatCtx, nil)
	r, err := a.withPermits(ctx, r)
	if err != nil {
		return protocol.DrainAnswer{}, err
	}
	before, stored := entities.DigestOf(r.Pause.Drain), ""
	for {
		began := time.Now()
		placed, err := Placements(ctx, a.Client)
		if err != nil {
			return protocol.DrainAnswer{}, err
		}
		next := drain.Next(r.Runtime, *r.Pause.Drain, placed)
		pause, now := *r.Pause, entities.DigestOf(&next)
		pause.Drain = &next
		if now != stored {
			if err := a.Store.PutPause(ctx, "", protocol.ScopePause{Scope: r.Scope, Pause: &pause}); err != nil {
				return protocol.DrainAnswer{}, err
			}
			a.pauses.reset()
			stored = now
		}
		if err := a.notifyPermits(ctx, r.Scope, &pause, placed); err != nil {
			return protocol.DrainAnswer{}, err
		}
		if now != before {
			return spillIfLarge(ctx, a, protocol.DrainAnswer{Drain: next}, nil)
		}
		if err := sleep(ctx, max(drainInterval, 4*time.Since(began))); err != nil {
			return protocol.DrainAnswer{}, err
		}
	}
}

// withPermits reads the permits of a drain that were spilled to the store.
func (a *Activities) withPermits(ctx context.Context, r protocol.AnnouncePause) (protocol.AnnouncePause, error) {
	if r.PermitsDigest == "" || r.Pause == nil || r.Pause.Drain == nil {
		return r, nil
	}
	packed, err := a.Store.State(ctx, r.PermitsDigest)
	if err == nil {
		err = protocol.Packed(packed).Unpack(&r.Pause.Drain.Permits)
	}
	return r, err
}

// sleep waits for a duration or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// notifyPermits signals the services with outdated permits. A failed signal is repeated later.
func (a *Activities) notifyPermits(ctx context.Context, scope string, pause *entities.Pause, placed []protocol.Placement) error {
	for n := range placed {
		s := &placed[n]
		if s.Err != "" || isUpToDate(s, scope, pause) {
			continue
		}
		sendCtx, cancel := context.WithTimeout(ctx, sendTimeout)
		err := ignoreNotFound(a.Client.SignalWorkflow(sendCtx, s.Service, "", protocol.SignalScopePause, protocol.ScopePause{Scope: scope, Pause: pause.WithOwnPermit(s.Service)}))
		cancel()
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// isUpToDate reports whether a service has its current permit of a drain, or is not affected by it.
func isUpToDate(s *protocol.Placement, scope string, pause *entities.Pause) bool {
	var received *entities.Pause
	for n := range s.Drains {
		if s.Drains[n].Scope == scope {
			received = &s.Drains[n]
		}
	}
	affected := false
	for _, i := range s.Instances {
		affected = affected || entities.ScopeRuntime+i.Runtime == scope
	}
	expected := pause.ForService(s.Service)
	switch {
	case !affected && received == nil:
		return true
	case expected == nil || received == nil:
		return expected == nil && received == nil
	}
	return received.At.Equal(expected.At) && entities.DigestOf(received.Drain) == entities.DigestOf(expected.Drain)
}

// Alone returns the channels that would have no runtime left. A service that does not answer is an error.
func (a *Activities) Alone(ctx context.Context, r protocol.AloneRequest) (protocol.AloneAnswer, error) {
	placed, err := Placements(ctx, a.Client)
	for n := range placed {
		if placed[n].Err != "" {
			err = errors.Join(err, fmt.Errorf("%s: %s", protocol.ShortID(placed[n].Service), placed[n].Err))
		}
	}
	return protocol.AloneAnswer{Alone: drain.OnlyOn(r.Runtime, placed)}, err
}

// Placements queries the placement of all running services, in order of their workflow ids. An error of a service takes the place of its
// answer.
func Placements(ctx context.Context, c client.Client) ([]protocol.Placement, error) {
	ids, err := (&Activities{Client: c}).runningServices(ctx, "")
	if err != nil {
		return nil, err
	}
	all := make([]protocol.Placement, len(ids))
	forEach(len(ids), func(n int) { all[n] = placementOf(ctx, c, ids[n]) })
	return all, ctx.Err()
}

// forEach makes a call for each of the services, a limited number concurrently.
func forEach(services int, call func(n int)) {
	var calls sync.WaitGroup
	slots := make(chan struct{}, sendConcurrency)
	for n := range services {
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			call(n)
		})
	}
	calls.Wait()
}

func placementOf(ctx context.Context, c client.Client, id string) protocol.Placement {
	out := protocol.Placement{Service: id}
	err := services{&Activities{Client: c}}.queryInParts(ctx, id, &out, protocol.QueryPlaced)
	if errors.Is(err, checks.ErrNoService) {
		return protocol.Placement{Service: id} // it has ended in the meantime
	}
	if err != nil {
		return protocol.Placement{Service: id, Err: err.Error()}
	}
	return out
}
