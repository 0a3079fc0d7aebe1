package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// This file is a service's part in joint releases (B8). The service promises to open a release, and opens it once the store says that all
// other services have promised theirs. A request from its application is only a reason to read the store, not a proof.

// messageDue is a message that the service writes into its own inbox: a promise is due, and no decision was received.
const messageDue = "joint-due"

// reserve promises the service's part of a joint release. It is judged and rendered like a release, but only the promise is kept.
func (s *service) reserve(ctx workflow.Context, r verb.Request, _ entities.Who) (any, error) {
	if old := s.state.ReservationByID(r.ID); old != nil {
		return promiseAnswer(*old), nil
	}
	if s.state.Spec == nil {
		return nil, asRefusal(s.state.CheckRelease("", nil, nil))
	}
	spec := s.state.Spec
	request := protocol.ReserveRequest{ID: r.ID, PrepareRequest: protocol.PrepareRequest{
		Application: s.application, Service: s.service, Keys: s.state.Keys(),
		Incarnation: spec.Incarnation, Hash: spec.Hash, Instances: spec.IDs(),
	}}
	var answer protocol.ReserveAnswer
	if err := s.callStore(ctx, protocol.ActivityReserve, request, &answer); err != nil {
		return nil, refuseIfDamaged(err)
	}
	part := answer.Joint.Services[s.service]
	if err := s.checkReserve(r.ID, part, answer); err != nil {
		return nil, asRefusal(err)
	}
	promise := state.Reservation{
		ID: r.ID, Version: part.Version, Incarnation: spec.Incarnation, Hash: spec.Hash, By: answer.Joint.Who.Name,
		At: answer.Joint.At, Until: s.now().Add(protocol.JointPromise),
	}
	s.state.Reserve(promise, s.now())
	return promiseAnswer(promise), nil
}

func promiseAnswer(r state.Reservation) protocol.Answer {
	return protocol.Answer{Message: fmt.Sprintf("%s is promised for release %s", r.Version, r.ID)}
}

// checkReserve refuses what a release of this part would be refused for, with the rights of the person who proposed the joint release.
func (s *service) checkReserve(id string, part protocol.ServiceVersion, answer protocol.ReserveAnswer) error {
	if answer.Decision != nil {
		return fmt.Errorf("release %s is decided already", id)
	}
	if err := s.state.CheckReservation(id); err != nil {
		return err
	}
	who, row := answer.Joint.Who, verb.Find(s.verbs, protocol.Release)
	r := verb.Request{
		RequestMeta: protocol.RequestMeta{By: who.Name}, Verb: protocol.Release, Version: part.Version,
		Release: protocol.ReleaseRequest{Version: part.Version, Parameters: part.Parameters, ChannelParameters: part.ChannelParameters},
	}
	if err := s.authorize(row, r, who); err != nil {
		return errors.New(errorText(err))
	}
	if _, err := s.judge(row, r, who); err != nil {
		return err
	}
	return s.checkPreparedRuntime(part.Version, answer.Prepared)
}

// conclude carries out the decision on a joint release. Decisions on earlier promises are carried out first.
func (s *service) conclude(ctx workflow.Context, r verb.Request, _ entities.Who) (any, error) {
	for _, earlier := range append([]state.Reservation{}, s.state.Reservations...) {
		if earlier.ID == r.ID {
			break
		}
		if _, err := s.concludeOne(ctx, earlier.ID, false); isOutage(err) {
			return nil, err
		}
	}
	message, err := s.concludeOne(ctx, r.ID, false)
	return protocol.Answer{Message: message}, err
}

// concludeDue carries out the decisions on promises that are due. A promise without a decision is aborted, and so is one that the store no
// longer knows.
func (s *service) concludeDue(ctx workflow.Context, _ json.RawMessage) error {
	for _, id := range s.state.DueReservations(s.now()) {
		_, err := s.concludeOne(ctx, id, true)
		if isOutage(err) {
			return err
		}
		if err != nil {
			s.state.EndReservation(id, errorText(err), s.now())
		}
	}
	return nil
}

// concludeOne reads the decision from the store and carries it out.
func (s *service) concludeOne(ctx workflow.Context, id string, abort bool) (string, error) {
	var answer protocol.OutcomeAnswer
	request := protocol.OutcomeRequest{Application: s.application, ID: id, Abort: abort}
	if err := s.callStore(ctx, protocol.ActivityOutcome, request, &answer); err != nil {
		return "", err
	}
	part, named := answer.Joint.Services[s.service]
	switch {
	case !named:
		return "", asRefusal(fmt.Errorf("release %s names no version of %s", id, s.name))
	case answer.Decision == nil:
		return "", asRefusal(fmt.Errorf("release %s is not decided yet", id))
	case !answer.Decision.Committed:
		s.state.EndReservation(id, answer.Decision.Why, s.now())
		return "aborted: release " + id, nil
	case s.state.ReleaseByID(id) != nil || s.state.ReservationByID(id) == nil && s.state.WasCarriedOut(answer.Joint.At):
		s.state.EndReservation(id, "", s.now())
		return fmt.Sprintf("release %s is carried out already", id), nil
	}
	return s.openJoint(ctx, answer.Joint, part)
}

