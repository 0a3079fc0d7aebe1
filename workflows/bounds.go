package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/converge-engine/converge/entities/protocol"
)

// Bounds in bytes of what anybody may send. All of it stays in state for a while, and state that
// outgrows what the server accepts at once would end the service for good.
const (
	maxPayload = 64 << 10
	maxName    = 256     // of who asks, and of ids
	maxReason  = 2 << 10 // free text
	maxRefusal = 500     // what is kept of why something was refused
	maxToken   = 16 << 10
)

// checkRaw refuses a payload that no verb could take, before anything is kept of it.
func checkRaw(verb string, raw json.RawMessage) error {
	switch {
	case len(raw) == 0:
		return fmt.Errorf("%s without a payload; expected JSON as in docs/protocol.md", verb)
	case len(raw) > maxPayload:
		return fmt.Errorf("payload of %s: %d bytes; at most %d", verb, len(raw), maxPayload)
	case !json.Valid(raw):
		return fmt.Errorf("payload of %s: not JSON; expected JSON as in docs/protocol.md", verb)
	}
	return nil
}

// checkAct refuses what every verb's payload carries when it is missing or too long.
func checkAct(a protocol.Act) error {
	switch {
	case strings.TrimSpace(a.By) == "" && a.Token == "":
		return errors.New(`"by" is missing; expected who asks`)
	case a.By != strings.TrimSpace(a.By) || strings.ContainsFunc(a.By, invisible):
		// "bob" and "bob " would count as two people who approved.
		return fmt.Errorf(`"by" is %q; expected a name without blanks around it and without what cannot be seen`, clip(a.By, maxName))
	case len(a.Token) > maxToken:
		return fmt.Errorf(`"token" is %d bytes long; at most %d`, len(a.Token), maxToken)
	case len(a.By) > maxName:
		return fmt.Errorf(`"by" is %d bytes long; at most %d`, len(a.By), maxName)
	case len(a.RequestID) > maxName:
		return fmt.Errorf(`"requestId" is %d bytes long; at most %d`, len(a.RequestID), maxName)
	case len(a.Reason) > maxReason:
		return fmt.Errorf(`"reason" is %d bytes long; at most %d`, len(a.Reason), maxReason)
	}
	return nil
}

// invisible: a character that shows nothing, or does something to a terminal.
func invisible(r rune) bool { return !unicode.IsPrint(r) }

// refuse keeps a signal that changed nothing for `status`, in so many bytes and no more.
func (s *service) refuse(verb string, raw json.RawMessage, why string, at time.Time) {
	s.state.Refuse(clip(verb, maxName), by(raw), clip(why, maxRefusal), at)
	s.woken = true
}

// by is who sent a payload, as far as that can be told.
func by(raw json.RawMessage) string {
	var act protocol.Act
	_ = json.Unmarshal(raw, &act)
	return clip(act.By, maxName)
}

// clip cuts text off, between characters.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
