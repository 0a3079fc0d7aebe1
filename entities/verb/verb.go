// Package verb holds what people, CI and other workflows may ask of a Service, an Application or a Runtime. A verb is
// one row of a table: what its payload is, what it cannot go without, what it concerns, who may use it, and, of a
// service, what it does. Whatever is said of verbs elsewhere (handlers, the CLI, grants, docs/protocol.md) is held to
// these rows. A payload is read strictly where a person sent it, within bounds, and refused with what would have been right.
//
// It imports entities, state, decide and protocol; it changes nothing: what a verb does is returned as an effect.
package verb

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
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
	// Channels are those of a service that a request concerns, for which it takes a grant; nil: the whole.
	Channels func(*state.State, Request) []string
	// Do is what the verb does to a service, or why it may not be done. Of a verb that reads the store it says only
	// the latter, and the effect is nil.
	Do func(s *state.State, r Request, who entities.Who, now time.Time) (state.Effect, error)
	// Repeat marks the answer that a request id was given before as repeated; nil: it is given again as it is.
	Repeat func(json.RawMessage) json.RawMessage

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
	Channel     string
	Topic       string
	Condition   string
	Comment     string
	ID          string                  // of a release, or of a lease
	Incarnation int64                   // of an Application's pin
	Service     string                  // of an Application's unmanage and manage
	Release     protocol.ReleaseRequest // of a Service's release
	Publish     protocol.PublishRequest // of an Application's publish
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
	ofPin     = of(func(r *Request, p *protocol.PinRequest) { r.Act, r.Version, r.Channel = p.Act, p.Version, p.Channel })
	ofService = of(func(r *Request, p *protocol.ManageRequest) { r.Act, r.Service = p.Act, p.Service })
	ofLease   = of(func(r *Request, p *protocol.LeaseAct) { r.Act, r.ID = p.Act, p.ID })
)

var installation = [...]Row{
	{
		Name: protocol.Pause, Description: "pauses everything: all services of all applications", complete: checkExcept,
		payload: of(func(r *Request, p *protocol.PauseAllRequest) { r.Act, r.Except = p.Act, p.Except }),
	},
	{Name: protocol.Resume, Description: "ends the pause of everything", payload: justAct},
	{
		Name: protocol.Configure, Description: "sets who may do what with runtimes and with everything", Store: true, complete: checkRules,
		payload: of(func(r *Request, p *protocol.ConfigureRequest) { r.Act, r.Rules = p.Act, p.Rules }),
	},
	{
		Name: protocol.PublishLibrary, Description: "publishes a library, for applications to import", Store: true, complete: checkLibrary,
		payload: of(func(r *Request, p *protocol.LibraryRequest) { r.Act, r.Library = p.Act, p.LibraryName }),
	},
}

// maxExcept bounds the applications that a pause of everything leaves alone.
const maxExcept = 50

func checkExcept(r Request) error {
	if len(r.Except) > maxExcept {
		return fmt.Errorf(`"except" names %d applications; at most %d`, len(r.Except), maxExcept)
	}
	for _, name := range r.Except {
		if name == "" || len(name) > MaxName {
			return fmt.Errorf(`"except" names %q; expected names of applications`, Clip(name, 60))
		}
	}
	return nil
}

// checkRules refuses rules that nobody could go by.
func checkRules(r Request) error {
	if i := r.Rules.Identity; i != nil && (i.Issuer == "" || i.Audience == "") {
		return errors.New(`"identity" needs "issuer" and "audience"`)
	}
	known := append(slices.Clone(ruled), "*")
	for n, g := range r.Rules.Grants {
		if len(g.Verbs) == 0 || len(g.To) == 0 {
			return fmt.Errorf(`grant %d: "verbs" and "to" are needed`, n+1)
		}
		for _, v := range g.Verbs {
			if !slices.Contains(known, v) {
				return fmt.Errorf("grant %d: there is no verb %q here; expected one of %s", n+1, Clip(v, 60), strings.Join(known, ", "))
			}
		}
		for _, scope := range g.Channels {
			name, of := strings.CutPrefix(scope, entities.ScopeRuntime)
			if !of {
				name, of = strings.CutPrefix(scope, entities.ScopeApplications)
			}
			if !of {
				name, of = strings.CutPrefix(scope, entities.ScopeLibraries)
			}
			if !of || name == "" {
				return fmt.Errorf(`grant %d: %q is no runtime, application or library; expected runtime/NAME, application/NAME or library/NAME`, n+1, Clip(scope, 60))
			}
		}
	}
	return r.Rules.Baseline.Check()
}

