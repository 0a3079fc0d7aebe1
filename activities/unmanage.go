package activities

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
)

// Unmanage ends the workflows of unmanaged services (F1). Their state remains in their checkpoints. A workflow that is not running counts
// as ended. One that cannot be ended is skipped and listed in the answer.
func (a *Activities) Unmanage(ctx context.Context, r protocol.UnmanageRequest) (protocol.UnmanageAnswer, error) {
	manifest, err := a.Store.Manifest(ctx, r.Manifest)
	if err != nil {
		return protocol.UnmanageAnswer{}, err
	}
	reasons, undeclared := servicesToEnd(r.Services, manifest)
	sender := &broadcast{send: func(ctx context.Context, service string) error {
		return a.end(ctx, r.Application, service, reasons[service])
	}}
	err = sender.run(ctx, slices.Sorted(maps.Keys(reasons)))
	return protocol.UnmanageAnswer{Undeclared: undeclared, Unreached: sender.unreached}, err
}

// servicesToEnd returns the services to end, with the reasons, and the services that the manifest does not declare: their instances would
// stay unmanaged for ever.
func servicesToEnd(requested map[string]string, manifest incarnation.Manifest) (reasons map[string]string, undeclared []string) {
	reasons = map[string]string{}
	if why, all := requested[protocol.AllServices]; all {
		for service := range manifest {
			reasons[service] = why
		}
	}
	for service, why := range requested {
		if _, declared := manifest[service]; declared {
			reasons[service] = why
		} else if service != protocol.AllServices {
			undeclared = append(undeclared, service)
		}
	}
	slices.Sort(undeclared)
	return reasons, undeclared
}

func (a *Activities) end(ctx context.Context, application, service, why string) error {
	return ignoreNotFound(a.Client.TerminateWorkflow(ctx, protocol.ServiceID(application, service), "", why))
}

// EndUnmanaged ends the running workflow of a service that its application currently lists as unmanaged. Its starter did not know that
// yet.
func (a *Activities) EndUnmanaged(ctx context.Context, id string) error {
	application, service, ok := protocol.ParseServiceID(id)
	if !ok {
		return errors.New("not the id of a service")
	}
	var status protocol.ApplicationStatus
	if err := (services{a}).query(ctx, protocol.ApplicationID(application), &status); err != nil {
		return err
	}
	if u, unmanaged := status.Unmanaged.Of(service); unmanaged {
		return a.end(ctx, application, service, u.Text())
	}
	return nil
}
