// Package verb defines the verbs that users, CI and other workflows send to a Service, an Application, a Runtime or the Installation. A
// verb is one row of a table: its payload, required fields, the channels that it concerns, who may use it and, for a service, its effect.
// All other places that list verbs (handlers, the CLI, grants, docs/protocol.md) are checked against these rows. A payload from a user is
// decoded strictly, within limits. The error for an invalid payload names the expected form.
//
// It imports entities, state, decide and protocol. It changes nothing: the result of a verb is returned as an effect.
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

// Row is one verb: an Update and a Signal with the same name and the same JSON.
type Row struct {
	Name        string
	Description string   // one line, for a new user
	Required    []string // required fields of the payload, besides the caller
	Access      Access
	// Grant is the verb of its own that grants and identity settings may name for it, in addition to Name.
	Grant string
	// Store: the verb reads from the store, so it waits while the store is unavailable.
	Store bool
	// PerService: each service concerned checks permissions with its own grants. The receiver only identifies the caller.
	PerService bool
	// Channels returns the channels of a service that a request concerns and needs a grant for; nil means the whole service.
	Channels func(*state.State, Request) []string
	// Do returns the effect of the verb on a service, or an error if it is not allowed. For a verb that reads the store it only checks, and
	// the effect is nil.
	Do func(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error)
	// Repeat marks the earlier answer to a request id as repeated; nil returns the answer unchanged.
	Repeat func(json.RawMessage) json.RawMessage

	addNext  func(answer json.RawMessage, lines []string) json.RawMessage // nil: the same as for an Answer
	payload  payload
	answer   any                 // an empty one; nil: a protocol.Answer
	unsigned bool                // services send it too, without a caller
	validate func(Request) error // rejects requests that have all Required fields but are incomplete
}

// Access is the authorization that a verb requires.
type Access int

// The kinds of access.
const (
	// Operator requires a grant if one names the verb, and proof of identity if the identity settings name the verb or "*".
	Operator Access = iota
	// Reader is like Operator, but "*" does not require proof, since the verb changes nothing.
	Reader
	// Open requires neither a grant nor proof.
	Open
)

// Request is the decoded payload of any verb. Which fields are set depends on the verb.
type Request struct {
	protocol.RequestMeta
	Verb          string
	At            time.Time       // when it arrived, if that was a while ago
	PayloadDigest string          // digest of a payload with a token, without the token
	Payload       json.RawMessage // one with a token
	RequestDigest string          // digest of a request, without its id and the caller
	Version       string
	OlderThan     string // of a Service's cancel: a version
	ExceptVersion string // of a Service's cancel: a version
	Channel       string
	Topic         string
	Condition     string
	Comment       string
	Stay          bool // of a Service's unpin
	Full          bool // of a Service's promote
	WhilePaused   bool // of a Service's rollback
	// RollbackTargets are the targets that were rendered for the rollback (state.RollbackRequest).
	RollbackTargets map[entities.InstanceID]entities.Target
	Terminate       bool                    // of a Service's cancel
	Force           bool                    // of a Runtime's drain and restore
	ID              string                  // of a release, or of a lease
	Incarnation     int64                   // of an Application's pin
	Service         string                  // of an Application's unmanage and manage
	Release         protocol.ReleaseRequest // of a Service's release
	Publish         protocol.PublishRequest // of an Application's publish
	Joint           protocol.JointRequest   // of an Application's release
	Lease           entities.LeaseRequest   // of a Runtime's request
	Except          []string                // applications, of an Installation's pause
	Rules           entities.Rules          // of an Installation's configure
	Library         protocol.LibraryName    // of an Installation's publish-library
}

// payload is the type of a verb's payload, and its conversion to a Request.
type payload struct {
	blank func() any
	into  func(r *Request, p any)
}

// payloadOf returns the payload of a type.
func payloadOf[P any](fill func(r *Request, p *P)) payload {
	return payload{
		blank: func() any { return new(P) },
		into:  func(r *Request, p any) { fill(r, p.(*P)) },
	}
}

// Payload returns an empty payload of the verb: a pointer to its type in package protocol.
func (row *Row) Payload() any { return row.payload.blank() }

