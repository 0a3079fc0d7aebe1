package workflows

import (
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// checkProof judges without I/O whether a request carries the proof that it needs, and no other.
func (a *application) checkProof(verb, token string, proven bool) error {
	identity := a.state.Identity
	switch {
	case token != "" && identity == nil:
		return errors.New("this application declares no identity: nothing says who issues its tokens; ask without one, or declare `identity`")
	case token == "" && !proven && identity.Demands(verb):
		return fmt.Errorf(`%s needs proof of who asks: "token" is missing; expected an ID token of %s for %s`, verb, identity.Issuer, identity.Audience)
	}
	return nil
}

// identify tells who asks, proven by a token or as stated, and refuses who may not. What concerns the
// whole application takes a grant for every channel.
func (a *application) identify(ctx workflow.Context, verb string, act protocol.Act) (entities.Who, error) {
	if err := a.checkProof(verb, act.Token, false); err != nil {
		return entities.Who{}, err
	}
	who := entities.Who{Name: act.By}
	if act.Token != "" {
		var answer protocol.VerifyAnswer
		err := fromStore(ctx, protocol.ActivityVerify, protocol.VerifyRequest{Identity: *a.state.Identity, Token: act.Token}, &answer)
		if isStoreError(err) {
			return who, fmt.Errorf("who asks cannot be verified now: %s", strings.TrimPrefix(errorText(err), storeSilent))
		}
		if err != nil {
			return who, err
		}
		who = answer.Who
		who.Proven = true
	}
	// The rules of now: they may have changed while the token was verified.
	if err := a.checkProof(verb, "", who.Proven); err != nil {
		return who, err
	}
	rules := entities.State{Spec: &entities.Spec{Grants: a.state.Grants}}
	return who, rules.Authorize(verb, nil, who)
}
