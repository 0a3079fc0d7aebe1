package state

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// State is the complete state of a Service workflow.
type State struct {
	Application  string                            `json:"application"`
	Service      string                            `json:"service"`
	Store        string                            `json:"store,omitempty"`
	SpecDigest   string                            `json:"specDigest,omitempty"`
	Spec         *entities.Spec                    `json:"spec,omitempty"`
	Releases     []*Release                        `json:"releases,omitempty"` // oldest first
	LastRelease  int64                             `json:"lastRelease,omitempty"`
	LeaseCount   int64                             `json:"leaseCount,omitempty"` // leases ever requested
	Channels     map[string]*Channel               `json:"channels,omitempty"`
	Instances    map[entities.InstanceID]*Instance `json:"instances,omitempty"`
	Pauses       []entities.Pause                  `json:"pauses,omitempty"`
	Pins         []Pin                             `json:"pins,omitempty"`
	Journal      []entities.JournalEntry           `json:"journal,omitempty"` // bounded tail
	JournalCount int64                             `json:"lines,omitempty"`   // journal entries ever written
	// WaitingConfig is the incarnation whose configuration waits for the next release (configChanges: hold).
	WaitingConfig int64 `json:"waitingConfig,omitempty"`
	// RenderingIncarnation is the incarnation whose release is being created: it was applied, and is being rendered; else zero.
	RenderingIncarnation int64 `json:"making,omitempty"`
	// RenderFailure is why the newest configuration is not released: it cannot be rendered. A new one is required.
	RenderFailure string `json:"unreleased,omitempty"`
	// Published is the order of the newest notice that was applied: earlier ones do not count any more (D15).
	Published          entities.NoticeOrder `json:"published,omitzero"`
	Deletion           *Deletion            `json:"deletion,omitempty"`
	PendingIncarnation *PendingIncarnation  `json:"awaiting,omitempty"`
	// MinSequence is the first sequence number of new instances: above those of instances that were removed.
	MinSequence int64 `json:"floor,omitempty"`
	// Runtimes are the last specs of runtimes that the configuration does not name any more, but that an instance is on, or may return
	// to.
	Runtimes map[string]*entities.RuntimeSpec `json:"runtimes,omitempty"`
	// Reservations are promises of joint releases, in the order in which they were made. LastJoint is the time of proposal of the last
	// joint release that was carried out.
	Reservations []Reservation `json:"reservations,omitempty"`
	LastJoint    time.Time     `json:"lastJoint,omitzero"`
	Outbox
	Mailbox
}

// Mailbox is the state of every long-lived workflow about its callers: queued signals, answered requests, refused signals, and the audit
// trail.
type Mailbox struct {
	Inbox    []*Message         `json:"inbox,omitempty"`    // signals not yet carried out
	Requests []Request          `json:"requests,omitempty"` // answered request ids, oldest first
	Refused  []entities.Refusal `json:"refused,omitempty"`  // bounded tail
	// SeenSignals are the digests of the last received signals without a request id. They detect duplicates that arrive after a reset of a
	// run.
	SeenSignals []string   `json:"heard,omitempty"`
	Checkpoint  Checkpoint `json:"checkpoint,omitzero"`
	// Restarts are the last restarts from a checkpoint.
	Restarts entities.Restarts `json:"restarts,omitzero"`
	// Audit holds the entries that are not yet in the store, oldest first. AuditCount counts all entries ever written, and AuditHead is the
	// hash of the last one.
	Audit      []entities.AuditEntry `json:"audit,omitempty"`
	AuditCount int64                 `json:"auditLines,omitempty"`
	AuditHead  string                `json:"auditHead,omitempty"`
	// Problem is the current failure (a store that does not answer, an incarnation that cannot be applied), until it is resolved.
	Problem string `json:"problem,omitempty"`
	// TransientProblem is the kind of a problem that resolves without a person: "store", "issuer", "runtime".
	TransientProblem string `json:"trouble,omitempty"`
}

