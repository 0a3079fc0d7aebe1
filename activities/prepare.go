package activities

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities"
	ordering "github.com/converge-engine/converge/entities/order"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
)

// Prepare renders a version for the instances asked for, once and for ever: what a version means is
// recorded when it is first named, and a known name means those bytes again. What a caller did
// wrong is refused; everything else is worth another try, but for what is damaged.
func (a *Activities) Prepare(ctx context.Context, r protocol.PrepareRequest) (protocol.PrepareAnswer, error) {
	whole, err := r.Whole()
	if err != nil {
		return protocol.PrepareAnswer{}, refuse("prepare %s: %s", r.FullVersion, err)
	}
	answer, err := a.prepare(ctx, whole)
	answer.Beside = a.prepared.another(time.Now())
	answer, err = left(ctx, a, answer, err)
	return answer, damage(err)
}

// damage names what the store has lost: no retry brings it back.
func damage(err error) error {
	if !store.IsDamaged(err) {
		return err
	}
	return temporal.NewNonRetryableApplicationError(err.Error(), protocol.ErrDamaged, nil)
}

func (a *Activities) prepare(ctx context.Context, r protocol.PrepareRequest) (protocol.PrepareAnswer, error) {
	if err := a.checkInitial(ctx, r); err != nil {
		return protocol.PrepareAnswer{}, err
	}
	record, known, err := a.version(ctx, r)
	if err != nil {
		return protocol.PrepareAnswer{}, err
	}
	if err := a.again(ctx, r, record); err != nil {
		return protocol.PrepareAnswer{}, err
	}
	if entities.NamesValues(r.FullVersion) {
		return a.values(ctx, r, record, known)
	}
	payloads, err := a.render(ctx, r, r.Instances, record)
	if err != nil {
		return protocol.PrepareAnswer{}, err
	}
	inc, err := a.Store.Incarnation(ctx, record.Hash)
	if err != nil {
		return protocol.PrepareAnswer{}, err
	}
	made := map[string]string{}
	for id, payload := range payloads {
		made[shownIn(inc, id, r.Keys)] = entities.DigestOf(payload)
	}
	if record, err = a.keep(ctx, r, record, known, payloads, made); err != nil {
		return protocol.PrepareAnswer{}, err
	}
	answer := protocol.PrepareAnswer{
		Known: known, Incarnation: record.Incarnation, Hash: record.Hash, Payloads: map[entities.InstanceID]protocol.PreparedPayload{},
	}
	for id, payload := range payloads {
		called := shownIn(inc, id, r.Keys)
		prepared := protocol.PreparedPayload{Runtime: payload.Runtime, Digest: cmp.Or(record.Payloads[called], made[called])}
		if prepared.UnderPresent, err = a.underPresent(ctx, r, record, id); err != nil {
			return answer, err
		}
		answer.Payloads[id] = prepared
	}
	return answer, nil
}

// again has what a version is of stay, which nothing may have referred to for long.
func (a *Activities) again(ctx context.Context, r protocol.PrepareRequest, record store.VersionRecord) error {
	if record.Hash == r.Hash { // it is what is newest
		return nil
	}
	err := a.Store.RenewIncarnation(ctx, record.Hash)
	if store.IsNotFound(err) {
		return refuse("version %s is of incarnation %d, which is not kept any more (converge store gc); release it under a new name: converge release %s/%s VERSION",
			r.FullVersion, record.Incarnation, r.Application, r.Service)
	}
	return err
}

// values writes down what values of an aspect are. What they are rendered to is known once a version is.
func (a *Activities) values(ctx context.Context, r protocol.PrepareRequest, record store.VersionRecord, known bool) (protocol.PrepareAnswer, error) {
	inc, err := a.Store.Incarnation(ctx, record.Hash)
	if err != nil {
		return protocol.PrepareAnswer{}, err
	}
	if _, err := incarnation.Given(inc, r.Service, inputOf(record)); err != nil {
		return protocol.PrepareAnswer{}, refuse("%s", err)
	}
	if !known {
		if record, _, err = a.Store.CreateVersion(ctx, r.Application, r.Service, record); err != nil {
			return protocol.PrepareAnswer{}, err
		}
	}
	answer := protocol.PrepareAnswer{Known: known, Incarnation: record.Incarnation, Hash: record.Hash, Payloads: map[entities.InstanceID]protocol.PreparedPayload{}}
	for _, id := range r.Instances {
		answer.Payloads[id] = protocol.PreparedPayload{}
	}
	return answer, nil
}

// payloadsAtOnce is how many payloads are written at a time: a fleet has hundreds, and whoever releases waits for them.
const payloadsAtOnce = 32