// Answer returns an empty answer to the verb: a value of its type in package protocol.
func (row *Row) Answer() any {
	if row.answer == nil {
		return protocol.Answer{}
	}
	return row.answer
}

// Decode decodes a payload strictly, so that a misspelt field does not count as a missing one. The result is complete and within limits.
func (row *Row) Decode(raw json.RawMessage) (Request, error) { return row.read(raw, DecodeStrict) }

// DecodeSignal is Decode for a signal. A signal from a service may come from a newer version, so it is decoded tolerantly.
func (row *Row) DecodeSignal(raw json.RawMessage) (Request, error) {
	var act protocol.RequestMeta
	if row.unsigned && json.Unmarshal(raw, &act) == nil && act.By == "" {
		if r, err := row.read(raw, DecodeTolerant); err == nil {
			return r, nil
		}
	}
	return row.read(raw, DecodeStrict)
}

func (row *Row) read(raw json.RawMessage, decode func(string, json.RawMessage, any) error) (Request, error) {
	r, p := Request{Verb: row.Name}, row.payload.blank()
	if err := decode(row.Name, raw, p); err != nil {
		return Request{}, err
	}
	row.payload.into(&r, p)
	if r.Token != "" {
		r.PayloadDigest, r.Payload = PayloadDigest(raw), raw
	}
	r.RequestDigest = digestWithout(raw, "token", "by", "requestId")
	if !row.unsigned || r.By != "" {
		if err := checkAct(r.RequestMeta); err != nil {
			return Request{}, err
		}
	}
	if err := row.checkFields(r); err != nil {
		return Request{}, err
	}
	if row.validate != nil {
		if err := row.validate(r); err != nil {
			return Request{}, err
		}
	}
	return r, nil
}

// PayloadDigest returns the digest of a payload without its token. The field may be written in any case.
func PayloadDigest(raw json.RawMessage) string {
	return digestWithout(raw, "token")
}

// digestWithout returns the digest of a payload without some fields.
func digestWithout(raw json.RawMessage, omitted ...string) string {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(raw, &fields) // cannot fail: it was decoded before
	for _, name := range entities.SortedKeys(fields) {
		if slices.ContainsFunc(omitted, func(field string) bool { return strings.EqualFold(name, field) }) {
			delete(fields, name)
		}
	}
	return entities.DigestOf(fields)
}

// AddNext adds what happens next to an answer of the verb.
func (row *Row) AddNext(answer json.RawMessage, lines []string) json.RawMessage {
	switch {
	case len(lines) == 0:
		return answer
	case row.addNext != nil:
		return row.addNext(answer, lines)
	}
	return editAnswer(answer, func(a *protocol.Answer) { a.Next = lines })
}

