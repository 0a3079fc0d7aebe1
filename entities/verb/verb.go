// Package verb holds what people, CI and other workflows may ask of a Service, an Application or a Runtime. A verb is
// one row of a table: what its payload is, what it cannot go without, what it concerns, who may use it, and, of a
// service, what it does. Whatever is said of verbs elsewhere (handlers, the CLI, grants, docs/protocol.md) is held to
// these rows. A payload is read strictly where a person sent it, within bounds, and refused with what would have been right.
//
// It imports entities, state, decide and protocol; it changes nothing: what a verb does is returned as an effect.
package verb

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// Row is one verb: an Update and a Signal of the same name with the same JSON.
type Row struct {
	Name        string
	Description string   // one line, for a person who has not used it
	Needed      []string // fields that the payload cannot go without, beside who asks
	Guard       Guard
	// Store: what is asked for is read from the store, so that it waits while that does not answer.
	Store bool
	// Parts: the services that are concerned judge by their own grants who may; here it only is found out who asks.
	Parts bool
	// Channels are those of a service that a request concerns, for which it takes a grant; nil: the whole.
	Channels func(*state.State, Request) []string
	// Do is what the verb does to a service, or why it may not be done. Of a verb that reads the store it says only
	// the latter, and the effect is nil.
	Do func(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error)
	// Repeat marks the answer that a request id was given before as repeated; nil: it is given again as it is.
	Repeat func(json.RawMessage) json.RawMessage

	say      func(answer json.RawMessage, text string) json.RawMessage // nil: as of an Answer
	payload  payload
	unsigned bool                // a service sends it too, without saying who asks
	complete func(Request) error // refuses what Needed does not tell
}

// Guard says what it takes to use a verb.
type Guard int

// The guards.
const (
	// Operator: a grant where one names the verb, and proof where the identity names it or "*".
	Operator Guard = iota
	// Reader: the same, but "*" does not ask for proof of it, since it changes nothing.
	Reader
	// Open: neither is asked for.
	Open
)

// Request is the payload of any verb, decoded; which fields are filled depends on the verb.
type Request struct {
	protocol.Act
	Verb        string
	At          time.Time // when it came, where that is a while ago
	Content     string    // digest of all that came with a token, but for the token
	Asks        string    // digest of what is asked for under a request id, whoever asks
	Version     string
	OlderThan   string // of a Service's cancel: a version
	AllBut      string // of a Service's cancel: a version
	Channel     string
	Topic       string
	Condition   string
	Comment     string
	Stay        bool // of a Service's unpin
	Full        bool // of a Service's promote
	WhilePaused bool // of a Service's rollback
	// Ways are the targets that were rendered for it (state.RollingBack).
	Ways        map[entities.InstanceID]entities.Target
	Terminate   bool                    // of a Service's cancel
	Force       bool                    // of a Runtime's drain and turnup
	ID          string                  // of a release, or of a lease
	Incarnation int64                   // of an Application's pin
	Service     string                  // of an Application's unmanage and manage
	Release     protocol.ReleaseRequest // of a Service's release
	Publish     protocol.PublishRequest // of an Application's publish
	Joint       protocol.JointRequest   // of an Application's release
	Lease       entities.LeaseRequest   // of a Runtime's request
	Except      []string                // applications, of an Installation's pause
	Rules       entities.Rules          // of an Installation's configure
	Library     protocol.LibraryName    // of an Installation's publish-library
}

// payload is the type of a verb's payload, and how it becomes a Request.
type payload struct {
	empty func() any
	into  func(r *Request, p any)
}

// of makes a payload of its type.
func of[P any](fill func(r *Request, p *P)) payload {
	return payload{
		empty: func() any { return new(P) },
		into:  func(r *Request, p any) { fill(r, p.(*P)) },
	}
}

// Payload is an empty payload of the verb, a pointer to its type in package protocol.
func (row *Row) Payload() any { return row.payload.empty() }

