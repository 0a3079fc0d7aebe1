package verb

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// This file holds the verbs of a service.

var service = [...]Row{
	{
		Name: protocol.Release, Description: "releases a version", Store: true, Do: checkRelease, Repeat: repeatRelease, addNext: addNextOfRelease,
		answer: protocol.ReleaseAnswer{},
		payload: payloadOf(func(r *Request, p *protocol.ReleaseRequest) {
			r.RequestMeta, r.Version, r.ID, r.Release = p.RequestMeta, p.Version, p.ID, *p
		}),
	},
	{
		Name: protocol.Pause, Description: "pauses a channel, or the service", payload: scopePayload, Channels: namedChannel,
		Do: func(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error) {
			return s.Pause(r.Channel, who, r.Reason, now)
		},
	},
	{
		Name: protocol.Resume, Description: "ends the pause of a channel, or of the service", payload: scopePayload, Channels: namedChannel,
		Do: func(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error) {
			return s.Resume(r.Channel, who, now)
		},
	},
	{
		Name: protocol.Cancel, Description: "cancels the remainder of a release, or many waiting releases", Channels: namedChannel,
		payload: payloadOf(func(r *Request, p *protocol.CancelRequest) {
			r.RequestMeta, r.Version, r.Channel, r.OlderThan, r.ExceptVersion = p.RequestMeta, p.Version, p.Channel, p.OlderThan, p.Except
			r.Terminate = p.Terminate
		}),
		validate: func(r Request) error {
			if given := slices.DeleteFunc([]string{r.Version, r.OlderThan, r.ExceptVersion}, func(v string) bool { return v == "" }); len(given) != 1 {
				return errors.New(`one of "version", "olderThan" and "except" is required`)
			}
			return nil
		},
		Do: func(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error) {
			c := state.Cancellation{Version: r.Version, Channel: r.Channel, Terminate: r.Terminate, Who: who, Reason: r.Reason}
			if r.Version == "" {
				return s.CancelWaiting(state.BulkCancellation{OlderThan: r.OlderThan, Except: r.ExceptVersion, Cancellation: c}, now)
			}
			return s.Cancel(c, now)
		},
	},
	{
		Name: protocol.Retry, Description: "retries a failed release where it failed", Required: []string{"version"}, payload: versionPayload, Channels: namedChannel,
		Do: func(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error) {
			return s.RetryRelease(state.RetryRequest{Version: r.Version, Channel: r.Channel, Who: who}, now)
		},
	},
	{
		Name: protocol.Refresh, Description: "observes a channel, or the service, now", Access: Reader, payload: scopePayload, Channels: namedChannel,
		Do: func(s *state.State, r Request, _ entities.Who, _ time.Time) (state.Effect, error) {
			return s.Refresh(r.Channel)
		},
	},
	{Name: protocol.Approve, Description: "approves a release for a topic", Required: []string{"version", "topic"}, payload: approvalPayload, Channels: topicChannels, Do: approve},
	{
		Name: protocol.Reject, Description: "rejects a release for a topic, for good", Required: []string{"version", "topic"}, payload: approvalPayload,
		Channels: topicChannels, Do: approve,
	},
	{
		Name: protocol.Bypass, Description: "lets a release pass a condition, regardless of its verdict", Required: []string{"version", "channel", "condition"},
		payload: payloadOf(func(r *Request, p *protocol.BypassRequest) {
			r.RequestMeta, r.Version, r.Channel, r.Condition = p.RequestMeta, p.Version, p.Channel, p.Condition
		}),
		Channels: namedChannel,
		validate: func(r Request) error {
			if strings.TrimSpace(r.Reason) == "" {
				return errors.New(`"reason" is missing: a bypass needs one`)
			}
			return nil
		},
		Do: func(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error) {
			return decide.Bypass(s, r.Version, entities.Bypass{Channel: r.Channel, Condition: r.Condition, Who: who, Reason: r.Reason, At: now})
		},
	},
	{
		Name: protocol.Pin, Description: "keeps a channel at a version, regardless of later releases", Required: []string{"channel"}, payload: pinPayload, Channels: namedChannel,
		validate: func(r Request) error {
			if r.Stay {
				return errors.New(`"stay" is for unpin`)
			}
			return nil
		},
		Do: func(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error) {
			return s.Pin(r.Channel, r.Version, who, r.Reason, now)
		},
	},
	{
		Name: protocol.Unpin, Description: "ends the pin of a channel", Required: []string{"channel"}, payload: pinPayload, Channels: namedChannel,
		validate: func(r Request) error {
			if r.Version != "" {
				return errors.New(`"version" is not for unpin: a channel has one pin`)
			}
			return nil
		},
		Do: func(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error) {
			return s.Unpin(state.UnpinRequest{Channel: r.Channel, Stay: r.Stay, Who: who, Reason: r.Reason}, now)
		},
	},
	{
		Name: protocol.Rollback, Description: "rolls a release back to the previous target", Channels: namedChannel,
		payload: payloadOf(func(r *Request, p *protocol.RollbackRequest) {
			r.RequestMeta, r.Version, r.Channel, r.WhilePaused = p.RequestMeta, p.Version, p.Channel, p.WhilePaused
		}),
		Do: func(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error) {
			return s.RollBack(state.RollbackRequest{
				Version: r.Version, Channel: r.Channel, WhilePaused: r.WhilePaused, RenderedTargets: r.RollbackTargets, Who: who, Reason: r.Reason,
			}, now)
		},
	},
	{
		Name: protocol.RestartService, Description: "restarts a channel, or the service, at its current version", payload: scopePayload, Channels: namedChannel,
		Do: func(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error) {
			return s.Restart(r.Channel, who, r.Reason, now)
		},
	},
	{
		Name: protocol.Adopt, Description: "lets Converge apply in a report-only channel, or in all of them", payload: scopePayload, Channels: namedChannel,
		Do: func(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error) {
			return s.Adopt(r.Channel, who, r.Reason, now)
		},
	},
	{
		Name: protocol.Return, Description: "makes a channel report-only again, or all where the service was adopted, and gives up its objects", payload: scopePayload, Channels: namedChannel,
		Do: func(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error) {
			return s.Return(r.Channel, who, r.Reason, now)
		},
	},
	{
		Name: protocol.Promote, Description: "promotes a rollout that is paused at one of its own steps", payload: rolloutPayload, Channels: namedChannel, Do: steerRollout,
	},
	{
		Name: protocol.Abort, Description: "aborts a rollout that has steps of its own, and rolls it back", payload: rolloutPayload, Channels: namedChannel, Do: steerRollout,
		validate: func(r Request) error {
			if r.Full {
				return errors.New(`"full" is for promote`)
			}
			return nil
		},
	},
	{
		Name: protocol.Delete, Description: "deletes a service that is no longer declared, or a channel", Channels: namedChannel,
		payload: payloadOf(func(r *Request, p *protocol.DeleteRequest) { r.RequestMeta, r.Channel = p.RequestMeta, p.Channel }),
		Do: func(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error) {
			if r.Channel != "" {
				return s.TakeDown(r.Channel, who, r.Reason, now)
			}
			return s.Delete(who, r.Reason, now)
		},
	},
	{
		Name: protocol.Reserve, Description: "reserves the service's part in a joint release", Access: Open, unsigned: true, Store: true,
		Do: noEffect, payload: jointPayload, validate: requireJoint,
	},
	{
		Name: protocol.Conclude, Description: "applies the decision about a joint release", Access: Open, unsigned: true, Store: true,
		Do: noEffect, payload: jointPayload, validate: requireJoint,
	},
}

