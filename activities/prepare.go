package activities

import (
	"context"
	"fmt"
	"reflect"
	"regexp"

	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent"
)

// LoadSpec reads a service spec by digest.
func (a *Activities) LoadSpec(ctx context.Context, r protocol.LoadSpecRequest) (protocol.LoadSpecAnswer, error) {
	spec, err := a.Store.Spec(ctx, r.Digest)
	if err != nil || !protocol.Large(spec) {
		return protocol.LoadSpecAnswer{Spec: &spec}, err
	}
	packed, err := protocol.Pack(spec)
	return protocol.LoadSpecAnswer{Packed: packed}, err
}

// Prepare renders a version for the channels asked for, once and for ever: what a version means is
// recorded when it is first named, and a known name means those bytes again. What a caller did
// wrong is refused; everything else is worth another try.
func (a *Activities) Prepare(ctx context.Context, r protocol.PrepareRequest) (protocol.PrepareAnswer, error) {
	record, known, err := a.version(ctx, r)
	if err != nil {
		return protocol.PrepareAnswer{}, err
	}
	answer := protocol.PrepareAnswer{
		Known: known, Incarnation: record.Incarnation, Hash: record.Hash, Payloads: map[string]protocol.PreparedPayload{},
	}
	payloads, err := a.render(ctx, r, record)
	if err != nil {
		return answer, err
	}
	for channel, payload := range payloads {
		digest, err := a.Store.PutPayload(ctx, payload)
		if err != nil {
			return answer, err
		}
		answer.Payloads[channel] = protocol.PreparedPayload{Digest: digest}
	}
	if err := a.renderPresent(ctx, r, record, &answer); err != nil {
		return answer, err
	}
	if !known {
		if _, _, err := a.Store.CreateVersion(ctx, r.Application, r.Service, record); err != nil {
			return answer, err
		}
	}
	return answer, nil
}

// configVersion is how the full version of a config release looks; a person cannot make one up.
var configVersion = regexp.MustCompile(`-i[0-9]+$`)

// version finds or makes the record of what the version means.
func (a *Activities) version(ctx context.Context, r protocol.PrepareRequest) (intent.VersionRecord, bool, error) {
	record, err := a.Store.Version(ctx, r.Application, r.Service, r.FullVersion)
	if err == nil {
		given := len(r.Parameters)+len(r.ChannelParameters) > 0
		if given && !sameParameters(r, record) {
			return record, true, refuse("%s is known with other parameters; a known name means the same bytes again, so name a new version", r.FullVersion)
		}
		return record, true, nil
	}
	if !intent.IsNotFound(err) {
		return record, false, err
	}
	record = intent.VersionRecord{
		Version: r.Version, FullVersion: r.FullVersion, Incarnation: r.Incarnation, Hash: r.Hash,
		Parameters: r.Parameters, ChannelParameters: r.ChannelParameters,
	}
	if r.Version == r.FullVersion {
		if configVersion.MatchString(r.Version) {
			return record, false, refuse("version %q looks like one that a configuration change made, but there is none of that name", r.Version)
		}
		return record, false, nil
	}
	base, err := a.Store.Version(ctx, r.Application, r.Service, r.Version)
	if err != nil {
		return record, false, fmt.Errorf("version %s: %w", r.Version, err)
	}
	record.Parameters, record.ChannelParameters = base.Parameters, base.ChannelParameters
	return record, false, nil
}

// sameParameters compares after the JSON that both went through.
func sameParameters(r protocol.PrepareRequest, record intent.VersionRecord) bool {
	return entities.DigestOf(r.Parameters) == entities.DigestOf(record.Parameters) &&
		(len(r.ChannelParameters) == 0 && len(record.ChannelParameters) == 0 ||
			reflect.DeepEqual(r.ChannelParameters, record.ChannelParameters))
}

func (a *Activities) render(ctx context.Context, r protocol.PrepareRequest, record intent.VersionRecord) (map[string]entities.Payload, error) {
	incarnation, err := a.Store.Incarnation(ctx, record.Hash)
	if err != nil {
		return nil, err
	}
	payloads, err := intent.Render(incarnation, r.Service, intent.RenderInput{
		Version: record.Version, FullVersion: record.FullVersion, Channels: r.Channels,
		Parameters: record.Parameters, ChannelParameters: record.ChannelParameters,
	})
	if err != nil {
		return nil, refuse("%s", err)
	}
	return payloads, nil
}

// renderPresent renders the configuration of a config release under what its channels have now.
func (a *Activities) renderPresent(ctx context.Context, r protocol.PrepareRequest, record intent.VersionRecord, answer *protocol.PrepareAnswer) error {
	for channel, present := range r.Present {
		there, err := a.Store.Version(ctx, r.Application, r.Service, present)
		if err != nil {
			return fmt.Errorf("version %s: %w", present, err)
		}
		there.Hash = record.Hash
		payloads, err := a.render(ctx, protocol.PrepareRequest{Service: r.Service, Channels: []string{channel}}, there)
		if err != nil {
			return err
		}
		p := answer.Payloads[channel]
		p.UnderPresent = entities.DigestOf(payloads[channel])
		answer.Payloads[channel] = p
	}
	return nil
}

// refuse is an error that no retry mends: the caller asked for something impossible.
func refuse(format string, args ...any) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf(format, args...), protocol.ErrRefused, nil)
}
