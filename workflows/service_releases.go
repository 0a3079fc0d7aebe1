package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/loosen"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// release accepts a version from a person or CI. The version is rendered first, so that the caller gets the error if it cannot be rendered.
func (s *service) release(ctx workflow.Context, r verb.Request, who entities.Who) (any, error) {
	row := verb.Find(s.verbs, protocol.Release)
	version := r.Version
	if r.Release.Aspect != "" {
		version = entities.ValuesName(r.Release.Aspect, r.Release.Parameters, r.Release.ChannelParameters)
	}
	if _, err := s.judge(row, r, who); err != nil {
		return nil, refused(err)
	}
	spec := s.state.Spec
	prepared, err := s.prepare(ctx, protocol.PrepareRequest{
		Version: version, FullVersion: version, Incarnation: spec.Incarnation, Hash: spec.Hash,
		Instances: spec.IDs(), Parameters: r.Release.Parameters, ChannelParameters: r.Release.ChannelParameters,
	})
	if err != nil {
		return nil, unlessDamaged(err)
	}
	if err := s.elsewhere(version, prepared); err != nil {
		return nil, refused(err)
	}
	if _, err := s.judge(row, r, who); err != nil { // another verb may have run in between: its rules and channels apply
		return nil, refused(err)
	}
	opened := s.open(state.NewRelease{
		ID: r.ID, Version: version, FullVersion: version, By: who.Name, Who: &who, Strategy: maestro.Strategy(r.Release.Strategy),
		Aspect: r.Release.Aspect, Sets: sets(r.Release),
	}, prepared)
	note := replaced(r, who)
	if prepared.Known && prepared.Incarnation != spec.Incarnation && r.Release.Aspect == "" {
		note = joined(fmt.Sprintf("%s already exists: it is deployed unchanged, from incarnation %d; to use the configuration of incarnation %d, name a new version",
			r.Version, prepared.Incarnation, spec.Incarnation), note)
	}
	return protocol.ReleaseAnswer{ID: opened.ID, Version: opened.FullVersion, Incarnation: opened.Incarnation, Note: note}, nil
}

// mostSets is the size in bytes of the description of an aspect's values.
const mostSets = 200

// sets describes the values that a release of an aspect sets, for display.
func sets(r protocol.ReleaseRequest) string {
	if r.Aspect == "" {
		return ""
	}
	var out []string
	for _, name := range entities.SortedKeys(r.Parameters) {
		out = append(out, fmt.Sprintf("%s=%v", name, r.Parameters[name]))
	}
	for _, channel := range entities.SortedKeys(r.ChannelParameters) {
		for _, name := range entities.SortedKeys(r.ChannelParameters[channel]) {
			out = append(out, fmt.Sprintf("%s:%s=%v", channel, name, r.ChannelParameters[channel][name]))
		}
	}
	return entities.Clip(strings.Join(out, ", "), mostSets)
}

// unlessDamaged refuses a request that only a repair of the store could make succeed: if it waited for the repair, it would be opened after
// later requests.
func unlessDamaged(err error) error {
	if outageOf(err) == theDamaged {
		return refused(errors.New(errorText(err)))
	}
	return err
}

// elsewhere refuses a known version that was rendered for another runtime than the configuration has now: its payload does not fit there.
func (s *service) elsewhere(version string, prepared protocol.PrepareAnswer) error {
	for _, id := range entities.SortedIDs(prepared.Payloads) {
		declared, ok := s.state.Spec.Instance(id)
		if made := prepared.Payloads[id].Runtime; ok && made != "" && made != declared.Runtime {
			return fmt.Errorf("%s was rendered for runtime %s in %s, by incarnation %d, and the configuration now has %s there; name a new version",
				version, made, s.state.Shown(id), prepared.Incarnation, declared.Runtime)
		}
	}
	return nil
}

