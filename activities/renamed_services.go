package activities

import (
	"cmp"
	"context"
	"errors"
	"maps"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// renamedServices queries services that may have been renamed. Rules use current names; workflows and the store use the first names, which
// keys has by current name for one application. For another application, names are looked up there if there is no service with the given
// name. A first name is never reused for another service.
type renamedServices struct {
	services
	application string
	keys        map[string]string
}

var _ checks.Services = renamedServices{}

// Status implements checks.Services.
func (c renamedServices) Status(ctx context.Context, application, service string) (protocol.Status, error) {
	if application == c.application {
		return c.services.Status(ctx, application, entities.NameIn(c.keys, service))
	}
	status, err := c.services.Status(ctx, application, service)
	if !errors.Is(err, checks.ErrNoService) {
		return status, err
	}
	names, namesErr := c.names(ctx, application)
	if key := names.Key(service); namesErr == nil && key != service {
		return c.services.Status(ctx, application, key)
	}
	return status, cmp.Or(namesErr, err)
}

// names returns the current names of another application's services.
func (c renamedServices) names(ctx context.Context, application string) (protocol.ServiceNames, error) {
	var status protocol.ApplicationStatus
	err := c.query(ctx, protocol.ApplicationID(application), &status)
	if errors.Is(err, checks.ErrNoService) {
		return nil, checks.ErrNoApplication
	}
	return status.Names, err
}

// Newest implements checks.Services.
func (c renamedServices) Newest(ctx context.Context, application string) (int64, map[string]string, error) {
	number, manifest, err := c.services.Newest(ctx, application)
	if err != nil {
		return 0, nil, err
	}
	specs := maps.Clone(manifest)
	if application == c.application {
		for name, key := range c.keys {
			specs[name] = manifest[key]
		}
		return number, specs, nil
	}
	names, err := c.names(ctx, application)
	for key, name := range names {
		specs[name] = manifest[key]
	}
	return number, specs, err
}

// Parameters implements checks.Services.
func (c renamedServices) Parameters(ctx context.Context, application, service, channel, fullVersion string) (map[string]any, error) {
	if application == c.application {
		return c.services.Parameters(ctx, application, entities.NameIn(c.keys, service), channel, fullVersion)
	}
	names, err := c.names(ctx, application)
	if err != nil {
		return nil, err
	}
	return c.services.Parameters(ctx, application, names.Key(service), channel, fullVersion)
}
