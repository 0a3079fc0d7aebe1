package workflows

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// release accepts a version named by a person or CI: rendered first, so that what cannot be
// rendered is refused while someone is listening.
func (s *service) release(ctx workflow.Context, asked request, who entities.Who) (protocol.ReleaseAnswer, error) {
	r := asked.release
	if err := s.checkRelease(r); err != nil {
		return protocol.ReleaseAnswer{}, refused(err)
	}
	spec := s.state.Spec
	prepared, err := s.prepare(ctx, protocol.PrepareRequest{
		Version: r.Version, FullVersion: r.Version, Incarnation: spec.Incarnation, Hash: spec.Hash,
		Channels: channelNames(spec), Parameters: r.Parameters, ChannelParameters: r.ChannelParameters,
	})
	if err != nil {
		return protocol.ReleaseAnswer{}, err
	}
	if s.state.Spec != spec { // a publication came between; its rules and channels hold
		if err := s.checkRelease(r); err != nil {
			return protocol.ReleaseAnswer{}, refused(err)
		}
	}
	opened := s.open(entities.NewRelease{ID: r.ID, Version: r.Version, FullVersion: r.Version, By: who.Name}, prepared)
	answer := protocol.ReleaseAnswer{
		ID: opened.ID, Version: opened.FullVersion, Incarnation: opened.Incarnation, Note: replaced(asked, who),
	}
	if prepared.Known && prepared.Incarnation != spec.Incarnation {
		note := fmt.Sprintf("%s is known: it goes out as it was made, from incarnation %d; for the configuration of incarnation %d name a new version",
			r.Version, prepared.Incarnation, spec.Incarnation)
		answer.Note = joined(note, answer.Note)
	}
	return answer, nil
}

func (s *service) open(n entities.NewRelease, prepared protocol.PrepareAnswer) *entities.Release {
	n.Incarnation, n.Hash = prepared.Incarnation, prepared.Hash
	n.Payloads = map[string]string{}
	for _, channel := range entities.SortedKeys(prepared.Payloads) {
		n.Payloads[channel] = prepared.Payloads[channel].Digest
	}
	return s.state.OpenRelease(n, workflow.Now(s.ctx))
}

// publish takes over a newly published spec and opens the release that follows from it.
func (s *service) publish(raw json.RawMessage) error {
	var p protocol.ServicePublish
	if err := decodeStrictly(protocol.Publish, raw, &p); err != nil {
		return refused(err)
	}
	if old := s.state.Spec; old != nil && p.Incarnation < old.Incarnation && !p.Pinned || p.At.Before(s.state.ToldAt) {
		return nil // overtaken by what was published, pinned or unpinned later
	}
	spec, err := s.loadSpec(p)
	if err != nil {
		return err
	}
	s.state.Store, s.state.ToldAt = p.Store, p.At
	opening := s.state.TakeSpec(spec, p.Spec, workflow.Now(s.ctx))
	if opening == nil {
		return nil
	}
	return s.openPublished(p, *opening)
}

// loadSpec reads the spec by digest. An empty digest: the service is no longer declared, and what
// it runs is left in place, orphaned (D10).
func (s *service) loadSpec(p protocol.ServicePublish) (*entities.Spec, error) {
	spec := &entities.Spec{Application: s.state.Application, Service: s.state.Service}
	if p.Spec != "" {
		var answer protocol.LoadSpecAnswer
		err := s.fromStore(s.ctx, protocol.ActivityLoadSpec, protocol.LoadSpecRequest{
			Application: s.state.Application, Service: s.state.Service, Digest: p.Spec,
		}, &answer)
		if err != nil {
			return nil, err
		}
		if spec = answer.Spec; spec == nil {
			spec = &entities.Spec{}
			if err := answer.Packed.Unpack(spec); err != nil {
				return nil, refused(fmt.Errorf("spec %s: %w", p.Spec, err))
			}
		}
		s.takeHolds(spec, answer.Holds)
	}
	spec.Incarnation, spec.Hash = p.Incarnation, p.Hash
	return spec, nil
}

