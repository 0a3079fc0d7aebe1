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

// Prepare renders a version for the requested instances, once. The meaning of a version is recorded when it is first named, and a known
// name always yields the same bytes. Invalid requests are rejected. All other errors can be retried, except damaged data.
func (a *Activities) Prepare(ctx context.Context, r protocol.PrepareRequest) (protocol.PrepareAnswer, error) {
	request, err := r.Whole()
	if err != nil {
		return protocol.PrepareAnswer{}, refuse("prepare %s: %s", r.FullVersion, err)
	}
	answer, err := a.prepare(ctx, request)
	answer.RecentlyPrepared = a.prepareRate.add(time.Now())
	answer, err = spillIfLarge(ctx, a, answer, err)
	return answer, damageError(err)
}

// damageError returns a permanent error for data that the store has lost.
func damageError(err error) error {
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
	if err := a.renewIncarnation(ctx, r, record); err != nil {
		return protocol.PrepareAnswer{}, err
	}
	if entities.IsValuesName(r.FullVersion) {
		return a.prepareValues(ctx, r, record, known)
	}
	payloads, err := a.render(ctx, r, r.Instances, record)
	if err != nil {
		return protocol.PrepareAnswer{}, err
	}
	inc, err := a.Store.Incarnation(ctx, record.Hash)
	if err != nil {
		return protocol.PrepareAnswer{}, err
	}
	digests := map[string]string{}
	for id, payload := range payloads {
		digests[displayName(inc, id, r.Keys)] = entities.DigestOf(payload)
	}
	if record, err = a.storeVersion(ctx, r, record, known, payloads, digests); err != nil {
		return protocol.PrepareAnswer{}, err
	}
	answer := protocol.PrepareAnswer{
		Known: known, Incarnation: record.Incarnation, Hash: record.Hash, Payloads: map[entities.InstanceID]protocol.PreparedPayload{},
	}
	for id, payload := range payloads {
		name := displayName(inc, id, r.Keys)
		prepared := protocol.PreparedPayload{Runtime: payload.Runtime, Digest: cmp.Or(record.Payloads[name], digests[name])}
		if prepared.CurrentVersionDigest, err = a.underCurrentVersion(ctx, r, record, id); err != nil {
			return answer, err
		}
		answer.Payloads[id] = prepared
	}
	return answer, nil
}

// renewIncarnation renews the incarnation of a version, which may have been unreferenced for long, so that it is not garbage-collected.
func (a *Activities) renewIncarnation(ctx context.Context, r protocol.PrepareRequest, record store.VersionRecord) error {
	if record.Hash == r.Hash { // it is of the newest incarnation
		return nil
	}
	err := a.Store.RenewIncarnation(ctx, record.Hash)
	if store.IsNotFound(err) {
		return refuse("version %s belongs to incarnation %d, which is no longer stored (converge admin store gc); release it under a new name: converge release %s/%s VERSION",
			r.FullVersion, record.Incarnation, r.Application, r.Service)
	}
	return err
}

