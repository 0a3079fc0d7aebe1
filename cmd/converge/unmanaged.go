package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// broughtBack is what is to be expected of a service whose workflow is gone though nobody asked for that.
const broughtBack = "its workflow is gone; while it is declared, it is started again within a minute"

// unmanaged are the services of a target that are not looked after, with why: those that are kept down (converge
// unmanage), and those whose workflow is gone and was not started again yet. They cannot be asked themselves.
func (f *Factory) unmanaged(ctx context.Context, t target) ([]protocol.Status, error) {
	api, err := f.client(ctx)
	if err != nil {
		return nil, err
	}
	gone, err := f.gone(ctx, t.application)
	if err != nil {
		return nil, err
	}
	applications := []string{t.application}
	if t.application == "" {
		if applications, err = api.Applications(ctx); err != nil {
			return nil, err
		}
	}
	why := map[serviceName]string{}
	expected := broughtBack
	if len(gone) > 0 {
		if reason, err := api.Ended(ctx, protocol.InstallationID()); err != nil {
			return nil, err
		} else if strings.Contains(reason, protocol.ExportedBy) {
			expected = reason + ", to go on elsewhere; nothing is looked after here any more"
		}
	}
	for _, n := range gone {
		why[n] = expected
	}
	for _, application := range applications {
		down, err := f.keptDown(ctx, application)
		if err != nil {
			return nil, err
		}
		explainDown(why, application, down)
	}
	return statusesOf(why, t), nil
}

// gone are the services whose workflow is gone.
func (f *Factory) gone(ctx context.Context, application string) ([]serviceName, error) {
	api, err := f.client(ctx)
	if err != nil {
		return nil, err
	}
	ended, err := api.Gone(ctx, application)
	if err != nil || len(ended) == 0 {
		return nil, err
	}
	running, err := api.Services(ctx, application)
	return slices.DeleteFunc(ended, func(n serviceName) bool { return slices.Contains(running, n) }), err
}

// keptDown are the services that an application keeps down.
func (f *Factory) keptDown(ctx context.Context, application string) (protocol.UnmanagedServices, error) {
	s, err := f.applicationStatus(ctx, application)
	if errors.Is(err, errNotFound) {
		err = nil
	}
	down := protocol.UnmanagedServices{}
	for service, u := range s.Unmanaged {
		down[s.Names.Title(service)] = u
	}
	return down, err
}

func (f *Factory) applicationStatus(ctx context.Context, application string) (s protocol.ApplicationStatus, err error) {
	api, err := f.client(ctx)
	if err != nil {
		return s, err
	}
	err = api.Query(ctx, protocol.ApplicationID(application), protocol.QueryStatus, &s)
	return s, err
}

// explainDown adds what an application says of its services. Where all are kept down and none of them is known by name
// any more, since that is so for long, "*" stands for them.
func explainDown(why map[serviceName]string, application string, down protocol.UnmanagedServices) {
	named := false
	for n := range why {
		if n.application != application {
			continue
		}
		named = true
		if _, itself := down[n.service]; itself {
			continue // below
		}
		if u, ok := down.Of(n.service); ok {
			why[n] = untilManaged(u, application)
		}
	}
	for service, u := range down {
		n := serviceName{application, service}
		switch {
		case service != protocol.AllServices:
			why[n] = untilManaged(u, n.String())
		case !named:
			why[n] = untilManaged(u, application)
		}
	}
}

// untilManaged says why, since when and until when something is not looked after.
func untilManaged(u protocol.Unmanaged, what string) string {
	text := u.Text()
	if !u.At.IsZero() {
		text += u.At.UTC().Format("; since 2006-01-02 15:04 MST")
	}
	return text + "; until: converge manage " + what
}

// statusesOf makes a status of each that a target means, sorted by name.
func statusesOf(why map[serviceName]string, t target) []protocol.Status {
	var out []protocol.Status
	for n, text := range why {
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
