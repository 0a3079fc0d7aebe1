package preview

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
)

// Served makes plans for the senders of a server: a few at once, each within a time, since each runs a short workflow. A nil one makes none.
type Served struct{ places chan struct{} }

// The bounds of a server.
const (
	maxServed      = 4
	servedPatience = 10 * time.Second
	servedPickup   = 5 * time.Second
)

// Why a server makes no plan.
var (
	ErrNotServed = errors.New("this server only reads, and runs no preview")
	ErrBusy      = errors.New("others ask the runtimes now; try again")
)

// NewServed returns one for a server, for all of its pages and operations.
func NewServed() *Served { return &Served{make(chan struct{}, maxServed)} }

// Release plans the release of a version, as Planner.Release does; compare: or only compares with it. The error is ErrNotServed, ErrBusy, a *Refused, or that of a call.
func (s *Served) Release(ctx context.Context, calls connection.API, stores read.Store, n connection.ServiceName, version string, compare bool) (*Plan, error) {
	if s == nil {
		return nil, ErrNotServed
	}
	late := fmt.Errorf("the runtimes did not answer within %s: %w", servedPatience, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(ctx, servedPatience, late)
	defer cancel()
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	case <-ctx.Done():
		return nil, ErrBusy
	}
	application, err := read.Application(ctx, calls, n.Application)
	if err != nil {
		return nil, err
	}
	at, err := stores.Open(ctx, application.Store)
	if err != nil {
		return nil, err
	}
	defer at.Close() // the written objects are content-addressed and independent
	planner := New(calls, n.Application, at, "board")
	planner.Pickup = servedPickup
	plan, err := planner.Release(ctx, Release{Application: application, Service: n.Service, Version: version, Compare: compare})
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return plan, err
}