// openPublished opens the release of a publication, unless rendering shows that a change of
// configuration changes no payload after all (B9).
func (s *service) openPublished(p protocol.ServicePublish, o entities.Opening) error {
	request := protocol.PrepareRequest{
		Version: o.Version, FullVersion: o.FullVersion, Incarnation: p.Incarnation, Hash: p.Hash,
		Channels: channelNames(s.state.Spec), Initial: o.Initial,
	}
	if o.Of != nil {
		request.Present = map[string]string{}
		for _, c := range request.Channels {
			request.Present[c] = o.Of.FullVersion
		}
	}
	prepared, err := s.prepare(s.ctx, request)
	if isStoreError(err) {
		return err
	}
	if err != nil { // it cannot be rendered: nothing is released, and status says why
		s.state.Problem = fmt.Sprintf("incarnation %d is not released: %s", p.Incarnation, errorText(err))
		return nil
	}
	if o.Of != nil && sameAs(o.Of, prepared) {
		s.state.Newest().Templates = templates(s.state.Spec)
		return nil
	}
	s.open(entities.NewRelease{Version: o.Version, FullVersion: o.FullVersion, By: p.By}, prepared)
	return nil
}

// sameAs tells whether what was rendered under a release's version is what it already carries.
func sameAs(r *entities.Release, prepared protocol.PrepareAnswer) bool {
	for _, channel := range entities.SortedKeys(prepared.Payloads) {
		if r.Payloads[channel] != prepared.Payloads[channel].UnderPresent {
			return false
		}
	}
	return true
}

func templates(spec *entities.Spec) map[string]string {
	out := map[string]string{}
	for _, c := range spec.Channels {
		out[c.Name] = c.Template
	}
	return out
}

// render answers what a config release would put into a channel under the version that is there.
func (s *service) render(op entities.RenderOp) {
	if s.outages.open(theStore) {
		return // the store did not answer; it is asked again then
	}
	r := s.state.ReleaseByID(op.Release)
	prepared, err := s.prepare(s.ctx, protocol.PrepareRequest{
		Version: r.Version, FullVersion: r.FullVersion, Incarnation: r.Incarnation, Hash: r.Hash,
		Channels: []string{op.Channel}, Present: map[string]string{op.Channel: op.Present},
	})
	if isStoreError(err) {
		s.backOff(theStore, err)
		return
	}
	present := entities.Target{FullVersion: op.Present, Incarnation: r.Incarnation, Payload: prepared.Payloads[op.Channel].UnderPresent}
	if err != nil { // it cannot be compared, so it counts as changed
		present.Payload = ""
	}
	s.state.Rendered(op.Release, op.Channel, present)
	s.outages[theStore].tries = 0
	s.woken = true
}

func (s *service) prepare(ctx workflow.Context, r protocol.PrepareRequest) (protocol.PrepareAnswer, error) {
	r.Application, r.Service = s.state.Application, s.state.Service
	var answer protocol.PrepareAnswer
	err := s.fromStore(ctx, protocol.ActivityPrepare, r, &answer)
	return answer, err
}

// fromStore runs a short activity that reads or writes the store, in this worker and within the
// present workflow task: no round trip to the server stands between a signal and its apply.
func (s *service) fromStore(ctx workflow.Context, name string, request, answer any) error {
	err := fromStore(ctx, name, request, answer)
	if !isStoreError(err) {
		s.answers(storeSilent)
	}
	return err
}

// rootCause is what a person needs of a chain of Temporal errors: the message of what failed, whole
// ("write … to the store: permission denied"), or else the innermost one.
func rootCause(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return errorText(err)
		}
		err = inner
	}
}

func channelNames(spec *entities.Spec) []string {
	out := make([]string, 0, len(spec.Channels))
	for _, c := range spec.Channels {
		out = append(out, c.Name)
	}
	return out
}
