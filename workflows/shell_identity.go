package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

// errNoIdentity: a token that cannot be verified must not be accepted as a proof.
func (s *shell) errNoIdentity(row *verb.Row) error {
	declarer := "this application declares"
	if c, ok := s.entity.(externalRules); ok && c.usesExternalRules(row) {
		declarer = "the rules of the installation declare"
	}
	return fmt.Errorf("%s %s; send no token, or declare `identity`", declarer, protocol.NoIdentity)
}

// externalRules is an entity whose rules may be stored elsewhere.
type externalRules interface {
	// usesExternalRules reports whether the rules for a verb are stored elsewhere.
	usesExternalRules(*verb.Row) bool
	// loadRules reads them. While they cannot be read, the known ones apply; without any, only an urgent request is judged.
	loadRules(ctx workflow.Context, urgent bool) error
}

// externalRulesFor reports whether the rules must be read before a verb is judged.
func (s *shell) externalRulesFor(row *verb.Row, r verb.Request) (externalRules, bool) {
	c, ok := s.entity.(externalRules)
	return c, ok && c.usesExternalRules(row) && row.Access != verb.Open && !row.FromService(r)
}

// guarded reports whether a verb requires a grant or proof. If not, a token is not verified.
func (s *shell) guarded(row *verb.Row) bool {
	_, _, ruled := s.entity.rules()
	return ruled && row.Access != verb.Open
}

// checkProof checks without I/O that a request has proof of identity if it needs one, and none otherwise.
func (s *shell) checkProof(row *verb.Row, r verb.Request, proven bool) error {
	identity, _, _ := s.entity.rules()
	switch guarded := s.guarded(row); {
	case row.FromService(r) && !proven:
	case !guarded && r.Token != "" && r.By == "":
		return errors.New(`"by" is missing; expected the name of the caller`)
	case !guarded:
	case r.Token != "" && identity == nil:
		return s.errNoIdentity(row)
	case r.Token == "" && !proven && row.RequiresProof(identity):
		return fmt.Errorf(`%s needs proof of identity: "token" is missing; expected an ID token of %s for %s`, row.Name, identity.Issuer, identity.Audience)
	}
	return nil
}

// callerRestricter is an entity that limits some verbs to certain people, in addition to grants.
type callerRestricter interface {
	isRestricted(verb.Request) bool
}

// checkNamedCaller refuses an unproven caller for a verb that is limited to certain people, if callers can prove their identity.
func (s *shell) checkNamedCaller(row *verb.Row, r verb.Request, proven bool) error {
	identity, grants, _ := s.entity.rules()
	if proven || r.Token != "" || identity == nil || !s.guarded(row) || row.FromService(r) {
		return nil
	}
	restricter, named := s.entity.(callerRestricter)
	if identity.RestrictedByGrant(grants, row.GrantedAs(grants)) || named && restricter.isRestricted(r) {
		return fmt.Errorf(`%s needs proof of identity, since only certain callers may: "token" is missing; expected an ID token of %s for %s`, row.Name, identity.Issuer, identity.Audience)
	}
	return nil
}

