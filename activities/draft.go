package activities

import (
	"context"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// Draft is what a version means, or would mean, without being remembered for it.
type Draft struct {
	Known    bool // the version has a meaning already, and this is it
	Record   store.VersionRecord
	Payloads map[entities.InstanceID]entities.Payload // those that the configuration does not know are left out
}

// Draft renders a version as Prepare does, with the same refusals, and writes nothing: `converge
// plan` shows it before anybody decides.
func (a *Activities) Draft(ctx context.Context, r protocol.PrepareRequest) (Draft, error) {
	record, known, err := a.version(ctx, r)
	if err != nil {
		return Draft{}, err
	}
	payloads, err := a.render(ctx, r.Service, r.Instances, record)
	return Draft{Known: known, Record: record, Payloads: payloads}, err
}

// UnderPresent is the digest of what a configuration (r.Hash) renders to under the version that an
// instance has, with that version's parameters: the same as there is means that a publication of it
// leaves the instance alone (B9).
func (a *Activities) UnderPresent(ctx context.Context, r protocol.PrepareRequest, id entities.InstanceID) (string, error) {
	return a.underPresent(ctx, r, store.VersionRecord{Hash: r.Hash}, id)
}