// Checkpoint detects accepted signals and decisions since the last checkpoint for the store. N is the number of that checkpoint, and
// Fingerprint identifies everything that was accepted and decided before it. Changes are the times of the workflow tasks of the last few
// changes, in Unix nanoseconds, newest last. Adopted is the number of the last checkpoint that the workflow took over.
type Checkpoint struct {
	N           int64   `json:"n"`
	Fingerprint string  `json:"of"`
	Changes     []int64 `json:"changes,omitempty"`
	Adopted     int64   `json:"adopted,omitempty"`
}

// Changed records a change.
func (c *Checkpoint) Changed(at time.Time) {
	if last := len(c.Changes) - 1; last >= 0 && c.Changes[last] == at.UnixNano() {
		return
	}
	c.Changes = append(c.Changes, at.UnixNano())
	c.Changes = slices.Clone(c.Changes[max(0, len(c.Changes)-maxChanges):])
}

// Bounds of the state; the oldest entries are dropped.
const (
	MaxFinishedReleases = 10
	MaxOpenReleases     = 10_000
	MaxRequests         = 100
	MaxProvenRequests   = 1000 // whose tokens may come again
	MaxSeenSignals      = 100
	maxChanges          = 4
	MaxRefused          = 10
	MaxJournal          = 40
	MaxEarlier          = 5 // good targets of an instance before the last one
	// MaxAnnouncements bounds the queue of notifications.
	MaxAnnouncements = 100
	// MaxAudit bounds the audit entries in the state: the workflow writes them to the store long before. One pass may write several entries
	// for each of hundreds of channels, and none may be lost.
	MaxAudit = 20_000
	// MaxInbox and MaxInboxBytes bound the queued signals, and their payloads: as many as a server accepts in one run.
	MaxInbox      = 10_000
	MaxInboxBytes = 4 << 20
	// MaxHints bounds the queued signals of other workflows, which are few.
	MaxHints = 1000
	// AuditFlushSize is the number of audit entries that are collected before they are written to the store.
	AuditFlushSize = 20
)

// Message is a received signal that is not yet carried out.
type Message struct {
	Verb    string          `json:"verb"`
	Payload json.RawMessage `json:"payload"`
	At      time.Time       `json:"at"`
	Who     *entities.Who   `json:"who,omitempty"` // proven by a token, which the payload no longer has
	// Damaged: it waits until something in the store is repaired, and nothing waits behind it.
	Damaged bool `json:"damaged,omitempty"`
}

// Request is a request id that was answered, with the answer (idempotence across continue-as-new).
type Request struct {
	ID     string          `json:"id"`
	Verb   string          `json:"verb"`
	Answer json.RawMessage `json:"answer"`
	// Digest is the digest of the request, By the caller, and Subject who that is for the issuer of a token.
	Digest  string `json:"of,omitempty"`
	By      string `json:"by,omitempty"`
	Subject string `json:"subject,omitempty"`
	// TokenUntil: its token may come again until then, and must not be carried out again.
	TokenUntil time.Time `json:"until,omitzero"`
}

// New is the state of a new service.
func New(application, service string) *State {
	return &State{Application: application, Service: service}
}

// AppendJournal appends a journal entry.
func (s *State) AppendJournal(now time.Time, channel, text string) {
	s.JournalCount++
	s.Journal = entities.KeepLast(append(s.Journal, entities.JournalEntry{N: s.JournalCount, At: now, Channel: channel, Text: text}), MaxJournal)
}

// RecordRefusal records a signal that changed nothing.
func (d *Mailbox) RecordRefusal(verb, by, reason string, now time.Time) {
	d.Refused = entities.KeepLast(append(d.Refused, entities.Refusal{Verb: verb, By: by, Reason: reason, At: now}), MaxRefused)
}

// Answered returns the answer to a request id.
func (d *Mailbox) Answered(id string) (Request, bool) {
	at := slices.IndexFunc(d.Requests, func(r Request) bool { return r.ID == id })
	if id == "" || at < 0 {
		return Request{}, false
	}
	return d.Requests[at], true
}

