package read

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// restartedText is the end of the message for a service whose workflow ended without a request to end it.
const restartedText = "; while it is declared, a worker restarts it within a minute"

// maxExplainedEnds is the maximum number of services whose message says how their workflow ended. Each takes two calls.
const maxExplainedEnds = 20

// Unmanaged returns the services of a target that are not managed, with the reason: services that were unmanaged (converge
// unmanage), and services whose workflow has ended and was not restarted yet. Neither has a workflow to query.
func Unmanaged(ctx context.Context, c Calls, t Target) ([]protocol.Status, error) {
	stopped, err := stoppedServices(ctx, c, t.Application)
	if err != nil {
		return nil, err
	}
	applications := []string{t.Application}
	if t.Application == "" {
		if applications, err = c.Applications(ctx); err != nil {
			return nil, err
		}
	}
	reasons, err := endReasons(ctx, c, stopped, t)
	if err != nil {
		return nil, err
	}
	for _, application := range applications {
		unmanaged, err := unmanagedServices(ctx, c, application)
		if _, ended := reasons[t.name()]; ended && !t.all() && errors.Is(err, connection.ErrNoWorker) {
			break // the server knows how it ended
		}
		if err != nil {
			return nil, err
		}
		addReasons(reasons, application, unmanaged)
	}
	return statusesOf(reasons, t), nil
}

// endReasons returns why each of the services whose workflow has ended is not managed: how it ended for those that t names, of
// maxExplainedEnds at most.
func endReasons(ctx context.Context, c Calls, stopped []connection.ServiceName, t Target) (map[connection.ServiceName]string, error) {
	reasons := map[connection.ServiceName]string{}
	if len(stopped) == 0 {
		return reasons, nil
	}
	reason, err := c.TerminationReason(ctx, protocol.InstallationID())
	if err != nil {
		return nil, err
	}
	if strings.Contains(reason, protocol.ExportedBy) {
		for _, n := range stopped {
			reasons[n] = reason + ", to continue elsewhere; nothing is managed here any more"
		}
		return reasons, nil
	}
	explained := 0
	for _, n := range stopped {
		how := ""
		if explained < maxExplainedEnds && (t.all() || n == t.name()) {
			how = c.HowEnded(ctx, n.ID())
			explained++
		}
		reasons[n] = cmp.Or(how, "its workflow has ended") + restartedText
	}
	return reasons, nil
}

// stoppedServices returns the services whose workflow has ended.
func stoppedServices(ctx context.Context, c Calls, application string) ([]connection.ServiceName, error) {
	ended, err := c.EndedServices(ctx, application)
	if err != nil || len(ended) == 0 {
		return nil, err
	}
	running, err := c.Services(ctx, application)
	if err != nil {
		return nil, err
	}
	paused, err := c.Paused(ctx, application) // by operators, after a run that ended
	return slices.DeleteFunc(ended, func(n connection.ServiceName) bool {
		return slices.Contains(running, n) || slices.Contains(paused, n.ID())
	}), err
}

// unmanagedServices returns the unmanaged services of an application.
func unmanagedServices(ctx context.Context, c Calls, application string) (protocol.UnmanagedServices, error) {
	s, err := Application(ctx, c, application)
	if errors.Is(err, connection.ErrNotFound) || errors.Is(err, connection.ErrPaused) {
		err = nil
	}
	unmanaged := protocol.UnmanagedServices{}
	for service, u := range s.Unmanaged {
		unmanaged[s.Names.Title(service)] = u
	}
	return unmanaged, err
}

// Application returns the status of an application. One that nothing was published of is a *MissingApplicationError.
func Application(ctx context.Context, c Calls, application string) (s protocol.ApplicationStatus, err error) {
	err = c.Query(ctx, protocol.ApplicationID(application), protocol.QueryStatus, &s)
	if !errors.Is(err, connection.ErrNotFound) {
		return s, err
	}
	known, err := c.Applications(ctx)
	if err != nil {
		return s, err
	}
	return s, &MissingApplicationError{application, known}
}

// MissingApplicationError is an application that nothing was published of. It is a connection.ErrNotFound.
type MissingApplicationError struct {
	name  string
	known []string
}

func (e *MissingApplicationError) Error() string {
	return "no application " + e.name + Suggestion(e.name, e.known)
}

// Is makes it a connection.ErrNotFound.
func (e *MissingApplicationError) Is(target error) bool { return target == connection.ErrNotFound }

// addReasons adds the reasons that an application states. "*" means all services if all are unmanaged for so long that the
// application no longer knows their names.
func addReasons(reasons map[connection.ServiceName]string, application string, unmanaged protocol.UnmanagedServices) {
	named := false
	for n := range reasons {
		if n.Application != application {
			continue
		}
		named = true
		if _, own := unmanaged[n.Service]; own {
			continue // below
		}
		if u, ok := unmanaged.Of(n.Service); ok {
			reasons[n] = unmanagedText(u, application)
		}
	}
	for service, u := range unmanaged {
		n := connection.ServiceName{Application: application, Service: service}
		switch {
		case service != protocol.AllServices:
			reasons[n] = unmanagedText(u, n.String())
		case !named:
			reasons[n] = unmanagedText(u, application)
		}
	}
}

// unmanagedText returns the reason, the start and the end of an unmanaged period.
func unmanagedText(u protocol.Unmanaged, what string) string {
	text := u.Text()
	if !u.At.IsZero() {
		text += u.At.UTC().Format("; since 2006-01-02 15:04 MST")
	}
	return text + "; until: converge config manage " + what
}

// statusesOf makes a status for each service of a target, sorted by name.
func statusesOf(reasons map[connection.ServiceName]string, t Target) []protocol.Status {
	var out []protocol.Status
	for n, text := range reasons {
		if t.all() || n == t.name() {
			out = append(out, protocol.Status{
				Schema: protocol.StatusSchema, Application: n.Application, Service: n.Service,
				Status: string(entities.StatusUnmanaged), Headline: text,
				Channels: []protocol.ChannelStatus{}, Releases: []protocol.ReleaseStatus{}, Pauses: []entities.Pause{},
				Pins: []protocol.PinStatus{}, Refused: []entities.Refusal{},
			})
		}
	}
	SortStatuses(out)
	return out
}

// SortStatuses sorts by the names of the services.
func SortStatuses(all []protocol.Status) {
	slices.SortFunc(all, func(a, b protocol.Status) int {
		return strings.Compare(NameOf(a).String(), NameOf(b).String())
	})
}

// NameOf returns the name of the service of a status.
func NameOf(s protocol.Status) connection.ServiceName {
	return connection.ServiceName{Application: s.Application, Service: s.Service}
}
