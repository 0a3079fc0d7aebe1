// Package read answers what an installation knows, in the words of its users: services and their statuses, also of those that no workflow
// manages now. It changes nothing.
package read

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/spelling"
)

// Calls are the calls of a connection that reading needs.
type Calls interface {
	Query(ctx context.Context, workflowID, query string, into any) error
	Services(ctx context.Context, application string) ([]connection.ServiceName, error)
	EndedServices(ctx context.Context, application string) ([]connection.ServiceName, error)
	Paused(ctx context.Context, application string) ([]string, error)
	TerminationReason(ctx context.Context, workflowID string) (string, error)
	HowEnded(ctx context.Context, workflowID string) string
	Applications(ctx context.Context) ([]string, error)
}

// Target is a service, or without Service all of an application, or without either all there are.
type Target struct{ Application, Service string }

func (t Target) all() bool                    { return t.Service == "" }
func (t Target) name() connection.ServiceName { return connection.ServiceName(t) }

// Services returns the services of a target. An application without services is an error that lists the existing names.
func Services(ctx context.Context, c Calls, t Target) ([]connection.ServiceName, error) {
	if !t.all() {
		return []connection.ServiceName{t.name()}, nil
	}
	names, err := c.Services(ctx, t.Application)
	if err != nil || len(names) > 0 || t.Application == "" {
		return names, err
	}
	all, err := c.Services(ctx, "")
	if err != nil {
		return nil, err
	}
	return nil, &MissingError{fmt.Sprintf("no application %s with services%s", t.Application, Suggestion(t.Application, Applications(all)))}
}

// Applications returns the applications of sorted services.
func Applications(names []connection.ServiceName) []string {
	var out []string
	for _, n := range names {
		out = append(out, n.Application)
	}
	return slices.Compact(out) // sorted
}

// Query queries one service.
func Query(ctx context.Context, c Calls, n connection.ServiceName, what string, into any) error {
	err := c.Query(ctx, n.ID(), what, into)
	if errors.Is(err, connection.ErrNotFound) {
		return NotFound(ctx, c, n)
	}
	return err
}

// Status returns the status of one service.
func Status(ctx context.Context, c Calls, n connection.ServiceName) (s protocol.Status, err error) {
	err = Query(ctx, c, n, protocol.QueryStatus, &s)
	return s, err
}

// NotFound explains that a service does not exist, and suggests similar names, as a *MissingError, or that it is not managed, as an
// *UnmanagedError.
func NotFound(ctx context.Context, c Calls, n connection.ServiceName) error {
	if unmanaged, err := Unmanaged(ctx, c, Target(n)); err == nil && len(unmanaged) > 0 {
		return &UnmanagedError{fmt.Sprintf("%s accepts no requests: %s", n, unmanaged[0].Headline)}
	}
	all, err := c.Services(ctx, "")
	if err != nil {
		return fmt.Errorf("no service %s", n)
	}
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.String()
	}
	return &MissingError{fmt.Sprintf("no service %s%s", n, Suggestion(n.String(), names))}
}

// Suggestion lists similar names, or all if they are few, or says how to declare a service.
func Suggestion(name string, names []string) string {
	similar := spelling.Closest(name, names)
	switch {
	case len(similar) == 1:
		return fmt.Sprintf("; did you mean %s?", similar[0])
	case len(similar) > 1:
		return "; did you mean one of " + strings.Join(similar, ", ") + "?"
	case len(names) == 0:
		return "; none is declared yet: converge config publish DIR"
	case len(names) == 1:
		return "; there is " + names[0]
	case len(names) <= 8:
		return "; there are " + strings.Join(names, ", ")
	}
	return "; converge status lists them all"
}

// MaxParallel limits the concurrent requests to services.
const MaxParallel = 16

// Each calls do for every service, a few at a time. It returns the results in the order of the services, and all errors joined.
func Each[T any](ctx context.Context, names []connection.ServiceName, do func(context.Context, connection.ServiceName) (T, error)) ([]T, error) {
	results := make([]T, len(names))
	failed := make([]error, len(names))
	var g errgroup.Group
	g.SetLimit(MaxParallel)
	for i, n := range names {
		g.Go(func() error {
			results[i], failed[i] = do(ctx, n)
			return nil
		})
	}
	_ = g.Wait() // errors are collected in order
	return results, connection.JoinErrors(failed)
}