func (s *service) open(n state.NewRelease, prepared protocol.PrepareAnswer) *state.Release {
	n.Incarnation, n.Hash = prepared.Incarnation, prepared.Hash
	n.Payloads = digests(prepared)
	return s.state.OpenRelease(n, s.now())
}

// digests are the payload digests of a prepared version.
func digests(prepared protocol.PrepareAnswer) map[entities.InstanceID]string {
	out := map[entities.InstanceID]string{}
	for _, id := range entities.SortedIDs(prepared.Payloads) {
		out[id] = prepared.Payloads[id].Digest
	}
	return out
}

// publish takes over a newly published spec and opens the release that follows from it.
func (s *service) publish(ctx workflow.Context, raw json.RawMessage) error {
	var p protocol.ServicePublish
	if err := verb.Tolerantly(protocol.Publish, raw, &p); err != nil {
		return refused(err)
	}
	looks := p.Incarnation == 0 && p.Hash == "" // for the newest published spec
	if !looks && s.overtaken(p) {
		return nil
	}
	spec, loosened, err := s.loadSpec(ctx, &p)
	if err != nil || s.overtaken(p) { // the store was restored to an earlier state
		return err
	}
	if waits, err := s.rename(spec, p); waits || err != nil {
		return err
	}
	s.state.NoteLoosened(p.Incarnation, entities.Who{Name: p.By, Proven: p.Proven, Subject: p.Subject}, loosened, s.now())
	s.state.Store = p.Store
	if p.Order.Compare(s.state.Published) > 0 {
		s.state.Published = p.Order
	}
	opening := s.state.TakeSpec(spec, p.Spec, s.now())
	if s.state.Disallowed() {
		s.state.WithdrawDisallowed(s.now())
	}
	if opening == nil {
		return nil
	}
	err = s.openPublished(ctx, p, *opening)
	if !isOutage(err) { // otherwise it must still be opened
		s.state.Making = 0
	}
	return err
}

// overtaken reports whether a later publication, pin or unpin is known.
func (s *service) overtaken(p protocol.ServicePublish) bool {
	return p.Order.Compare(s.state.Published) < 0
}

// loadSpec reads the spec, and how it loosens the conditions of a waiting release. The store's record replaces the content of the signal
// (G1). Without a spec the service is no longer declared; its objects are left in place, orphaned (D10).
func (s *service) loadSpec(ctx workflow.Context, p *protocol.ServicePublish) (spec *entities.Spec, loosened []entities.Loosening, err error) {
	spec = &entities.Spec{Application: s.application, Service: s.service}
	request := protocol.LoadSpecRequest{
		Application: s.application, Service: s.service, Digest: p.Spec, Incarnation: p.Incarnation, Hash: p.Hash, Order: p.Order, On: s.state.OnRuntimes(),
	}
	if s.state.Waits() {
		request.Before = s.state.SpecDigest
	}
	var answer protocol.LoadSpecAnswer
	if err := s.fromStore(ctx, protocol.ActivityLoadSpec, request, &answer); err != nil {
		return nil, nil, err
	}
	confirm(p, answer)
	switch {
	case answer.Spec != nil:
		spec = answer.Spec
	case answer.Packed != nil:
		spec = &entities.Spec{}
		if err := answer.Packed.Unpack(spec); err != nil {
			return nil, nil, refused(fmt.Errorf("spec %s: %w", p.Spec, err))
		}
	}
	if p.Spec != "" {
		if loosened = answer.Loosened; !answer.Compared {
			loosened = loosen.Rules(s.state.Spec, spec, loosen.Definitions{})
		}
		s.takePauses(spec, answer.Pauses)
	}
	spec.Incarnation, spec.Hash = p.Incarnation, p.Hash
	return spec, loosened, nil
}

// confirm replaces the content of a signal with the store's record.
func confirm(p *protocol.ServicePublish, answer protocol.LoadSpecAnswer) {
	n := answer.Notice
	*p = protocol.ServicePublish{
		Incarnation: n.Incarnation.Number, Hash: n.Incarnation.Hash, Spec: answer.Digest, Store: answer.Store,
		By: n.Incarnation.By, Proven: n.Incarnation.Proven, Subject: n.Incarnation.Subject,
		Pinned: n.Pinned, Order: n.Order, At: n.Incarnation.At,
	}
}