// identify returns the caller: proven by a token, or as stated. It takes no lock, so that an issuer that does not answer blocks no other
// request.
func (s *shell) identify(ctx workflow.Context, row *verb.Row, r verb.Request) (entities.Who, error) {
	if c, ok := s.externalRulesFor(row, r); ok {
		if err := c.loadRules(ctx, row.Urgent()); err != nil {
			return entities.Who{}, err
		}
	}
	if err := s.checkProof(row, r, false); err != nil {
		return entities.Who{}, asRefusal(err)
	}
	err := s.checkReceiver(r)
	if err == nil {
		err = r.CheckSpelling()
	}
	if err == nil {
		err = s.checkNamedCaller(row, r, false)
	}
	if err != nil {
		return entities.Who{}, asRefusal(err)
	}
	if r.Token == "" || !s.guarded(row) {
		return entities.Who{Name: r.By}, nil
	}
	identity, _, _ := s.entity.rules()
	request := protocol.VerifyRequest{
		Identity: *identity, Token: r.Token, At: r.At, RequestID: r.RequestID, RequestDigest: entities.DigestOf([]string{s.tokenScope(r), r.Verb, r.PayloadDigest}), Urgent: row.Urgent(),
		Bound: row.RequiresBound(identity),
	}
	act := protocol.Act{Namespace: workflow.GetInfo(ctx).Namespace, Receiver: s.tokenScope(r), Verb: r.Verb, Request: r.Payload}
	if request.Nonce, err = act.Nonce(); err != nil {
		request.NoNonce = err.Error()
	}
	var answer protocol.VerifyAnswer
	err = localCall{name: protocol.ActivityVerify, timeout: 6 * time.Second, dependency: depTokenIssuer, request: request}.do(ctx, &answer)
	if isStoreError(err) {
		s.markReached(depTokenIssuer)
	}
	if err != nil {
		return entities.Who{}, err
	}
	s.markReached(depTokenIssuer)
	if !row.Urgent() {
		s.markReached(depStore)
	}
	who := answer.Who
	if who.Name == "" {
		return entities.Who{}, asRefusal(errors.New("the token contains no name"))
	}
	who.Proven = true
	return who, nil
}

// replayableUntil is until when the token that just proved the caller could be sent again; zero if there was none.
func (s *shell) replayableUntil(who entities.Who) time.Time {
	identity, _, _ := s.entity.rules()
	if !who.Proven || identity == nil {
		return time.Time{}
	}
	return s.now().Add(identity.Age())
}

// tokenScope is the scope in which a token may serve one request: this workflow, or the services of the application that the request names.
// Names are no scope: an application may be called "everything", as the installation is.
func (s *shell) tokenScope(r verb.Request) string {
	if len(r.To) > 0 {
		return protocol.ServiceID(s.application, "*") // the digest of the request covers the names
	}
	return workflow.GetInfo(s.ctx).WorkflowExecution.ID
}

// checkReceiver refuses a request that names its receivers, but not this one: who saw it elsewhere sends it here.
func (s *shell) checkReceiver(r verb.Request) error {
	switch {
	case len(r.To) == 0 || slices.Contains(r.To, s.service):
		return nil
	case s.service == "":
		return errors.New(`"to" names services; expected it only in a request to a service`)
	}
	return fmt.Errorf(`the request is for %s, not for %s ("to")`, verb.Clip(entities.JoinNames(r.To), 200), s.service)
}

// authorize checks again, under the lock, whether this caller is allowed: the rules may have changed since the request.
func (s *shell) authorize(row *verb.Row, r verb.Request, who entities.Who) error {
	if !s.guarded(row) || !s.entity.initialized() || row.FromService(r) {
		return nil // no verb has an effect yet, or the caller is a workflow
	}
	if err := s.checkProof(row, verb.Request{}, who.Proven); err != nil {
		return err
	}
	if err := s.checkNamedCaller(row, r, who.Proven); err != nil {
		return asRefusal(err)
	}
	if row.PerService {
		return nil
	}
	channels, err := s.entity.channels(row, r)
	if err != nil {
		return err
	}
	_, grants, _ := s.entity.rules()
	return entities.Authorize(grants, row.GrantedAs(grants), channels, who)
}

// identityNote says that a token proved another identity than the request stated.
func identityNote(r verb.Request, who entities.Who) string {
	if !who.Proven || r.By == "" || r.By == who.Name {
		return ""
	}
	return fmt.Sprintf("requested by %s, as the token proves, not by %q", who.Name, verb.Clip(r.By, 60))
}

func hasToken(raw json.RawMessage) bool {
	var act protocol.RequestMeta
	return json.Unmarshal(raw, &act) == nil && act.Token != ""
}

// withoutToken is the payload after its token was verified. The proven name is used if no name was stated.
func withoutToken(raw json.RawMessage, name string) json.RawMessage {
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(raw, &fields) != nil {
		return json.RawMessage(`{}`)
	}
	var act protocol.RequestMeta
	_ = json.Unmarshal(raw, &act) // it was decoded before
	for _, field := range entities.SortedKeys(fields) {
		if strings.EqualFold(field, "token") || act.By == "" && strings.EqualFold(field, "by") {
			delete(fields, field) // the decoder ignores case too
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