// editAnswer returns an answer with a change.
func editAnswer[A any](answer json.RawMessage, change func(*A)) json.RawMessage {
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

// FromService reports whether a service sent the request: it has no caller and no token.
func (row *Row) FromService(r Request) bool { return row.unsigned && r.By == "" && r.Token == "" }

// Urgent reports whether a verb also runs while the store is unavailable, with or without proof. A failure at that time must still be
// stopped and rolled back (F5).
func (row *Row) Urgent() bool { return row.Name == protocol.Pause || row.Name == protocol.Rollback }

// Find returns the row of a verb, or nil.
func Find(rows []Row, name string) *Row {
	for n := range rows {
		if rows[n].Name == name {
			return &rows[n]
		}
	}
	return nil
}

// OfPeople returns the rows of a table that people use, not only other workflows.
func OfPeople(rows []Row) []*Row {
	var out []*Row
	for n := range rows {
		if rows[n].Access != Open {
			out = append(out, &rows[n])
		}
	}
	return out
}

// Names returns the verbs of a table, in its order.
func Names(rows []Row) []string {
	out := make([]string, len(rows))
	for n := range rows {
		out[n] = rows[n].Name
	}
	return out
}

// GrantedAs returns the verb by which grants decide who may do this: Grant if a grant names it, else Name.
func (row *Row) GrantedAs(grants []entities.Grant) string {
	if row.Grant != "" && slices.ContainsFunc(grants, func(g entities.Grant) bool { return slices.Contains(g.Verbs, row.Grant) }) {
		return row.Grant
	}
	return row.Name
}

// RequiresProof reports whether callers must prove who they are.
func (row *Row) RequiresProof(identity *entities.Identity) bool {
	return identity.RequiresProof(row.Name) || row.Grant != "" && identity.RequiresProof(row.Grant)
}

// RequiresBound reports whether a token for the verb has to be issued for the one act.
func (row *Row) RequiresBound(identity *entities.Identity) bool {
	return identity.RequiresBound(row.Name) || row.Grant != "" && identity.RequiresBound(row.Grant)
}

// Grantable returns the verbs that a grant, or an identity that requires proof, may name, sorted.
func Grantable() []string {
	return slices.Sorted(slices.Values(append(grantable(Service(), Application()), protocol.TakeOver, protocol.PinApplication)))
}

func grantable(tables ...[]Row) []string {
	var out []string
	for _, rows := range tables {
		for n := range rows {
			if rows[n].Access != Open && !slices.Contains(out, rows[n].Name) {
				out = append(out, rows[n].Name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// Service returns the verbs of a service.
func Service() []Row { return service[:] }

// Application returns the verbs of an application.
func Application() []Row { return application[:] }

// Runtime returns the verbs of a runtime. Services send request, keep and release. Users send the others, and release to take a lease back.
func Runtime() []Row { return runtime[:] }

// Installation returns the verbs of the installation.
func Installation() []Row { return installation[:] }

// Payloads that several verbs share.
var (
	actPayload     = payloadOf(func(r *Request, p *protocol.RequestMeta) { r.RequestMeta = *p })
	scopePayload   = payloadOf(func(r *Request, p *protocol.ScopeRequest) { r.RequestMeta, r.Channel = p.RequestMeta, p.Channel })
	versionPayload = payloadOf(func(r *Request, p *protocol.VersionRequest) {
		r.RequestMeta, r.Version, r.Channel = p.RequestMeta, p.Version, p.Channel
	})
	approvalPayload = payloadOf(func(r *Request, p *protocol.ApprovalRequest) {
		r.RequestMeta, r.Version, r.Topic, r.Comment = p.RequestMeta, p.Version, p.Topic, p.Comment
		if r.Comment == "" {
			r.Comment = p.Reason
		}
	})
	pinPayload = payloadOf(func(r *Request, p *protocol.PinRequest) {
		r.RequestMeta, r.Version, r.Channel, r.Stay = p.RequestMeta, p.Version, p.Channel, p.Stay
	})
	servicePayload = payloadOf(func(r *Request, p *protocol.ManageRequest) { r.RequestMeta, r.Service = p.RequestMeta, p.Service })
	leasePayload   = payloadOf(func(r *Request, p *protocol.LeaseActionRequest) { r.RequestMeta, r.ID = p.RequestMeta, p.ID })
)

// CheckSpelling rejects names that could be confused with others.
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

// unprintable reports whether a character is not printable or could control a terminal.
func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// checkFields rejects names that are too long, and missing required fields. The version of a release has its own limits
// (State.CheckRelease).
func (row *Row) checkFields(r Request) error {
	limit := 4 * MaxName // the id of a lease consists of several names
	if row.Store {
		r.Version, limit = "", MaxName
	}
	fields := []field{
		{"id", r.ID, limit},
		{"version", r.Version, MaxName},
		{"olderThan", r.OlderThan, MaxName},
		{"except", r.ExceptVersion, MaxName},
		{"channel", r.Channel, MaxName},
		{"service", r.Service, MaxName},
		{"topic", r.Topic, MaxName},
		{"condition", r.Condition, MaxName},
		{"comment", r.Comment, MaxReason},
	}
	for _, f := range fields {
		if f.text == "" && slices.Contains(row.Required, f.name) {
			return fmt.Errorf(`"%s" is missing`, f.name)
		}
	}
	return checkLengths(fields)
}

type field struct {
	name, text string
	limit      int
}

func checkLengths(fields []field) error {
	for _, f := range fields {
		if n := len(f.text); n > f.limit {
			return fmt.Errorf(`"%s" is %d bytes long; at most %d`, f.name, n, f.limit)
		}
	}
	return nil
}

// Clip shortens text at a character boundary.
func Clip(text string, limit int) string { return entities.Clip(text, limit) }