// keep writes a version, unless it is known, and its payloads to the store, all at once, and returns the record that stands. What cannot be
// rendered is not remembered; where a version is and one of its payloads is not, since a worker died in between, it is rendered again.
func (a *Activities) keep(
	ctx context.Context, r protocol.PrepareRequest, record store.VersionRecord, known bool, payloads map[entities.InstanceID]entities.Payload, made map[string]string,
) (store.VersionRecord, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(payloadsAtOnce)
	stands := record
	if !known {
		record.Payloads = made
		g.Go(func() (err error) {
			stands, _, err = a.Store.CreateVersion(ctx, r.Application, r.Service, record)
			return err
		})
	}
	for _, payload := range payloads {
		g.Go(func() error {
			_, err := a.Store.PutPayload(ctx, payload)
			return err
		})
	}
	err := g.Wait()
	return stands, err
}

// checkInitial refuses an initial version where something was released before: a server that lost its
// memory must not take production back to where it began.
func (a *Activities) checkInitial(ctx context.Context, r protocol.PrepareRequest) error {
	if !r.Initial {
		return nil
	}
	before, err := a.Store.OtherVersion(ctx, r.Application, r.Service, r.FullVersion)
	if err != nil || before == "" {
		return err
	}
	return refuse("the store knows %s of %s/%s, so this is not its first release although Temporal remembers none; release what should run: converge release %s/%s VERSION",
		before, r.Application, r.Service, r.Application, r.Service)
}

// version finds what the version means, or makes up what it will mean from now on.
func (a *Activities) version(ctx context.Context, r protocol.PrepareRequest) (store.VersionRecord, bool, error) {
	record, err := a.Store.Version(ctx, r.Application, r.Service, r.FullVersion)
	if err == nil {
		return record, true, a.sameParameters(ctx, r, record)
	}
	if !store.IsNotFound(err) {
		return record, false, err
	}
	if _, values := entities.SplitVersion(r.FullVersion); len(values) > 0 {
		record, err := a.merged(ctx, r)
		return record, false, err
	}
	record = store.VersionRecord{
		Version: r.Version, FullVersion: r.FullVersion, Incarnation: r.Incarnation, Hash: r.Hash,
		Parameters: r.Parameters, ChannelParameters: r.ChannelParameters,
	}
	if r.Version == r.FullVersion {
		if fault := config.CheckVersion(r.Version); fault != nil && !entities.NamesValues(r.Version) {
			return record, false, refuse("version %s", fault)
		}
		return record, false, a.settable(ctx, r.Service, record)
	}
	base, err := a.Store.Version(ctx, r.Application, r.Service, r.Version)
	if err != nil {
		return record, false, fmt.Errorf("version %s: %w", r.Version, err)
	}
	record, err = a.carried(ctx, r.Service, base, r.Hash)
	record.FullVersion, record.Incarnation = r.FullVersion, r.Incarnation
	return record, false, err
}

// merged is what a version means with values of releases of aspects: those that its configuration still declares. Of the aspect that it
// is rendered for all must be.
func (a *Activities) merged(ctx context.Context, r protocol.PrepareRequest) (store.VersionRecord, error) {
	of := r
	var values []string
	of.FullVersion, values = entities.SplitVersion(r.FullVersion)
	of.Version, of.Parameters, of.ChannelParameters = ordering.Named(of.FullVersion), nil, nil
	record, err := a.Store.Version(ctx, r.Application, r.Service, of.FullVersion)
	if store.IsNotFound(err) && of.Version != of.FullVersion {
		record, _, err = a.version(ctx, of)
	}
	if err != nil {
		return record, fmt.Errorf("version %s: %w", of.FullVersion, err)
	}
	for _, name := range values {
		given, err := a.Store.Version(ctx, r.Application, r.Service, name)
		if err != nil {
			return record, fmt.Errorf("values %s: %w", name, err)
		}
		fitting, err := a.carried(ctx, r.Service, given, record.Hash)
		if err != nil {
			return record, err
		}
		if entities.AspectOf(name) == r.Values && fitting.Given() < given.Given() {
			return record, refuse("its configuration does not take all values of %s", name)
		}
		record = record.With(fitting)
	}
	record.FullVersion, record.Payloads = r.FullVersion, nil
	return record, nil
}

// carried is what a version means under another configuration: its parameters, as far as that still
// declares them.
func (a *Activities) carried(ctx context.Context, service string, record store.VersionRecord, hash string) (store.VersionRecord, error) {
	inc, err := a.Store.Incarnation(ctx, hash)
	if err != nil {
		return record, err
	}
	if record.ChannelParameters, err = a.calledIn(ctx, inc, record); err != nil {
		return record, err
	}
	kept := incarnation.Carry(inc, service, inputOf(record))
	record.Payloads = nil // it renders to something else
	record.Hash, record.Parameters, record.ChannelParameters = hash, kept.Parameters, kept.ChannelParameters
	return record, nil
}

// calledIn are the parameters that a record has for single channels, by what these are called in another configuration.
func (a *Activities) calledIn(ctx context.Context, inc *incarnation.Incarnation, record store.VersionRecord) (map[string]map[string]any, error) {
	known := inc.Channels()
	if !slices.ContainsFunc(entities.SortedKeys(record.ChannelParameters), func(c string) bool { return !slices.Contains(known, c) }) {
		return record.ChannelParameters, nil
	}
	made, err := a.Store.Incarnation(ctx, record.Hash)
	if err != nil {
		return nil, err
	}
	keys, called := made.Keys(), map[string]map[string]any{}
	for channel, values := range record.ChannelParameters {
		called[inc.Named(channel, keys)] = values
	}
	return called, nil
}