// CheckSame returns an error for a request with the same id but another verb, content or caller. A nil caller is not known yet.
func (r *Request) CheckSame(verb, digest string, who *entities.Who) error {
	if r.Verb == verb && r.Digest == digest && (who == nil || who.Name == r.By && who.Subject == r.Subject) {
		return nil
	}
	return fmt.Errorf("request id %q was already used for another %s, by %s; use a new id for each request", r.ID, r.Verb, r.By)
}

// Answer stores the answer to a request id. If the request came with a token, other requests do not evict it as long as that token may
// come again.
func (d *Mailbox) Answer(r Request, now time.Time) {
	if r.ID == "" {
		return
	}
	d.Requests = append(d.Requests, r)
	other, proven := MaxRequests, MaxProvenRequests
	for n := len(d.Requests) - 1; n >= 0; n-- {
		of := &other
		if d.Requests[n].TokenUntil.After(now) {
			of = &proven
		}
		if *of--; *of < 0 {
			d.Requests = slices.Delete(d.Requests, n, n+1)
		}
	}
}

// RecordSeen records the digest of a signal without a request id.
func (d *Mailbox) RecordSeen(digest string) {
	d.SeenSignals = entities.KeepLast(append(d.SeenSignals, digest), MaxSeenSignals)
}

// AppendAudit numbers an audit entry, chains it to the one before, and keeps it until the store has it.
func (d *Mailbox) AppendAudit(entry entities.AuditEntry) entities.AuditEntry {
	d.AuditCount++
	entry.N, entry.At, entry.Prev = d.AuditCount, entry.At.UTC(), d.AuditHead
	entry.Text, entry.Reason = strings.ToValidUTF8(entry.Text, "\ufffd"), strings.ToValidUTF8(entry.Reason, "\ufffd")
	d.AuditHead = entry.Hash()
	d.Audit = append(d.Audit, entry)
	d.Audit = d.Audit[max(0, len(d.Audit)-MaxAudit):]
	return entry
}

// ContinueTrail continues after the last entry in the store, if that is later than all known entries: another run wrote it.
func (d *Mailbox) ContinueTrail(end *entities.TrailEnd) {
	if end != nil && end.N > d.AuditCount {
		d.AuditCount, d.AuditHead = end.N, end.Hash
	}
}

// TrailEnd is the last recorded entry.
func (d *Mailbox) TrailEnd() entities.TrailEnd {
	return entities.TrailEnd{N: d.AuditCount, Hash: d.AuditHead}
}

// AuditPending reports entries that wait for a store that does not answer, or "".
func (d *Mailbox) AuditPending() string {
	if d.TransientProblem != ProblemStore || len(d.Audit) == 0 {
		return ""
	}
	return AuditPending(len(d.Audit))
}

// AuditPending formats the number of entries that wait for the store.
func AuditPending(lines int) string {
	return fmt.Sprintf("audit pending: %d lines wait for the store", lines)
}

// ProblemStore is the kind of problem that the store does not answer.
const ProblemStore = "store"

// AuditStored removes the entries up to that number: they are in the store.
func (d *Mailbox) AuditStored(upTo int64) {
	d.Audit = slices.DeleteFunc(d.Audit, func(l entities.AuditEntry) bool { return l.N <= upTo })
}

// Newest is the newest release of a version, or nil.
func (s *State) Newest() *Release {
	for _, r := range slices.Backward(s.Releases) {
		if !r.IsAspect() {
			return r
		}
	}
	return nil
}

// NewestForward is the newest release that moves forward, or nil.
func (s *State) NewestForward() *Release {
	for n := len(s.Releases) - 1; n >= 0; n-- {
		if r := s.Releases[n]; !r.Return && !r.IsAspect() {
			return r
		}
	}
	return nil
}

// ReleaseByID returns the release of that id, or nil.
func (s *State) ReleaseByID(id string) *Release {
	if n := slices.IndexFunc(s.Releases, func(r *Release) bool { return r.ID == id }); n >= 0 {
		return s.Releases[n]
	}
	return nil
}

