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

// drainEvery is the least time between two checks of the services' progress. If the queries are slow, it is four times their duration.
const drainEvery = time.Second

// Drain notifies the services whose turn it is to leave a runtime, or to come back. It returns when the turns differ from those in the
// request. The turns are stored where services read them (InForce, LoadSpec, Adopt). A service with outdated turns is notified again.
// Drain is idempotent and may be restarted at any time.
func (a *Activities) Drain(ctx context.Context, r protocol.AnnouncePause) (protocol.DrainAnswer, error) {
	if r.Runtime == "" || r.Pause == nil || r.Pause.Drain == nil {
		return protocol.DrainAnswer{}, refuse("drain of runtime %q: expected a runtime and its drain", r.Runtime)
	}
	beating, stop := context.WithCancel(ctx)
	defer stop()
	go heartbeats(beating, nil)
	r, err := a.withTurns(ctx, r)
	if err != nil {
		return protocol.DrainAnswer{}, err
	}
	before, kept := entities.DigestOf(r.Pause.Drain), ""
	for {
		began := time.Now()
		placed, err := Placed(ctx, a.Client)
		if err != nil {
			return protocol.DrainAnswer{}, err
		}
		next := drain.Next(r.Runtime, *r.Pause.Drain, placed)
		pause, now := *r.Pause, entities.DigestOf(&next)
		pause.Drain = &next
		if now != kept {
			if err := a.Store.PutPause(ctx, "", protocol.ScopePause{Scope: r.Scope, Pause: &pause}); err != nil {
				return protocol.DrainAnswer{}, err
			}
			a.holds.forget()
			kept = now
		}
		if err := a.tellTurns(ctx, r.Scope, &pause, placed); err != nil {
			return protocol.DrainAnswer{}, err
		}
		if now != before {
			return left(ctx, a, protocol.DrainAnswer{Drain: next}, nil)
		}
		if err := pauseFor(ctx, max(drainEvery, 4*time.Since(began))); err != nil {
			return protocol.DrainAnswer{}, err
		}
	}
}

// withTurns reads the turns of a drain that were spilled to the store.
func (a *Activities) withTurns(ctx context.Context, r protocol.AnnouncePause) (protocol.AnnouncePause, error) {
	if r.Turns == "" || r.Pause == nil || r.Pause.Drain == nil {
		return r, nil
	}
	packed, err := a.Store.State(ctx, r.Turns)
	if err == nil {
		err = protocol.Packed(packed).Unpack(&r.Pause.Drain.Turns)
	}
	return r, err
}

// pauseFor waits for a duration or until ctx ends.
func pauseFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// tellTurns signals the services with outdated turns. A failed signal is repeated later.
func (a *Activities) tellTurns(ctx context.Context, scope string, pause *entities.Pause, placed []protocol.Placed) error {
	for n := range placed {
		s := &placed[n]
		if s.Err != "" || knows(s, scope, pause) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, reachWithin)
		err := present(a.Client.SignalWorkflow(limited, s.Service, "", protocol.SignalScopePause, protocol.ScopePause{Scope: scope, Pause: pause.Own(s.Service)}))
		cancel()
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// knows reports whether a service has its current turn of a drain, or is not affected by it.
func knows(s *protocol.Placed, scope string, pause *entities.Pause) bool {
	var told *entities.Pause
	for n := range s.Drains {
		if s.Drains[n].Scope == scope {
			told = &s.Drains[n]
		}
	}
	here := false
	for _, i := range s.Instances {
		here = here || entities.ScopeRuntime+i.Runtime == scope
	}
	meant := pause.For(s.Service)
	switch {
	case !here && told == nil:
		return true
	case meant == nil || told == nil:
		return meant == nil && told == nil
	}
	return told.At.Equal(meant.At) && entities.DigestOf(told.Drain) == entities.DigestOf(meant.Drain)
}

// Alone returns the channels that would have no runtime left. A service that does not answer is an error.
func (a *Activities) Alone(ctx context.Context, r protocol.AloneRequest) (protocol.AloneAnswer, error) {
	placed, err := Placed(ctx, a.Client)
	for n := range placed {
		if placed[n].Err != "" {
			err = errors.Join(err, fmt.Errorf("%s: %s", protocol.ShortID(placed[n].Service), placed[n].Err))
		}
	}
	return protocol.AloneAnswer{Alone: drain.Alone(r.Runtime, placed)}, err
}

// Placed queries the placement of all running services, in order of their workflow ids. An error of a service takes the place of its
// answer.
func Placed(ctx context.Context, c client.Client) ([]protocol.Placed, error) {
	ids, err := (&Activities{Client: c}).running(ctx, "")
	if err != nil {
		return nil, err
	}
	all := make([]protocol.Placed, len(ids))
	atOnce(len(ids), func(n int) { all[n] = placedOf(ctx, c, ids[n]) })
	return all, ctx.Err()
}

// atOnce calls ask for each of the services, a limited number concurrently.
func atOnce(services int, ask func(n int)) {
	var asking sync.WaitGroup
	room := make(chan struct{}, reachAtOnce)
	for n := range services {
		room <- struct{}{}
		asking.Go(func() {
			defer func() { <-room }()
			ask(n)
		})
	}
	asking.Wait()
}

func placedOf(ctx context.Context, c client.Client, id string) protocol.Placed {
	out := protocol.Placed{Service: id}
	err := services{&Activities{Client: c}}.askInParts(ctx, id, &out, protocol.QueryPlaced)
	if errors.Is(err, checks.ErrNoService) {
		return protocol.Placed{Service: id} // it has ended in the meantime
	}
	if err != nil {
		return protocol.Placed{Service: id, Err: err.Error()}
	}
	return out
}