// openPublished opens the release of a publication, unless rendering shows that a change of configuration changes no payload (B9).
func (s *service) openPublished(ctx workflow.Context, p protocol.ServicePublish, o state.Opening) error {
	request := protocol.PrepareRequest{
		Version: o.Version, FullVersion: o.FullVersion, Incarnation: p.Incarnation, Hash: p.Hash,
		Instances: s.state.Spec.IDs(), Initial: o.Initial,
	}
	if o.Of != nil {
		request.Present = map[entities.InstanceID]string{}
		for _, id := range request.Instances {
			request.Present[id] = o.Of.FullVersion
		}
	}
	prepared, err := s.prepare(ctx, request)
	if err == nil && o.Of != nil {
		err = s.recall(ctx, o.Of)
	}
	if isOutage(err) {
		return err
	}
	if err == nil {
		err = s.elsewhere(o.FullVersion, prepared)
	}
	if err != nil { // it cannot be rendered: nothing is released, and status has the reason
		s.state.Unreleased = fmt.Sprintf("incarnation %d is not released: %s", p.Incarnation, errorText(err))
		return nil
	}
	if o.Of != nil && sameAs(o.Of, prepared) {
		s.state.Unchanged(s.state.Offered(), templates(s.state.Spec))
		return nil
	}
	who := entities.Who{Name: p.By, Proven: p.Proven, Subject: p.Subject}
	s.open(state.NewRelease{Version: o.Version, FullVersion: o.FullVersion, By: p.By, Who: &who}, prepared)
	return nil
}

// sameAs reports whether the payloads rendered under a release's version are those that it already has.
func sameAs(r *state.Release, prepared protocol.PrepareAnswer) bool {
	for _, id := range entities.SortedIDs(prepared.Payloads) {
		if r.Payloads[id] != prepared.Payloads[id].UnderPresent {
			return false
		}
	}
	return true
}

func templates(spec *entities.Spec) map[entities.InstanceID]string {
	out := map[entities.InstanceID]string{}
	for _, id := range spec.IDs() {
		i, _ := spec.Instance(id)
		out[id] = i.Template
	}
	return out
}

// render renders what a config release changes in instances under their current versions, for one channel at a time.
func (s *service) render(ops []state.RenderOp) {
	switch {
	case len(ops) == 0 || s.rendering || s.outages.open(theStore): // the store did not answer; the next pass after the backoff retries
	case s.patient(theStore):
		s.rendering = true
		s.await(func(ctx workflow.Context) {
			s.renderAll(beside(ctx), ops)
			s.rendering = false
		})
	default:
		s.renderAll(s.ctx, ops)
	}
}

func (s *service) renderAll(ctx workflow.Context, ops []state.RenderOp) {
	for len(ops) > 0 && !s.outages.open(theStore) {
		n := 1
		for n < len(ops) && ops[n].Release == ops[0].Release && ops[n].Instance.Channel == ops[0].Instance.Channel && ops[n].As == ops[0].As {
			n++
		}
		s.renderChannel(ctx, ops[:n])
		ops = ops[n:]
	}
}

