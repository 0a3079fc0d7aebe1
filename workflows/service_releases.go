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
		return nil, asRefusal(err)
	}
	spec := s.state.Spec
	prepared, err := s.prepare(ctx, protocol.PrepareRequest{
		Version: version, FullVersion: version, Incarnation: spec.Incarnation, Hash: spec.Hash,
		Instances: spec.IDs(), Parameters: r.Release.Parameters, ChannelParameters: r.Release.ChannelParameters,
	})
	if err != nil {
		return nil, refuseIfDamaged(err)
	}
	if err := s.checkPreparedRuntime(version, prepared); err != nil {
		return nil, asRefusal(err)
	}
	if _, err := s.judge(row, r, who); err != nil { // another verb may have run in between: its rules and channels apply
		return nil, asRefusal(err)
	}
	opened := s.openRelease(state.NewRelease{
		ID: r.ID, Version: version, FullVersion: version, By: who.Name, Who: &who, Reason: r.Reason, Strategy: maestro.Strategy(r.Release.Strategy),
		Aspect: r.Release.Aspect, ValuesText: valuesText(r.Release),
	}, prepared)
	note := identityNote(r, who)
	if prepared.Known && prepared.Incarnation != spec.Incarnation && r.Release.Aspect == "" {
		note = joinNotes(fmt.Sprintf("%s already exists: it is deployed unchanged, from incarnation %d; to use the configuration of incarnation %d, name a new version",
			r.Version, prepared.Incarnation, spec.Incarnation), note)
	}
	return protocol.ReleaseAnswer{ID: opened.ID, Version: opened.FullVersion, Incarnation: opened.Incarnation, Note: note}, nil
}

// maxValuesText is the size in bytes of the description of an aspect's values.
const maxValuesText = 200

// valuesText describes the values that a release of an aspect sets, for display.
func valuesText(r protocol.ReleaseRequest) string {
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
	return entities.Clip(strings.Join(out, ", "), maxValuesText)
}

// refuseIfDamaged refuses a request that only a repair of the store could make succeed: if it waited for the repair, it would be opened
// after later requests.
func refuseIfDamaged(err error) error {
	if dependencyOf(err) == depDamagedObject {
		return asRefusal(errors.New(errorText(err)))
	}
	return err
}

// checkPreparedRuntime refuses a known version that was rendered for another runtime than the configuration has now: its payload does not
// fit there.
func (s *service) checkPreparedRuntime(version string, prepared protocol.PrepareAnswer) error {
	for _, id := range entities.SortedIDs(prepared.Payloads) {
		declared, ok := s.state.Spec.Instance(id)
		if renderedFor := prepared.Payloads[id].Runtime; ok && renderedFor != "" && renderedFor != declared.Runtime {
			return fmt.Errorf("%s was rendered for runtime %s in %s, by incarnation %d, and the configuration now has %s there; name a new version",
				version, renderedFor, s.state.DisplayName(id), prepared.Incarnation, declared.Runtime)
		}
	}
	return nil
}

func (s *service) openRelease(n state.NewRelease, prepared protocol.PrepareAnswer) *state.Release {
	n.Incarnation, n.Hash = prepared.Incarnation, prepared.Hash
	n.Payloads = payloadDigests(prepared)
	return s.state.OpenRelease(n, s.now())
}

// payloadDigests are the payload digests of a prepared version.
func payloadDigests(prepared protocol.PrepareAnswer) map[entities.InstanceID]string {
	out := map[entities.InstanceID]string{}
	for _, id := range entities.SortedIDs(prepared.Payloads) {
		out[id] = prepared.Payloads[id].Digest
	}
	return out
}

// publish takes over a newly published spec and opens the release that follows from it.
func (s *service) publish(ctx workflow.Context, raw json.RawMessage) error {
	var p protocol.ServicePublish
	if err := verb.DecodeTolerant(protocol.Publish, raw, &p); err != nil {
		return asRefusal(err)
	}
	latest := p.Incarnation == 0 && p.Hash == "" // for the newest published spec
	if !latest && s.isOutdated(p) {
		return nil
	}
	spec, loosened, err := s.loadSpec(ctx, &p)
	if err != nil || s.isOutdated(p) || latest && s.isApplied(spec, p) { // outdated: the store was restored to an earlier state
		return err
	}
	if waits, err := s.rename(spec, p); waits || err != nil {
		return err
	}
	s.state.RecordLoosened(p.Incarnation, entities.Who{Name: p.By, Proven: p.Proven, Subject: p.Subject}, loosened, s.now())
	s.state.Store = p.Store
	if p.Order.Compare(s.state.Published) > 0 {
		s.state.Published = p.Order
	}
	opening := s.state.ApplySpec(spec, p.Spec, s.now())
	if s.state.HasDisallowedApprovals() {
		s.state.WithdrawDisallowed(s.now())
	}
	if opening == nil {
		return nil
	}
	err = s.openPublished(ctx, p, *opening)
	if !isOutage(err) { // otherwise it must still be opened
		s.state.RenderingIncarnation = 0
	}
	return err
}