// prepareValues records the values of an aspect. They are rendered together with a version later.
func (a *Activities) prepareValues(ctx context.Context, r protocol.PrepareRequest, record store.VersionRecord, known bool) (protocol.PrepareAnswer, error) {
	inc, err := a.Store.Incarnation(ctx, record.Hash)
	if err != nil {
		return protocol.PrepareAnswer{}, err
	}
	if _, err := incarnation.NormalizeParameters(inc, r.Service, inputOf(record)); err != nil {
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

// payloadsAtOnce is the number of payloads written concurrently. A fleet has hundreds, and the release waits for them.
const payloadsAtOnce = 32

// storeVersion writes a version, unless it is known, and its payloads to the store concurrently, and returns the stored record. A version
// that cannot be rendered is not recorded. If a worker died between the writes, a version may lack a payload; it is then rendered again.
func (a *Activities) storeVersion(
	ctx context.Context, r protocol.PrepareRequest, record store.VersionRecord, known bool, payloads map[entities.InstanceID]entities.Payload, digests map[string]string,
) (store.VersionRecord, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(payloadsAtOnce)
	stored := record
	if !known {
		record.Payloads = digests
		g.Go(func() (err error) {
			stored, _, err = a.Store.CreateVersion(ctx, r.Application, r.Service, record)
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
	return stored, err
}

// checkInitial rejects an initial version if something was released before. A server that lost its state must not reset production to the
// initial version.
func (a *Activities) checkInitial(ctx context.Context, r protocol.PrepareRequest) error {
	if !r.Initial {
		return nil
	}
	before, err := a.Store.OtherVersion(ctx, r.Application, r.Service, r.FullVersion)
	if err != nil || before == "" {
		return err
	}
	return refuse("the store has %s of %s/%s, so this is not the first release, although Temporal has none; release the version that should run: converge release %s/%s VERSION",
		before, r.Application, r.Service, r.Application, r.Service)
}

// version returns the recorded meaning of the version, or creates it.
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
		if fault := config.CheckVersion(r.Version); fault != nil && !entities.IsValuesName(r.Version) {
			return record, false, refuse("version %s", fault)
		}
		return record, false, a.checkSettable(ctx, r.Service, record)
	}
	base, err := a.Store.Version(ctx, r.Application, r.Service, r.Version)
	if err != nil {
		return record, false, fmt.Errorf("version %s: %w", r.Version, err)
	}
	record, err = a.underConfiguration(ctx, r.Service, base, r.Hash)
	record.FullVersion, record.Incarnation = r.FullVersion, r.Incarnation
	return record, false, err
}

// merged returns the meaning of a version with the values of released aspects, as far as its configuration still declares them. The
// aspect that is being released must have all of its values declared.
func (a *Activities) merged(ctx context.Context, r protocol.PrepareRequest) (store.VersionRecord, error) {
	base := r
	var values []string
	base.FullVersion, values = entities.SplitVersion(r.FullVersion)
	base.Version, base.Parameters, base.ChannelParameters = ordering.BaseVersion(base.FullVersion), nil, nil
	record, err := a.Store.Version(ctx, r.Application, r.Service, base.FullVersion)
	if store.IsNotFound(err) && base.Version != base.FullVersion {
		record, _, err = a.version(ctx, base)
	}
	if err != nil {
		return record, fmt.Errorf("version %s: %w", base.FullVersion, err)
	}
	for _, name := range values {
		given, err := a.Store.Version(ctx, r.Application, r.Service, name)
		if err != nil {
			return record, fmt.Errorf("values %s: %w", name, err)
		}
		declared, err := a.underConfiguration(ctx, r.Service, given, record.Hash)
		if err != nil {
			return record, err
		}
		if entities.AspectOf(name) == r.Values && declared.Given() < given.Given() {
			return record, refuse("its configuration does not accept all values of %s", name)
		}
		record = record.With(declared)
	}
	record.FullVersion, record.Payloads = r.FullVersion, nil
	return record, nil
}

// underConfiguration returns the meaning of a version under another configuration: its parameters, as far as that configuration still
// declares them.
func (a *Activities) underConfiguration(ctx context.Context, service string, record store.VersionRecord, hash string) (store.VersionRecord, error) {
	inc, err := a.Store.Incarnation(ctx, hash)
	if err != nil {
		return record, err
	}
	if record.ChannelParameters, err = a.renamedParameters(ctx, inc, record); err != nil {
		return record, err
	}
	declared := incarnation.CompatibleParameters(inc, service, inputOf(record))
	record.Payloads = nil // it renders to something else
	record.Hash, record.Parameters, record.ChannelParameters = hash, declared.Parameters, declared.ChannelParameters
	return record, nil
}

// renamedParameters returns the channel-specific parameters of a record, under the names that these channels have in another configuration.
func (a *Activities) renamedParameters(ctx context.Context, inc *incarnation.Incarnation, record store.VersionRecord) (map[string]map[string]any, error) {
	known := inc.Channels()
	if !slices.ContainsFunc(entities.SortedKeys(record.ChannelParameters), func(c string) bool { return !slices.Contains(known, c) }) {
		return record.ChannelParameters, nil
	}
	old, err := a.Store.Incarnation(ctx, record.Hash)
	if err != nil {
		return nil, err
	}
	keys, renamed := old.Keys(), map[string]map[string]any{}
	for channel, values := range record.ChannelParameters {
		renamed[inc.TranslateChannel(channel, keys)] = values
	}
	return renamed, nil
}

// sameParameters rejects a known version with parameters other than those recorded. No parameters mean the recorded ones.
func (a *Activities) sameParameters(ctx context.Context, r protocol.PrepareRequest, record store.VersionRecord) error {
	if len(r.Parameters)+len(r.ChannelParameters) == 0 {
		return nil
	}
	inc, err := a.Store.Incarnation(ctx, record.Hash)
	if err != nil {
		return err
	}
	requested := inputOf(record)
	requested.Parameters, requested.ChannelParameters = r.Parameters, r.ChannelParameters
	given, err := incarnation.NormalizeParameters(inc, r.Service, requested)
	if err != nil {
		return refuse("%s", err)
	}
	recorded, err := incarnation.NormalizeParameters(inc, r.Service, inputOf(record))
	if err != nil {
		return refuse("%s", err)
	}
	if entities.DigestOf(given) != entities.DigestOf(recorded) {
		return refuse("%s already exists with other parameters; the meaning of a version does not change, so name a new one", r.FullVersion)
	}
	return nil
}

// checkSettable rejects a release with parameters that a release may not set.
func (a *Activities) checkSettable(ctx context.Context, service string, record store.VersionRecord) error {
	if len(record.Parameters)+len(record.ChannelParameters) == 0 {
		return nil
	}
	inc, err := a.Store.Incarnation(ctx, record.Hash)
	if err != nil {
		return err
	}
	if err := incarnation.CheckSettable(inc, service, inputOf(record)); err != nil {
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

// render renders a version for instances. A channel that was renamed since gets the same payload.
func (a *Activities) render(ctx context.Context, r protocol.PrepareRequest, ids []entities.InstanceID, record store.VersionRecord) (map[entities.InstanceID]entities.Payload, error) {
	inc, err := a.Store.Incarnation(ctx, record.Hash)
	if err != nil {
		return nil, err
	}
	in := inputOf(record)
	for _, id := range ids {
		in.Instances = append(in.Instances, displayName(inc, id, r.Keys))
	}
	rendered, err := incarnation.Render(inc, r.Service, in)
	if err != nil {
		return nil, refuse("%s", err)
	}
	payloads := map[entities.InstanceID]entities.Payload{}
	for _, id := range ids {
		if payload, known := rendered[displayName(inc, id, r.Keys)]; known {
			payloads[id] = payload
		}
	}
	return payloads, nil
}

// displayName returns the display name of an instance in an incarnation, even if its channel was renamed since.
func displayName(inc *incarnation.Incarnation, id entities.InstanceID, keys map[string]string) string {
	return entities.InstanceID{Channel: inc.TranslateChannel(id.Channel, keys), Name: id.Name}.String()
}

// underCurrentVersion returns the digest of the payload that the record's configuration renders to under the current version of an instance;
// empty if not requested.
func (a *Activities) underCurrentVersion(ctx context.Context, r protocol.PrepareRequest, record store.VersionRecord, id entities.InstanceID) (string, error) {
	present, requested := r.CurrentVersions[id]
	if !requested {
		return "", nil
	}
	running, err := a.Store.Version(ctx, r.Application, r.Service, present)
	if err != nil {
		return "", fmt.Errorf("version %s: %w", present, err)
	}
	if running, err = a.underConfiguration(ctx, r.Service, running, record.Hash); err != nil {
		return "", err
	}
	payloads, err := a.render(ctx, r, []entities.InstanceID{id}, running)
	if err != nil {
		return "", err
	}
	return entities.DigestOf(payloads[id]), nil
}

// refuse returns a non-retryable error: the request is invalid. It replaces bytes that are not UTF-8, because the server rejects them and
// the workflow could not continue.
func refuse(format string, args ...any) error {
	text := strings.ToValidUTF8(fmt.Sprintf(format, args...), "\ufffd")
	return temporal.NewNonRetryableApplicationError(text, protocol.ErrRefused, nil)
}

// Draft is the meaning that a version has or would have, without recording it.
type Draft struct {
	Known    bool // the version is recorded already, with this meaning
	Record   store.VersionRecord
	Payloads map[entities.InstanceID]entities.Payload // without instances that the configuration does not have
}

// Draft renders a version as Prepare does, with the same checks, and writes nothing. `converge plan` shows it before a decision.
func (a *Activities) Draft(ctx context.Context, r protocol.PrepareRequest) (Draft, error) {
	record, known, err := a.version(ctx, r)
	if err != nil {
		return Draft{}, err
	}
	payloads, err := a.render(ctx, r, r.Instances, record)
	return Draft{Known: known, Record: record, Payloads: payloads}, err
}

// UnderCurrentVersion returns the digest of the payload that a configuration (r.Hash) renders to under the current version of an instance, with
// that version's parameters. If it equals the current digest, publishing the configuration does not change the instance (B9).
func (a *Activities) UnderCurrentVersion(ctx context.Context, r protocol.PrepareRequest, id entities.InstanceID) (string, error) {
	return a.underCurrentVersion(ctx, r, store.VersionRecord{Hash: r.Hash}, id)
}