// Decode reads a payload strictly: a misspelt field must not be a field left out. What it accepts is
// complete and within bounds.
func (row *Row) Decode(raw json.RawMessage) (Request, error) { return row.read(raw, Strictly) }

// DecodeSignal is Decode of a signal. What a service sent may come from a newer version, and is read tolerantly.
func (row *Row) DecodeSignal(raw json.RawMessage) (Request, error) {
	var act protocol.Act
	if row.unsigned && json.Unmarshal(raw, &act) == nil && act.By == "" {
		if r, err := row.read(raw, Tolerantly); err == nil {
			return r, nil
		}
	}
	return row.read(raw, Strictly)
}

func (row *Row) read(raw json.RawMessage, as func(string, json.RawMessage, any) error) (Request, error) {
	r, p := Request{Verb: row.Name}, row.payload.empty()
	if err := as(row.Name, raw, p); err != nil {
		return Request{}, err
	}
	row.payload.into(&r, p)
	if r.Token != "" {
		r.Content = ContentOf(raw)
	}
	if r.RequestID != "" {
		r.Asks = contentOf(raw, "token", "by", "requestId")
	}
	if !row.unsigned || r.By != "" {
		if err := checkAct(r.Act); err != nil {
			return Request{}, err
		}
	}
	if err := row.checkFields(r); err != nil {
		return Request{}, err
	}
	if row.complete != nil {
		if err := row.complete(r); err != nil {
			return Request{}, err
		}
	}
	return r, nil
}

// ContentOf is the digest of what a payload has beside its token, however that is written.
func ContentOf(raw json.RawMessage) string {
	return contentOf(raw, "token")
}

// contentOf is the digest of what a payload has beside some fields.
func contentOf(raw json.RawMessage, but ...string) string {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(raw, &fields) // it was decoded before
	for _, name := range entities.SortedKeys(fields) {
		if slices.ContainsFunc(but, func(field string) bool { return strings.EqualFold(name, field) }) {
			delete(fields, name)
		}
	}
	return entities.DigestOf(fields)
}

// Say adds a sentence to an answer of the verb.
func (row *Row) Say(answer json.RawMessage, text string) json.RawMessage {
	switch {
	case text == "":
		return answer
	case row.say != nil:
		return row.say(answer, text)
	}
	return amended(answer, func(a *protocol.Answer) { a.Message = sentences(a.Message, text) })
}

// amended is an answer with a change.
func amended[A any](answer json.RawMessage, change func(*A)) json.RawMessage {
	var a A
	if json.Unmarshal(answer, &a) != nil {
		return answer
	}
	change(&a)
	if out, err := json.Marshal(a); err == nil {
		return out
	}
	return answer
}

// sentences are those that there are.
func sentences(one, other string) string {
	if one == "" {
		return other
	}
	return one + ". " + other
}

// FromService tells whether a request is what a service sends, which says not who asks.
func (row *Row) FromService(r Request) bool { return row.unsigned && r.By == "" && r.Token == "" }

// Urgent tells whether a verb is carried out while the store does not answer, proof or not: what goes wrong just then has to
// be stopped and taken back (F5).
func (row *Row) Urgent() bool { return row.Name == protocol.Pause || row.Name == protocol.Rollback }

// Find is the row of a verb, or nil.
func Find(rows []Row, name string) *Row {
	for n := range rows {
		if rows[n].Name == name {
			return &rows[n]
		}
	}
	return nil
}

// Names are the verbs of a table, in its order.
func Names(rows []Row) []string {
	out := make([]string, len(rows))
	for n := range rows {
		out[n] = rows[n].Name
	}
	return out
}

// Grantable are the verbs that a grant, or an identity that asks for proof, may name, sorted.
func Grantable() []string {
	return slices.Sorted(slices.Values(append(grantable(Service(), Application()), protocol.TakeOver)))
}