func (s *State) byID() map[string]*Release {
	out := make(map[string]*Release, len(s.Releases))
	for _, r := range s.Releases {
		out[r.ID] = r
	}
	return out
}

// Channel returns the state of a channel, and creates it at the first use.
func (s *State) Channel(name string) *Channel {
	c := s.Channels[name]
	if c == nil {
		if s.Channels == nil {
			s.Channels = map[string]*Channel{}
		}
		c = &Channel{}
		s.Channels[name] = c
	}
	return c
}

// Instance returns an instance, and creates it at the first use.
func (s *State) Instance(id entities.InstanceID) *Instance {
	i := s.Instances[id]
	if i == nil {
		if s.Instances == nil {
			s.Instances = map[entities.InstanceID]*Instance{}
		}
		i = &Instance{ID: id, Delivery: Delivery{Sequence: s.MinSequence}}
		s.Instances[id] = i
	}
	return i
}

// InstancesIn are the instances of a channel in order: the declared ones, or, if the channel is not declared, the remaining ones. It
// creates none.
func (s *State) InstancesIn(channel string) []*Instance {
	var out []*Instance
	c, declared := s.Spec.Channel(channel)
	for _, spec := range c.Instances {
		if i := s.Instances[c.ID(spec)]; i != nil {
			out = append(out, i)
		}
	}
	if declared {
		return out
	}
	for _, id := range entities.SortedIDs(s.Instances) {
		if id.Channel == channel {
			out = append(out, s.Instances[id])
		}
	}
	return out
}

// Declared reports whether an instance is in the spec.
func (s *State) Declared(id entities.InstanceID) bool {
	_, ok := s.Spec.Instance(id)
	return ok
}

// Runtime is the current runtime of an instance, by name and as the decision sees it: the declared one, unless it was delivered to
// another and has not moved yet. For an undeclared instance it is its last declared spec.
func (s *State) Runtime(id entities.InstanceID) (string, entities.RuntimeSpec) {
	i := s.Instances[id]
	spec, declared := s.Spec.Instance(id)
	switch {
	case declared && (i == nil || i.Runtime == ""):
		return spec.Runtime, *s.Spec.Runtime(spec.Runtime)
	case i == nil:
		return "", entities.RuntimeSpec{}
	case !declared && i.LastRuntime != nil:
		return i.Runtime, *i.LastRuntime
	}
	return i.Runtime, *s.RuntimeNamed(i.Runtime)
}

// DisplayName names an instance for people: by its channel alone if it is the only one there.
func (s *State) DisplayName(id entities.InstanceID) string {
	if c, ok := s.Spec.Channel(id.Channel); ok && len(c.Instances) > 1 {
		return id.Key()
	}
	return id.String()
}

// CheckNames returns an error for an unknown version or channel, or nil. Either may be empty. It needs no I/O, so an update is validated
// before anything is written.
func (s *State) CheckNames(version, channel string) error {
	if version == "" {
		return s.checkChannel(channel)
	}
	_, err := s.Find(version, channel)
	return err
}

func (s *State) checkChannel(channel string) error {
	if s.Spec == nil {
		return fmt.Errorf("%s/%s has no configuration yet", s.Application, s.Title())
	}
	if _, ok := s.Spec.Channel(channel); channel != "" && !ok {
		return fmt.Errorf("%s/%s has no release channel %q%s", s.Application, s.Title(), channel, entities.Expected(s.Spec.ChannelNames()))
	}
	return nil
}

// Title is the name of the service for people.
func (s *State) Title() string {
	if s.Spec == nil {
		return s.Service
	}
	return cmp.Or(s.Spec.Name, s.Service)
}

// scopeName names the service, or a channel of it, for people.
func (s *State) scopeName(channel string) string {
	if channel == "" {
		return s.Application + "/" + s.Title()
	}
	return s.Application + "/" + s.Title() + " " + channel
}
