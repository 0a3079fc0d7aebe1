package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// errNoIdentity: a token that nobody could verify must not look like a proof.
var errNoIdentity = errors.New("this application declares no identity: nothing says who issues its tokens; ask without one, or declare `identity`")

// identity is how callers of this service prove who they are, or nil.
func (s *service) identity() *entities.Identity {
	if s.state.Spec == nil {
		return nil
	}
	return s.state.Spec.Identity
}

// checkProof judges without I/O whether a request carries the proof that it needs, and no other.
func (s *service) checkProof(r request, proven bool) error {
	identity := s.identity()
	switch {
	case r.Token != "" && identity == nil:
		return errNoIdentity
	case r.Token == "" && !proven && identity.Demands(r.verb):
		return fmt.Errorf(`%s needs proof of who asks: "token" is missing; expected an ID token of %s for %s`, r.verb, identity.Issuer, identity.Audience)
	}
	return nil
}

// identify tells who asks: proven by a token, or as stated. It takes no lock, so that an issuer
// that does not answer holds nobody else up.
func (s *service) identify(ctx workflow.Context, r request) (entities.Who, error) {
	if err := s.checkProof(r, false); err != nil {
		return entities.Who{}, refused(err)
	}
	if r.Token == "" {
		return entities.Who{Name: r.By}, nil
	}
	var answer protocol.VerifyAnswer
	err := localCall{
		name: protocol.ActivityVerify, request: protocol.VerifyRequest{Identity: *s.identity(), Token: r.Token},
		patient: 6 * time.Second, silent: issuerSilent, errType: protocol.ErrIssuer,
	}.do(ctx, &answer)
	if err != nil {
		return entities.Who{}, err
	}
	s.answers(issuerSilent)
	who := answer.Who
	if who.Name == "" {
		return entities.Who{}, refused(errors.New("the token names nobody"))
	}
	who.Proven = true
	return who, nil
}

// authorize judges again, under the lock, whether this caller may do that: the rules may have
// changed since it asked.
func (s *service) authorize(r request, who entities.Who) error {
	if s.state.Spec == nil {
		return nil // no verb does anything yet
	}
	if err := s.checkProof(request{verb: r.verb}, who.Proven); err != nil {
		return err
	}
	if err := s.state.CheckNames("", r.channel); err != nil {
		return err
	}
	return s.state.Authorize(r.verb, s.concerns(r), who)
}

// concerns are the channels that a request acts upon.
func (s *service) concerns(r request) []string {
	switch {
	case r.channel != "":
		return []string{r.channel}
	case r.topic != "":
		return s.channelsOfTopic(r.topic)
	}
	return channelNames(s.state.Spec)
}

// applyTopic begins the topics of approvals of single applies: "apply/CHANNEL".
const applyTopic = "apply/"

// channelsOfTopic are the channels that an approval of that topic opens.
func (s *service) channelsOfTopic(topic string) []string {
	var out []string
	for _, c := range s.state.Spec.Channels {
		opens := topic == applyTopic+c.Name && s.state.Spec.Runtimes[c.Runtime].ApproveApplies
		for _, condition := range c.Conditions {
			opens = opens || condition.Kind == entities.ManualApproval && condition.Topic == topic
		}
		if opens {
			out = append(out, c.Name)
		}
	}
	return out
}

// replaced says that a token proved somebody else than was stated.
func replaced(r request, who entities.Who) string {
	if !who.Proven || r.By == "" || r.By == who.Name {
		return ""
	}
	return fmt.Sprintf("asked by %s, as the token proves, not by %q", who.Name, clip(r.By, 60))
}

func hasToken(raw json.RawMessage) bool {
	var act protocol.Act
	return json.Unmarshal(raw, &act) == nil && act.Token != ""
}

// withoutToken is the payload once its token was verified; who it proved stands in for a name that
// was not stated.
func withoutToken(raw json.RawMessage, name string) json.RawMessage {
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(raw, &fields) != nil {
		return json.RawMessage(`{}`)
	}
	var act protocol.Act
	_ = json.Unmarshal(raw, &act) // it was decoded before
	for _, field := range entities.SortedKeys(fields) {
		if strings.EqualFold(field, "token") || act.By == "" && strings.EqualFold(field, "by") {
			delete(fields, field) // as the decoder matches them, whatever their case
		}
	}
	if by, err := json.Marshal(name); err == nil && act.By == "" {
		fields["by"] = by
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return out
}