func grantable(tables ...[]Row) []string {
	var out []string
	for _, rows := range tables {
		for n := range rows {
			if rows[n].Guard != Open && !slices.Contains(out, rows[n].Name) {
				out = append(out, rows[n].Name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// Service are the verbs of a service.
func Service() []Row { return service[:] }

// Application are the verbs of an application.
func Application() []Row { return application[:] }

// Runtime are the verbs of a runtime. Services send request, keep and release; people send the others, and
// release to take a lease back.
func Runtime() []Row { return runtime[:] }

// Installation are the verbs of the installation.
func Installation() []Row { return installation[:] }

// The payloads that several verbs share.
var (
	justAct   = of(func(r *Request, p *protocol.Act) { r.Act = *p })
	scoped    = of(func(r *Request, p *protocol.ScopeRequest) { r.Act, r.Channel = p.Act, p.Channel })
	ofVersion = of(func(r *Request, p *protocol.VersionRequest) {
		r.Act, r.Version, r.Channel = p.Act, p.Version, p.Channel
	})
	ofApproval = of(func(r *Request, p *protocol.ApprovalRequest) {
		r.Act, r.Version, r.Topic, r.Comment = p.Act, p.Version, p.Topic, p.Comment
		if r.Comment == "" {
			r.Comment = p.Reason
		}
	})
	ofPin = of(func(r *Request, p *protocol.PinRequest) {
		r.Act, r.Version, r.Channel, r.Stay = p.Act, p.Version, p.Channel, p.Stay
	})
	ofService = of(func(r *Request, p *protocol.ManageRequest) { r.Act, r.Service = p.Act, p.Service })
	ofLease   = of(func(r *Request, p *protocol.LeaseAct) { r.Act, r.ID = p.Act, p.ID })
)

// CheckSpelling refuses names that could be taken for others.
func (r Request) CheckSpelling() error {
	names := []field{{"by", r.By, 0}, {"id", r.ID, 0}}
	for n := range r.Rules.Grants {
		for _, to := range r.Rules.Grants[n].To {
			names = append(names, field{"to", to, 0})
		}
	}
	for _, person := range r.Rules.Baseline.People() {
		names = append(names, field{"baseline", person, 0})
	}
	for _, f := range names {
		if err := entities.CheckName(f.text); err != nil {
			return fmt.Errorf(`"%s": %w`, f.name, err)
		}
	}
	return nil
}

// invisible: a character that shows nothing, or does something to a terminal.
func invisible(r rune) bool { return !unicode.IsPrint(r) }

// checkFields refuses names that are longer than any name is, and what its verb needs when it is not there. The version
// of a release has bounds of its own (State.CheckRelease).
func (row *Row) checkFields(r Request) error {
	most := 4 * MaxName // the id of a lease is made of names
	if row.Store {
		r.Version, most = "", MaxName
	}
	fields := []field{
		{"id", r.ID, most},
		{"version", r.Version, MaxName},
		{"olderThan", r.OlderThan, MaxName},
		{"except", r.AllBut, MaxName},
		{"channel", r.Channel, MaxName},
		{"service", r.Service, MaxName},
		{"topic", r.Topic, MaxName},
		{"condition", r.Condition, MaxName},
		{"comment", r.Comment, MaxReason},
	}
	for _, f := range fields {
		if f.text == "" && slices.Contains(row.Needed, f.name) {
			return fmt.Errorf(`"%s" is missing`, f.name)
		}
	}
	return firstTooLong(fields)
}

type field struct {
	name, text string
	most       int
}

func firstTooLong(fields []field) error {
	for _, f := range fields {
		if n := len(f.text); n > f.most {
			return fmt.Errorf(`"%s" is %d bytes long; at most %d`, f.name, n, f.most)
		}
	}
	return nil
}

// Clip cuts text off, between characters.
func Clip(text string, limit int) string { return entities.Clip(text, limit) }
