package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Polls records how a worker's own polls end, by kind, and how far its clock is off. A busy worker polls rarely, so the time of the last
// poll says nothing; a failure of the last completed poll does. The zero value is ready to use.
type Polls struct {
	mu         sync.Mutex
	lastByKind map[string]poll
	clock      clock
}

// poll is how the last poll of a kind ended.
type poll struct {
	err   error
	since time.Time // of the first failure in a row
	// waiting is since when another poll waits for work since that failure; zero: none does. A poll that finds no work ends after a minute.
	waiting time.Time
}

// acceptedAfter is how long a poll waits before it counts as accepted: a server that is away or refuses says so at once. After a poll that
// ran into its own deadline, waiting says nothing: a server that hangs keeps polls open, too.
const acceptedAfter = 2 * time.Second

// DialOption makes a connection report how its polls end.
func (p *Polls) DialOption() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		return p.track(request, func() error {
			err := invoke(ctx, method, request, reply, c, o...)
			if err == nil {
				p.clock.recordTask(reply, time.Now())
			}
			return err
		})
	})
}

// track makes a call, and records how it ends if it is a poll.
func (p *Polls) track(request any, call func() error) error {
	kind := pollKind(request)
	if kind == "" {
		return call()
	}
	p.recordStart(kind)
	err := call()
	p.recordEnd(kind, err)
	return err
}

func pollKind(request any) string {
	switch request.(type) {
	case *workflowservice.PollWorkflowTaskQueueRequest:
		return "workflow tasks"
	case *workflowservice.PollActivityTaskQueueRequest:
		return "activities"
	}
	return ""
}

func (p *Polls) recordStart(kind string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lastByKind == nil {
		p.lastByKind = map[string]poll{}
	}
	last := p.lastByKind[kind]
	if last.waiting.IsZero() {
		last.waiting = time.Now()
	}
	p.lastByKind[kind] = last
}

// recordEnd records how a poll ended. The end of a poll that the worker itself cancelled says nothing.
func (p *Polls) recordEnd(kind string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if isOwnCancellation(err) {
		last := p.lastByKind[kind]
		last.waiting = time.Time{}
		p.lastByKind[kind] = last
		return
	}
	since := p.lastByKind[kind].since
	switch {
	case err == nil:
		since = time.Time{}
	case since.IsZero(), isRefused(err) != isRefused(p.lastByKind[kind].err):
		since = time.Now()
	}
	p.lastByKind[kind] = poll{err: err, since: since}
}

// Refused returns since when all polls of some kind are refused because of the caller, not because of an outage, and the error; nil if none
// is.
func (p *Polls) Refused() (since time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, last := range p.lastByKind {
		if isRefused(last.err) && (err == nil || last.since.Before(since)) {
			since, err = last.since, last.err
		}
	}
	return since, err
}

func isRefused(err error) bool {
	return errors.As(err, new(*serviceerror.PermissionDenied)) || status.Code(err) == codes.PermissionDenied || status.Code(err) == codes.Unauthenticated
}

func isOwnCancellation(err error) bool {
	return errors.Is(err, context.Canceled) || errors.As(err, new(*serviceerror.Canceled)) || status.Code(err) == codes.Canceled
}

// accepted reports whether the server keeps a poll open that began after the last failure.
func (p poll) accepted() bool {
	return !p.waiting.IsZero() && time.Since(p.waiting) >= acceptedAfter && !isTimeout(p.err)
}

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*serviceerror.DeadlineExceeded)) || status.Code(err) == codes.DeadlineExceeded
}

// check fails before the first poll, or if the last poll of some kind failed and the server has accepted none since.
func (p *Polls) check(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lastByKind) == 0 {
		return errors.New("it does not poll for work yet")
	}
	var failing []string
	for kind, last := range p.lastByKind {
		if last.err != nil && !last.accepted() {
			failing = append(failing, fmt.Sprintf("for %s, since %s: %v", kind, last.since.UTC().Format(time.TimeOnly), last.err))
		}
	}
	if len(failing) == 0 {
		return nil
	}
	slices.Sort(failing)
	return errors.New("polls fail " + strings.Join(failing, "; "))
}