func (s *service) renderChannel(ctx workflow.Context, ops []state.RenderOp) {
	r := s.state.ReleaseByID(ops[0].Release)
	if r == nil {
		return // it was pruned in the meantime
	}
	request := protocol.PrepareRequest{
		Version: r.Version, FullVersion: r.FullVersion, Incarnation: r.Incarnation, Hash: r.Hash, Present: map[entities.InstanceID]string{},
	}
	if as := ops[0].As; as != "" {
		request.Version, request.FullVersion = ops[0].Of, as
		if _, values := entities.SplitVersion(as); len(values) > 0 {
			request.Version, request.Values = "", r.Aspect // without a version, an activity of an earlier version does not confuse it with a plain version
		}
	}
	for _, op := range ops {
		request.Instances = append(request.Instances, op.Instance)
		if op.Present != "" && r.Config() {
			request.Present[op.Instance] = op.Present
		}
	}
	prepared, err := s.prepare(ctx, request)
	if isStoreError(err) {
		s.backOff(theStore, err)
		return
	}
	if err != nil && len(ops) > 1 && s.leavesOut(ops[0]) { // find out which of them cannot be rendered
		for n := range ops {
			s.renderChannel(ctx, ops[n:n+1])
		}
		return
	}
	for _, op := range ops {
		present := entities.Target{FullVersion: op.Present, Incarnation: r.Incarnation, Payload: prepared.Payloads[op.Instance].UnderPresent}
		if err != nil { // it cannot be compared, so it counts as changed
			present.Payload = ""
		}
		s.state.Rendered(op.Release, op.Instance, present)
		if op.As != "" {
			s.keep(op, request.FullVersion, prepared, err)
		}
	}
	s.outages[theStore].tries = 0
	s.woken = true
}

// recallAll reads from the store the payloads of releases that waited behind many others and are next.
func (s *service) recallAll(ops []state.RecallOp) {
	if len(ops) == 0 || s.rendering || s.outages.open(theStore) {
		return
	}
	recall := func(ctx workflow.Context) {
		for _, op := range ops {
			r := s.state.ReleaseByID(op.Release)
			if r == nil {
				continue // it was pruned in the meantime
			}
			if err := s.recall(ctx, r); err != nil {
				s.backOff(theStore, err)
				return
			}
			s.outages[theStore].tries, s.woken = 0, true
		}
	}
	if !s.patient(theStore) {
		recall(s.ctx)
		return
	}
	s.rendering = true
	s.await(func(ctx workflow.Context) {
		recall(beside(ctx))
		s.rendering = false
	})
}

// recall reads the payloads of one release if only the store has them.
func (s *service) recall(ctx workflow.Context, r *state.Release) error {
	if !r.Offloaded() {
		return nil
	}
	prepared, err := s.prepare(ctx, protocol.PrepareRequest{
		Version: r.Version, FullVersion: r.FullVersion, Incarnation: r.Incarnation, Hash: r.Hash, Instances: entities.SortedIDs(r.Payloads),
	})
	if err != nil {
		return err
	}
	return r.Recalled(digests(prepared))
}

// keep records what a release changes in an instance on top of its current version.
func (s *service) keep(op state.RenderOp, fullVersion string, prepared protocol.PrepareAnswer, err error) {
	if err != nil {
		there := op.Of
		if r := s.state.ReleaseByID(op.Release); r != nil && !r.Keeps(op.Instance.Channel) {
			there = op.Present
		}
		why := fmt.Sprintf("cannot be rendered under the current version %s: %s", there, errorText(err))
		s.state.Unrendered(op.Release, op.Instance, why, s.now())
		return
	}
	s.state.Keep(op, entities.Target{FullVersion: fullVersion, Incarnation: prepared.Incarnation, Payload: prepared.Payloads[op.Instance].Digest})
}

// leavesOut is true if the release is in progress: it then skips an instance that cannot be rendered, rather than try again in each turn.
func (s *service) leavesOut(op state.RenderOp) bool {
	p, _ := s.state.ReleaseByID(op.Release).PhaseIn(op.Instance.Channel)
	return p == maestro.InProgress
}

func (s *service) prepare(ctx workflow.Context, r protocol.PrepareRequest) (protocol.PrepareAnswer, error) {
	r.Application, r.Service, r.Keys = s.application, s.service, s.state.Keys()
	var answer protocol.PrepareAnswer
	err := s.fromStore(ctx, protocol.ActivityPrepare, r.Fitting(), &answer)
	s.crowd = crowd{answer.Beside, s.now()}
	return answer, err
}
