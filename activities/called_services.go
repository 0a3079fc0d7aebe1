package activities

import (
	"context"
	"maps"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// calledServices asks services of which some are called otherwise than first. Rules say what people call them; workflows and the store
// know them by their first names, which keys has by name.
type calledServices struct {
	services
	keys map[string]string
}

var _ checks.Services = calledServices{}

// Status implements checks.Services.
func (c calledServices) Status(ctx context.Context, application, service string) (protocol.Status, error) {
	return c.services.Status(ctx, application, entities.NameIn(c.keys, service))
}

// Newest implements checks.Services.
func (c calledServices) Newest(ctx context.Context, application string) (int64, map[string]string, error) {
	number, manifest, err := c.services.Newest(ctx, application)
	if err != nil {
		return 0, nil, err
	}
	specs := maps.Clone(manifest)
	for name, key := range c.keys {
		specs[name] = manifest[key]
	}
	return number, specs, nil
}

// Parameters implements checks.Services.
func (c calledServices) Parameters(ctx context.Context, application, service, channel, fullVersion string) (map[string]any, error) {
	return c.services.Parameters(ctx, application, entities.NameIn(c.keys, service), channel, fullVersion)
}