// openJoint opens the service's part of a committed joint release. A part that cannot be rendered is not opened. That happens only if the
// promise was lost and another change came in between.
func (s *service) openJoint(ctx workflow.Context, j protocol.Joint, part protocol.ServiceVersion) (string, error) {
	if s.state.Spec == nil {
		return "", asRefusal(s.state.CheckRelease(part.Version, nil, nil))
	}
	request := protocol.PrepareRequest{
		Version: part.Version, FullVersion: part.Version, Incarnation: s.state.Spec.Incarnation, Hash: s.state.Spec.Hash,
		Instances: s.state.Spec.IDs(), Parameters: part.Parameters, ChannelParameters: part.ChannelParameters,
	}
	promise := s.state.ReservationByID(j.ID)
	if promise != nil {
		request.Incarnation, request.Hash = promise.Incarnation, promise.Hash
	}
	prepared, err := s.prepare(ctx, request)
	if isOutage(err) {
		return "", err
	}
	if err != nil {
		s.state.EndReservation(j.ID, errorText(err), s.now())
		return "", asRefusal(errors.New(errorText(err)))
	}
	var config *protocol.PrepareAnswer
	if overtaken := promise != nil && prepared.Incarnation == promise.Incarnation && promise.Incarnation < s.state.Spec.Incarnation; overtaken {
		if config, err = s.configurationSince(ctx, part.Version); err != nil {
			return "", err
		}
	}
	opened := s.openRelease(state.NewRelease{ID: j.ID, Version: part.Version, FullVersion: part.Version, By: j.Who.Name, Who: &j.Who}, prepared)
	for _, id := range entities.SortedIDs(prepared.Payloads) {
		opened.SetPayloadRuntime(id, prepared.Payloads[id].Runtime, s.state.Spec)
	}
	if config != nil && !samePayloads(opened, *config) {
		s.openRelease(state.NewRelease{Version: part.Version, FullVersion: configVersion(part.Version, s.state.Spec), By: j.Who.Name, Who: &j.Who}, *config)
	}
	s.state.EndReservation(j.ID, "", s.now())
	s.state.MarkCarriedOut(j.At)
	return fmt.Sprintf("release %s: %s from incarnation %d", opened.ID, opened.FullVersion, opened.Incarnation), nil
}

// configurationSince renders the configuration that was published after the promise, to be released after it, as after any release. It
// returns nil if none was published, or if it is held or cannot be rendered; status then says so.
func (s *service) configurationSince(ctx workflow.Context, version string) (*protocol.PrepareAnswer, error) {
	spec := s.state.Spec
	if spec.ConfigChanges == entities.ConfigHold {
		s.state.WaitingConfig = spec.Incarnation
		return nil, nil
	}
	request := protocol.PrepareRequest{
		Version: version, FullVersion: configVersion(version, spec), Incarnation: spec.Incarnation, Hash: spec.Hash,
		Instances: spec.IDs(), CurrentVersions: map[entities.InstanceID]string{},
	}
	for _, id := range request.Instances {
		request.CurrentVersions[id] = version
	}
	config, err := s.prepare(ctx, request)
	if isOutage(err) {
		return nil, err
	}
	if err == nil {
		err = s.checkPreparedRuntime(request.FullVersion, config)
	}
	if err != nil {
		s.state.RenderFailure = fmt.Sprintf("incarnation %d is not released: %s", spec.Incarnation, errorText(err))
		return nil, nil
	}
	return &config, nil
}

// configVersion is the full version of a version with a newer configuration.
func configVersion(version string, spec *entities.Spec) string {
	return fmt.Sprintf("%s-i%d", version, spec.Incarnation)
}

// promisesDue is when the service must read the decision; zero if nothing was promised, or the read is in progress.
func (s *service) promisesDue() time.Time {
	due := s.state.NextReservationDeadline()
	if due.IsZero() || s.isQueued(messageDue) {
		return time.Time{}
	}
	if !s.now().Before(due) {
		s.enqueue(messageDue, json.RawMessage(`{}`))
		return time.Time{}
	}
	return due
}