// isApplied reports whether the service has taken over this notice, with the current baseline.
func (s *service) isApplied(spec *entities.Spec, p protocol.ServicePublish) bool {
	current := s.state.Spec
	return current != nil && p.Order == s.state.Published && p.Spec == s.state.SpecDigest && s.state.RenderingIncarnation == 0 && s.state.PendingIncarnation == nil &&
		entities.DigestOf(current.Baseline) == entities.DigestOf(spec.Baseline) && current.Board == spec.Board
}

// isOutdated reports whether a later publication, pin or unpin is known.
func (s *service) isOutdated(p protocol.ServicePublish) bool {
	return p.Order.Compare(s.state.Published) < 0
}

// loadSpec reads the spec, and how it loosens the conditions of a waiting release. The store's record replaces the content of the signal
// (G1). Without a spec the service is no longer declared; its objects are left in place, orphaned (D10).
func (s *service) loadSpec(ctx workflow.Context, p *protocol.ServicePublish) (spec *entities.Spec, loosened []entities.Loosening, err error) {
	spec = &entities.Spec{Application: s.application, Service: s.service}
	request := protocol.LoadSpecRequest{
		Application: s.application, Service: s.service, Digest: p.Spec, Incarnation: p.Incarnation, Hash: p.Hash, Order: p.Order, Runtimes: s.state.RuntimesInUse(),
	}
	if s.state.HasWaitingRelease() {
		request.CurrentDigest = s.state.SpecDigest
	}
	var answer protocol.LoadSpecAnswer
	if err := s.callStore(ctx, protocol.ActivityLoadSpec, request, &answer); err != nil {
		return nil, nil, err
	}
	replaceByRecord(p, answer)
	switch {
	case answer.Spec != nil:
		spec = answer.Spec
	case answer.Packed != nil:
		spec = &entities.Spec{}
		if err := answer.Packed.Unpack(spec); err != nil {
			return nil, nil, asRefusal(fmt.Errorf("spec %s: %w", p.Spec, err))
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

// replaceByRecord replaces the content of a signal with the store's record.
func replaceByRecord(p *protocol.ServicePublish, answer protocol.LoadSpecAnswer) {
	n := answer.Notice
	by := n.By()
	*p = protocol.ServicePublish{
		Incarnation: n.Incarnation.Number, Hash: n.Incarnation.Hash, Spec: answer.Digest, Store: answer.Store,
		By: by.Name, Proven: by.Proven, Subject: by.Subject, Order: n.Order,
	}
}

// openPublished opens the release of a publication, unless rendering shows that a change of configuration changes no payload (B9).
func (s *service) openPublished(ctx workflow.Context, p protocol.ServicePublish, o state.Opening) error {
	request := protocol.PrepareRequest{
		Version: o.Version, FullVersion: o.FullVersion, Incarnation: p.Incarnation, Hash: p.Hash,
		Instances: s.state.Spec.IDs(), Initial: o.Initial,
	}
	if o.Base != nil {
		request.CurrentVersions = map[entities.InstanceID]string{}
		for _, id := range request.Instances {
			request.CurrentVersions[id] = o.Base.FullVersion
		}
	}
	prepared, err := s.prepare(ctx, request)
	if err == nil && o.Base != nil {
		err = s.loadPayloads(ctx, o.Base)
	}
	if isOutage(err) {
		return err
	}
	if err == nil {
		err = s.checkPreparedRuntime(o.FullVersion, prepared)
	}
	if err != nil { // it cannot be rendered: nothing is released, and status has the reason
		s.state.RenderFailure = fmt.Sprintf("incarnation %d is not released: %s", p.Incarnation, errorText(err))
		return nil
	}
	if o.Base != nil && samePayloads(o.Base, prepared) {
		s.state.AdoptTemplates(s.state.NewestForward(), templates(s.state.Spec))
		return nil
	}
	who := entities.Who{Name: p.By, Proven: p.Proven, Subject: p.Subject}
	s.openRelease(state.NewRelease{Version: o.Version, FullVersion: o.FullVersion, By: p.By, Who: &who}, prepared)
	return nil
}

// samePayloads reports whether the payloads rendered under a release's version are those that it already has.
func samePayloads(r *state.Release, prepared protocol.PrepareAnswer) bool {
	for _, id := range entities.SortedIDs(prepared.Payloads) {
		if r.Payloads[id] != prepared.Payloads[id].CurrentVersionDigest {
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
	case len(ops) == 0 || s.rendering || s.outages.isOpen(depStore): // no answer of the store: retried after the backoff
	case s.failedBefore(depStore):
		s.rendering = true
		s.trackOperation(func(ctx workflow.Context) {
			s.renderAll(outsideTask(ctx), ops)
			s.rendering = false
		})
	default:
		s.renderAll(s.ctx, ops)
	}
}

func (s *service) renderAll(ctx workflow.Context, ops []state.RenderOp) {
	for len(ops) > 0 && !s.outages.isOpen(depStore) {
		n := 1
		for n < len(ops) && ops[n].Release == ops[0].Release && ops[n].Instance.Channel == ops[0].Instance.Channel && ops[n].FullVersion == ops[0].FullVersion {
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
		Version: r.Version, FullVersion: r.FullVersion, Incarnation: r.Incarnation, Hash: r.Hash, CurrentVersions: map[entities.InstanceID]string{},
	}
	if as := ops[0].FullVersion; as != "" {
		request.Version, request.FullVersion = ops[0].Version, as
		if _, values := entities.SplitVersion(as); len(values) > 0 {
			// Without a version, an activity of an earlier version does not confuse it with a plain version.
			request.Version, request.Values = "", r.Aspect
		}
	}
	for _, op := range ops {
		request.Instances = append(request.Instances, op.Instance)
		if op.Present != "" && r.IsConfig() {
			request.CurrentVersions[op.Instance] = op.Present
		}
	}
	prepared, err := s.prepare(ctx, request)
	if isStoreError(err) {
		s.backOff(depStore, err)
		return
	}
	if err != nil && len(ops) > 1 && s.skipsUnrenderable(ops[0]) { // find out which of them cannot be rendered
		for n := range ops {
			s.renderChannel(ctx, ops[n:n+1])
		}
		return
	}
	for _, op := range ops {
		present := entities.Target{FullVersion: op.Present, Incarnation: r.Incarnation, Payload: prepared.Payloads[op.Instance].CurrentVersionDigest}
		if err != nil { // it cannot be compared, so it counts as changed
			present.Payload = ""
		}
		s.state.RecordRender(op.Release, op.Instance, present)
		if op.FullVersion != "" {
			s.recordRendered(op, request.FullVersion, prepared, err)
		}
	}
	s.outages[depStore].tries = 0
	s.woken = true
}

// loadAllPayloads reads from the store the payloads of releases that waited behind many others and are next.
func (s *service) loadAllPayloads(ops []state.RecallOp) {
	if len(ops) == 0 || s.rendering || s.outages.isOpen(depStore) {
		return
	}
	recall := func(ctx workflow.Context) {
		for _, op := range ops {
			r := s.state.ReleaseByID(op.Release)
			if r == nil {
				continue // it was pruned in the meantime
			}
			if err := s.loadPayloads(ctx, r); err != nil {
				s.backOff(depStore, err)
				return
			}
			s.outages[depStore].tries, s.woken = 0, true
		}
	}
	if !s.failedBefore(depStore) {
		recall(s.ctx)
		return
	}
	s.rendering = true
	s.trackOperation(func(ctx workflow.Context) {
		recall(outsideTask(ctx))
		s.rendering = false
	})
}

// loadPayloads reads the payloads of one release if only the store has them.
func (s *service) loadPayloads(ctx workflow.Context, r *state.Release) error {
	if !r.Offloaded() {
		return nil
	}
	prepared, err := s.prepare(ctx, protocol.PrepareRequest{
		Version: r.Version, FullVersion: r.FullVersion, Incarnation: r.Incarnation, Hash: r.Hash, Instances: entities.SortedIDs(r.Payloads),
	})
	if err != nil {
		return err
	}
	return r.RestoreDigests(payloadDigests(prepared))
}

// recordRendered records what a release changes in an instance on top of its current version.
func (s *service) recordRendered(op state.RenderOp, fullVersion string, prepared protocol.PrepareAnswer, err error) {
	if err != nil {
		base := op.Version
		if r := s.state.ReleaseByID(op.Release); r != nil && !r.KeepsVersion(op.Instance.Channel) {
			base = op.Present
		}
		why := fmt.Sprintf("cannot be rendered under the current version %s: %s", base, errorText(err))
		s.state.RecordRenderFailure(op.Release, op.Instance, why, s.now())
		return
	}
	s.state.RecordMergedRender(op, entities.Target{FullVersion: fullVersion, Incarnation: prepared.Incarnation, Payload: prepared.Payloads[op.Instance].Digest})
}

// skipsUnrenderable is true if the release is in progress: it then skips an instance that cannot be rendered, rather than try again in each
// reconciliation.
func (s *service) skipsUnrenderable(op state.RenderOp) bool {
	p, _ := s.state.ReleaseByID(op.Release).PhaseIn(op.Instance.Channel)
	return p == maestro.InProgress
}

func (s *service) prepare(ctx workflow.Context, r protocol.PrepareRequest) (protocol.PrepareAnswer, error) {
	r.Application, r.Service, r.Keys = s.application, s.service, s.state.Keys()
	var answer protocol.PrepareAnswer
	err := s.callStore(ctx, protocol.ActivityPrepare, r.Fitting(), &answer)
	s.releaseLoad = releaseLoad{answer.RecentlyPrepared, s.now()}
	return answer, err
}