var rolloutPayload = payloadOf(func(r *Request, p *protocol.RolloutRequest) {
	r.RequestMeta, r.Channel, r.Full = p.RequestMeta, p.Channel, p.Full
})

// steerRollout promotes or aborts rollouts. The name of the verb is the way to steer.
func steerRollout(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error) {
	return s.SteerRollout(state.SteerRequest{Action: r.Verb, Channel: r.Channel, Full: r.Full, Who: who, Reason: r.Reason}, now)
}

// namedChannel returns the named channel, or nil for all channels.
func namedChannel(_ *state.State, r Request) []string {
	if r.Channel == "" {
		return nil
	}
	return []string{r.Channel}
}

// topicChannels returns the channels that an approval of the topic opens.
func topicChannels(s *state.State, r Request) []string { return s.TopicChannels(r.Topic) }

// AffectedChannels returns the channels of a service that a request acts on.
func (row *Row) AffectedChannels(s *state.State, r Request) []string {
	if row.Channels != nil {
		if named := row.Channels(s, r); len(named) > 0 {
			return named
		}
	}
	return s.Spec.ChannelNames()
}

// CheckNames rejects names that do not exist. This is the only check possible before the token is verified.
func CheckNames(s *state.State, r Request) error {
	version := cmp.Or(r.Version, r.OlderThan, r.ExceptVersion)
	if r.Verb == protocol.Pin {
		version = "" // a version that a channel had before; its release may be forgotten
	}
	if err := s.CheckNames(version, r.Channel); err != nil {
		return err
	}
	if r.Topic != "" && len(s.TopicChannels(r.Topic)) == 0 {
		return fmt.Errorf("%s/%s has no approval %q%s", s.Application, s.Title(), r.Topic, entities.Expected(s.Topics()))
	}
	return nil
}