// AnyStatus returns the status of one service, also of one that is not managed.
func AnyStatus(ctx context.Context, c Calls, n connection.ServiceName) (s protocol.Status, err error) {
	if err = c.Query(ctx, n.ID(), protocol.QueryStatus, &s); !errors.Is(err, connection.ErrNotFound) {
		return s, err
	}
	unmanaged, err := Unmanaged(ctx, c, Target(n))
	switch {
	case err != nil:
		return s, err
	case len(unmanaged) > 0:
		return unmanaged[0], nil
	}
	return s, NotFound(ctx, c, n)
}

// Others looks up the status of other services, at most once each.
func Others(ctx context.Context, c Calls) explain.StatusLookup {
	known := map[connection.ServiceName]*protocol.Status{}
	return func(application, service string) (protocol.Status, bool) {
		n := connection.ServiceName{Application: application, Service: service}
		if _, queried := known[n]; !queried {
			known[n] = nil
			if s, err := Status(ctx, c, n); err == nil {
				known[n] = &s
			}
		}
		if known[n] == nil {
			return protocol.Status{}, false
		}
		return *known[n], true
	}
}

// UsedRuntimes lists the runtimes that services use, sorted. With an error it lists those of the services that answered.
func UsedRuntimes(ctx context.Context, c Calls) (used []string, err error) {
	services, err := c.Services(ctx, "")
	if err != nil {
		return nil, err
	}
	all, err := Each(ctx, services, func(ctx context.Context, n connection.ServiceName) (protocol.Status, error) { return Status(ctx, c, n) })
	for _, s := range all {
		for _, channel := range s.Channels {
			used = append(used, channel.Runtime)
			for _, i := range channel.Instances {
				used = append(used, i.Runtime)
			}
		}
	}
	slices.Sort(used)
	return slices.DeleteFunc(slices.Compact(used), func(name string) bool { return name == "" }), err
}

// NoRuntime explains that a runtime has no workflow: no service uses it, or it was never limited, paused or drained. It is a *MissingError.
func NoRuntime(ctx context.Context, c Calls, name string) error {
	used, err := UsedRuntimes(ctx, c)
	if slices.Contains(used, name) {
		return &MissingError{fmt.Sprintf("runtime %s was never limited, paused or drained", name)}
	}
	return errors.Join(&MissingError{fmt.Sprintf("no service uses runtime %s%s", name, Suggestion(name, used))}, err)
}

// Plan returns the status of a plan.
func Plan(ctx context.Context, c Calls, ref protocol.PlanRef) (s protocol.PlanStatus, err error) {
	err = c.Query(ctx, ref.ID(), protocol.QueryStatus, &s)
	if errors.Is(err, connection.ErrNotFound) {
		err = &MissingError{fmt.Sprintf("no plan %s of %s in %s", ref.Name, ref.Application, ref.Channel)}
	}
	return s, err
}

// Graph returns the graph of a plan, and the progress of its nodes.
func Graph(s protocol.PlanStatus) (*plan.Plan, []plan.Progress) {
	p, states := &plan.Plan{}, make([]byte, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		node := plan.ParseNode(n.Node)
		node.Needs, node.After = n.Needs, n.After
		p.Nodes = append(p.Nodes, node)
		states = append(states, plan.State(n.State).Letter())
	}
	return p, p.ReadLetters(string(states))
}

// UnmanagedError is a service that is not managed now, so that no workflow of it answers.
type UnmanagedError struct{ text string }

func (e *UnmanagedError) Error() string { return e.text }

// MissingError is something that does not exist. It is a connection.ErrNotFound.
type MissingError struct{ text string }

func (e *MissingError) Error() string { return e.text }

// Is makes it a connection.ErrNotFound.
func (e *MissingError) Is(target error) bool { return target == connection.ErrNotFound }