// sameParameters refuses a known version with other parameters than it was made with. None given
// means those.
func (a *Activities) sameParameters(ctx context.Context, r protocol.PrepareRequest, record store.VersionRecord) error {
	if len(r.Parameters)+len(r.ChannelParameters) == 0 {
		return nil
	}
	inc, err := a.Store.Incarnation(ctx, record.Hash)
	if err != nil {
		return err
	}
	asked := inputOf(record)
	asked.Parameters, asked.ChannelParameters = r.Parameters, r.ChannelParameters
	given, err := incarnation.Given(inc, r.Service, asked)
	if err != nil {
		return refuse("%s", err)
	}
	recorded, err := incarnation.Given(inc, r.Service, inputOf(record))
	if err != nil {
		return refuse("%s", err)
	}
	if entities.DigestOf(given) != entities.DigestOf(recorded) {
		return refuse("%s is known with other parameters; a known name means the same bytes again, so name a new version", r.FullVersion)
	}
	return nil
}

// settable refuses a release whose parameters are not for releases to set.
func (a *Activities) settable(ctx context.Context, service string, record store.VersionRecord) error {
	if len(record.Parameters)+len(record.ChannelParameters) == 0 {
		return nil
	}
	inc, err := a.Store.Incarnation(ctx, record.Hash)
	if err != nil {
		return err
	}
	if err := incarnation.Settable(inc, service, inputOf(record)); err != nil {
		return refuse("%s", err)
	}
	return nil
}

func inputOf(record store.VersionRecord) incarnation.RenderInput {
	return incarnation.RenderInput{
		Version: record.Version, FullVersion: record.FullVersion,
		Parameters: record.Parameters, ChannelParameters: record.ChannelParameters,
	}
}

// render renders a version for instances: each gets what it renders to, whatever its channel was called then.
func (a *Activities) render(ctx context.Context, r protocol.PrepareRequest, ids []entities.InstanceID, record store.VersionRecord) (map[entities.InstanceID]entities.Payload, error) {
	inc, err := a.Store.Incarnation(ctx, record.Hash)
	if err != nil {
		return nil, err
	}
	in := inputOf(record)
	for _, id := range ids {
		in.Instances = append(in.Instances, shownIn(inc, id, r.Keys))
	}
	rendered, err := incarnation.Render(inc, r.Service, in)
	if err != nil {
		return nil, refuse("%s", err)
	}
	payloads := map[entities.InstanceID]entities.Payload{}
	for _, id := range ids {
		if payload, known := rendered[shownIn(inc, id, r.Keys)]; known {
			payloads[id] = payload
		}
	}
	return payloads, nil
}

// shownIn is how people are shown an instance in an incarnation, whatever its channel is called now.
func shownIn(inc *incarnation.Incarnation, id entities.InstanceID, keys map[string]string) string {
	return entities.InstanceID{Channel: inc.Named(id.Channel, keys), Name: id.Name}.String()
}

// underPresent is the digest of what the record's configuration renders to under the version that an
// instance has now; empty when that was not asked.
func (a *Activities) underPresent(ctx context.Context, r protocol.PrepareRequest, record store.VersionRecord, id entities.InstanceID) (string, error) {
	present, asked := r.Present[id]
	if !asked {
		return "", nil
	}
	there, err := a.Store.Version(ctx, r.Application, r.Service, present)
	if err != nil {
		return "", fmt.Errorf("version %s: %w", present, err)
	}
	if there, err = a.carried(ctx, r.Service, there, record.Hash); err != nil {
		return "", err
	}
	payloads, err := a.render(ctx, r, []entities.InstanceID{id}, there)
	if err != nil {
		return "", err
	}
	return entities.DigestOf(payloads[id]), nil
}

// refuse is an error that no retry mends: the caller asked for something impossible. What it quotes of that may be any bytes, and
// a workflow that answered others than UTF-8 could not go on: the server takes none.
func refuse(format string, args ...any) error {
	text := strings.ToValidUTF8(fmt.Sprintf(format, args...), "\ufffd")
	return temporal.NewNonRetryableApplicationError(text, protocol.ErrRefused, nil)
}

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
	payloads, err := a.render(ctx, r, r.Instances, record)
	return Draft{Known: known, Record: record, Payloads: payloads}, err
}

// UnderPresent is the digest of what a configuration (r.Hash) renders to under the version that an
// instance has, with that version's parameters: the same as there is means that a publication of it
// leaves the instance alone (B9).
func (a *Activities) UnderPresent(ctx context.Context, r protocol.PrepareRequest, id entities.InstanceID) (string, error) {
	return a.underPresent(ctx, r, store.VersionRecord{Hash: r.Hash}, id)
}