var jointPayload = payloadOf(func(r *Request, p *protocol.JointHint) { r.ID = p.ID })

func requireJoint(r Request) error {
	if !jointRE.MatchString(r.ID) {
		return errors.New(`"id" is missing; expected the id of a joint release`)
	}
	return nil
}

// noEffect changes no state. The effect of the verb is in the store.
func noEffect(*state.State, Request, entities.Who, time.Time) (state.Effect, error) {
	return nil, nil
}

func approve(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error) {
	return s.Approve(r.Version, entities.Approval{Topic: r.Topic, Who: who, At: now, Reject: r.Verb == protocol.Reject, Comment: r.Comment})
}

func checkRelease(s *state.State, r Request, _ entities.Who, _ time.Time) (state.Effect, error) {
	if strategy := maestro.Strategy(r.Release.Strategy); strategy != "" && !slices.Contains(maestro.Strategies, strategy) {
		return nil, fmt.Errorf("no strategy %q; expected latest, train or immediate", strategy)
	}
	names, channels := entities.SortedKeys(r.Release.Parameters), entities.SortedKeys(r.Release.ChannelParameters)
	for _, channel := range channels {
		names = append(names, entities.SortedKeys(r.Release.ChannelParameters[channel])...)
	}
	if r.Release.Aspect != "" {
		if r.Version != "" {
			return nil, fmt.Errorf("a release of aspect %s keeps the version of each instance; omit the version", r.Release.Aspect)
		}
		return nil, s.CheckAspect(r.Release.Aspect, names, channels)
	}
	if err := s.CheckReserved(r.Version); err != nil {
		return nil, err
	}
	return nil, s.CheckRelease(r.Version, names, channels)
}

func repeatRelease(before json.RawMessage) json.RawMessage {
	return editAnswer(before, func(a *protocol.ReleaseAnswer) { a.Repeated = true })
}

func addNextOfRelease(answer json.RawMessage, lines []string) json.RawMessage {
	return editAnswer(answer, func(a *protocol.ReleaseAnswer) { a.Next = lines })
}

// Consequences describes the consequences of a verb, and what still blocks it (I1). A verb that changes nothing has no consequences.
func (row *Row) Consequences(s *state.State, r Request, now time.Time) []string {
	if row.Access == Reader {
		return nil
	}
	return decide.Outlook(s, r.Version, row.AffectedChannels(s, r), now)
}
