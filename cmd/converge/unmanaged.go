package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// restartedText is the end of the message for a service whose workflow ended without a request to end it.
const restartedText = "; while it is declared, a worker restarts it within a minute"

// maxExplainedEnds is the maximum number of services whose message says how their workflow ended. Each takes two calls.
const maxExplainedEnds = 20

// unmanagedStatuses returns the services of a target that are not managed, with the reason: services that were unmanaged (converge
// unmanage), and services whose workflow has ended and was not restarted yet. Neither has a workflow to query.
func (f *Factory) unmanagedStatuses(ctx context.Context, t target) ([]protocol.Status, error) {
	api, err := f.client(ctx)
	if err != nil {
		return nil, err
	}
	stopped, err := f.stoppedServices(ctx, t.application)
	if err != nil {
		return nil, err
	}
	applications := []string{t.application}
	if t.application == "" {
		if applications, err = api.Applications(ctx); err != nil {
			return nil, err
		}
	}
	reasons, err := f.endReasons(ctx, stopped, t)
	if err != nil {
		return nil, err
	}
	for _, application := range applications {
		unmanaged, err := f.unmanagedServices(ctx, application)
		if _, ended := reasons[t.serviceName]; ended && !t.all && errors.Is(err, errNoWorker) {
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
func (f *Factory) endReasons(ctx context.Context, stopped []serviceName, t target) (map[serviceName]string, error) {
	reasons := map[serviceName]string{}
	if len(stopped) == 0 {
		return reasons, nil
	}
	api, err := f.client(ctx)
	if err != nil {
		return nil, err
	}
	reason, err := api.TerminationReason(ctx, protocol.InstallationID())
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
		if explained < maxExplainedEnds && (t.all || n == t.serviceName) {
			how = api.HowEnded(ctx, n.id())
			explained++
		}
		reasons[n] = cmp.Or(how, "its workflow has ended") + restartedText
	}
	return reasons, nil
}

// stoppedServices returns the services whose workflow has ended.
func (f *Factory) stoppedServices(ctx context.Context, application string) ([]serviceName, error) {
	api, err := f.client(ctx)
	if err != nil {
		return nil, err
	}
	ended, err := api.EndedServices(ctx, application)
	if err != nil || len(ended) == 0 {
		return nil, err
	}
	running, err := api.Services(ctx, application)
	if err != nil {
		return nil, err
	}
	paused, err := api.Paused(ctx, application) // by operators, after a run that ended
	return slices.DeleteFunc(ended, func(n serviceName) bool {
		return slices.Contains(running, n) || slices.Contains(paused, n.id())
	}), err
}

// unmanagedServices returns the unmanaged services of an application.
func (f *Factory) unmanagedServices(ctx context.Context, application string) (protocol.UnmanagedServices, error) {
	s, err := f.applicationStatus(ctx, application)
	if errors.Is(err, errNotFound) || errors.Is(err, errPaused) {
		err = nil
	}
	unmanaged := protocol.UnmanagedServices{}
	for service, u := range s.Unmanaged {
		unmanaged[s.Names.Title(service)] = u
	}
	return unmanaged, err
}

func (f *Factory) applicationStatus(ctx context.Context, application string) (s protocol.ApplicationStatus, err error) {
	api, err := f.client(ctx)
	if err != nil {
		return s, err
	}
	err = api.Query(ctx, protocol.ApplicationID(application), protocol.QueryStatus, &s)
	if !errors.Is(err, errNotFound) {
		return s, err
	}
	known, err := api.Applications(ctx)
	if err != nil {
		return s, err
	}
	return s, &missingApplicationError{application, known}
}

// missingApplicationError is an application that nothing was published of. It is an errNotFound.
type missingApplicationError struct {
	name  string
	known []string
}

func (e *missingApplicationError) Error() string {
	return "no application " + e.name + suggestion(e.name, e.known)
}

func (e *missingApplicationError) Is(target error) bool { return target == errNotFound }

// addReasons adds the reasons that an application states. "*" means all services if all are unmanaged for so long that the
// application no longer knows their names.
func addReasons(reasons map[serviceName]string, application string, unmanaged protocol.UnmanagedServices) {
	named := false
	for n := range reasons {
		if n.application != application {
			continue
		}
		named = true
		if _, own := unmanaged[n.service]; own {
			continue // below
		}
		if u, ok := unmanaged.Of(n.service); ok {
			reasons[n] = unmanagedText(u, application)
		}
	}
	for service, u := range unmanaged {
		n := serviceName{application, service}
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
func statusesOf(reasons map[serviceName]string, t target) []protocol.Status {
	var out []protocol.Status
	for n, text := range reasons {
		if t.all || n == t.serviceName {
			out = append(out, protocol.Status{
				Schema: protocol.StatusSchema, Application: n.application, Service: n.service,
				Status: string(entities.StatusUnmanaged), Headline: text,
				Channels: []protocol.ChannelStatus{}, Releases: []protocol.ReleaseStatus{}, Pauses: []entities.Pause{},
				Pins: []protocol.PinStatus{}, Refused: []entities.Refusal{},
			})
		}
	}
	sortStatuses(out)
	return out
}

func sortStatuses(all []protocol.Status) {
	slices.SortFunc(all, func(a, b protocol.Status) int {
		return strings.Compare(nameOf(a).String(), nameOf(b).String())
	})
}

func nameOf(s protocol.Status) serviceName { return serviceName{s.Application, s.Service} }