// checkLibrary refuses what could be no library; what it holds is looked at in the store.
func checkLibrary(r Request) error {
	l := r.Library
	switch {
	case !libraryRE.MatchString(l.Name):
		return fmt.Errorf(`"name" is %q; expected the name of a library`, Clip(l.Name, 60))
	case l.Version < 1 || l.Version > maxLibraryVersion:
		return fmt.Errorf(`"version" is %d; expected a whole number from 1 on`, l.Version)
	case !digestRE.MatchString(l.Digest):
		return fmt.Errorf(`"content" is %q; expected the SHA-256 of what the store has`, Clip(l.Digest, 70))
	}
	return nil
}

const maxLibraryVersion = 1_000_000

var (
	libraryRE = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	digestRE  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// ruled are the verbs that the rules of the installation may name: those of runtimes and its own, and the first publication.
var ruled = []string{
	protocol.Configure, protocol.Grant, protocol.Pause, protocol.Publish, protocol.PublishLibrary, protocol.SignalGive, protocol.Resume,
}

// Bounds in bytes of what anybody may send. All of it stays in state for a while, and state that
// outgrows what the server accepts at once would end the workflow for good.
const (
	MaxPayload = 64 << 10
	MaxName    = 256     // of who asks, and of ids
	MaxReason  = 2 << 10 // free text
	MaxToken   = 16 << 10
)

// CheckRaw refuses a payload that no verb could take, before anything is kept of it.
func CheckRaw(verb string, raw json.RawMessage) error {
	switch {
	case len(raw) == 0:
		return fmt.Errorf("%s without a payload; expected JSON as in docs/protocol.md", verb)
	case len(raw) > MaxPayload:
		return fmt.Errorf("payload of %s: %d bytes; at most %d", verb, len(raw), MaxPayload)
	case strings.HasPrefix(string(raw), tooLarge):
		return fmt.Errorf("payload of %s: %s", verb, strings.Trim(string(raw[1:]), `"`))
	case !json.Valid(raw):
		return fmt.Errorf("payload of %s: not JSON; expected JSON as in docs/protocol.md", verb)
	}
	return nil
}

// tooLarge is how what stands for a payload that is too large begins, which is no payload.
const tooLarge = `"too large: `

// TooLarge stands for a payload of so many bytes where that itself would be too much to hand on.
func TooLarge(bytes int) json.RawMessage {
	return fmt.Appendf(nil, `%s%d bytes; at most %d"`, tooLarge, bytes, MaxPayload)
}

// Strictly decodes what a person sends, within bounds, refusing fields that its type does not have: one that is misspelt
// is not one that is left out.
func Strictly(verb string, raw json.RawMessage, into any) error {
	return decode(verb, raw, into, (*json.Decoder).DisallowUnknownFields)
}

// Tolerantly decodes what another workflow sends, within bounds. Fields that its type does not have are of a newer
// version, which means nothing by them that an older one would have to know.
func Tolerantly(verb string, raw json.RawMessage, into any) error {
	return decode(verb, raw, into, func(*json.Decoder) {})
}

func decode(verb string, raw json.RawMessage, into any, as func(*json.Decoder)) error {
	if err := CheckRaw(verb, raw); err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	as(d)
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("payload of %s: %s", verb, strings.TrimPrefix(err.Error(), "json: "))
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
		return fmt.Errorf(`"by" is %q; expected a name without blanks around it and without what cannot be seen`, Clip(a.By, MaxName))
	}
	return firstTooLong([]field{
		{"token", a.Token, MaxToken}, {"by", a.By, MaxName}, {"requestId", a.RequestID, MaxName}, {"reason", a.Reason, MaxReason},
	})
}

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
func Clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
