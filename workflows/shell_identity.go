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
	"github.com/converge-engine/converge/entities/verb"
)

// errNoIdentity: a token that nobody could verify must not look like a proof.
func (s *shell) errNoIdentity(row *verb.Row) error {
	whose := "this application declares"
	if c, ok := s.of.(consulting); ok && c.ruledElsewhere(row) {
		whose = "the rules of the installation declare"
	}
	return fmt.Errorf("%s %s; ask without one, or declare `identity`", whose, protocol.NoIdentity)
}

// consulting is an entity whose rules are elsewhere.
type consulting interface {
	// ruledElsewhere tells whether those for a verb are.
	ruledElsewhere(*verb.Row) bool
	// consult asks for them. While they cannot be had, those that are known hold.
	consult(workflow.Context) error
}

// consults: the rules are asked for before a verb is judged by them.
func (s *shell) consults(row *verb.Row, r verb.Request) (consulting, bool) {
	c, ok := s.of.(consulting)
	return c, ok && c.ruledElsewhere(row) && row.Guard != verb.Open && !row.FromService(r)
}

// guarded: it takes a grant, or proof, to use a verb here. Elsewhere a token is not looked at.
func (s *shell) guarded(row *verb.Row) bool {
	_, _, ruled := s.of.rules()
	return ruled && row.Guard != verb.Open
}

// checkProof judges without I/O whether a request carries the proof that it needs, and no other.
func (s *shell) checkProof(row *verb.Row, r verb.Request, proven bool) error {
	identity, _, _ := s.of.rules()
	switch guarded := s.guarded(row); {
	case row.FromService(r) && !proven:
	case !guarded && r.Token != "" && r.By == "":
		return errors.New(`"by" is missing; expected who asks`)
	case !guarded:
	case r.Token != "" && identity == nil:
		return s.errNoIdentity(row)
	case r.Token == "" && !proven && identity.Demands(row.Name):
		return fmt.Errorf(`%s needs proof of who asks: "token" is missing; expected an ID token of %s for %s`, row.Name, identity.Issuer, identity.Audience)
	}
	return nil
}

// restricting is an entity that names who may do some things, beside what grants say.
type restricting interface {
	restricts(verb.Request) bool
}

// checkWhom refuses a verb that is left to people who are named, where they could prove who they are, and this one does not.
func (s *shell) checkWhom(row *verb.Row, r verb.Request, proven bool) error {
	identity, grants, _ := s.of.rules()
	if proven || r.Token != "" || identity == nil || !s.guarded(row) || row.FromService(r) {
		return nil
	}
	of, named := s.of.(restricting)
	if identity.Restricts(grants, row.Name) || named && of.restricts(r) {
		return fmt.Errorf(`%s needs proof of who asks, since it is said who may: "token" is missing; expected an ID token of %s for %s`, row.Name, identity.Issuer, identity.Audience)
	}
	return nil
}

// identify tells who asks: proven by a token, or as stated. It takes no lock, so that an issuer
// that does not answer holds nobody else up.
func (s *shell) identify(ctx workflow.Context, row *verb.Row, r verb.Request) (entities.Who, error) {
	if c, ok := s.consults(row, r); ok {
		if err := c.consult(ctx); err != nil {
			return entities.Who{}, err
		}
	}
	if err := s.checkProof(row, r, false); err != nil {
		return entities.Who{}, refused(err)
	}
	err := r.CheckSpelling()
	if err == nil {
		err = s.checkWhom(row, r, false)
	}
	if err != nil {
		return entities.Who{}, refused(err)
	}
	if r.Token == "" || !s.guarded(row) {
		return entities.Who{Name: r.By}, nil
	}
	identity, _, _ := s.of.rules()
	var answer protocol.VerifyAnswer
	err = localCall{
		name: protocol.ActivityVerify, patient: 6 * time.Second, of: theIssuer,
		request: protocol.VerifyRequest{
			Identity: *identity, Token: r.Token, At: r.At, RequestID: r.RequestID, Of: entities.DigestOf([]string{s.wherever(), r.Verb, r.Content}), Urgent: row.Urgent(),
		},
	}.do(ctx, &answer)
	if isStoreError(err) {
		s.reached(theIssuer)
	}
	if err != nil {
		return entities.Who{}, err
	}
	s.reached(theIssuer)
	if !row.Urgent() {
		s.reached(theStore)
	}
	who := answer.Who
	if who.Name == "" {
		return entities.Who{}, refused(errors.New("the token names nobody"))
	}
	who.Proven = true
	return who, nil
}

// replayableUntil is until when a token that proved somebody just now may be sent again; zero: it was none.
func (s *shell) replayableUntil(who entities.Who) time.Time {
	identity, _, _ := s.of.rules()
	if !who.Proven || identity == nil {
		return time.Time{}
	}
	return s.now().Add(identity.Age())
}

// wherever is where a token may serve one request: here, or in all services of an application that a person asks something
// of at once.
func (s *shell) wherever() string {
	if s.service != "" {
		return s.application + "/*"
	}
	return s.name
}

// authorize judges again, under the lock, whether this caller may do that: the rules may have
// changed since it asked.
func (s *shell) authorize(row *verb.Row, r verb.Request, who entities.Who) error {
	if !s.guarded(row) || !s.of.known() || row.FromService(r) {
		return nil // no verb does anything yet, or it is no person's
	}
	if err := s.checkProof(row, verb.Request{}, who.Proven); err != nil {
		return err
	}
	if err := s.checkWhom(row, r, who.Proven); err != nil {
		return refused(err)
	}
	if row.Parts {
		return nil
	}
	channels, err := s.of.channels(row, r)
	if err != nil {
		return err
	}
	_, grants, _ := s.of.rules()
	return entities.Authorize(grants, row.Name, channels, who)
}

// replaced says that a token proved somebody else than was stated.
func replaced(r verb.Request, who entities.Who) string {
	if !who.Proven || r.By == "" || r.By == who.Name {
		return ""
	}
	return fmt.Sprintf("asked by %s, as the token proves, not by %q", who.Name, verb.Clip(r.By, 60))
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
