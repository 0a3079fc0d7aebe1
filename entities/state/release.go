package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// Release is a user's intent that a version goes out, and how far it is in each channel.
type Release struct {
	ID          string    `json:"id"`
	Version     string    `json:"version"`     // as a person or CI named it
	FullVersion string    `json:"fullVersion"` // as runtimes see it; "v7-i42" for a config release
	Incarnation int64     `json:"incarnation"`
	Hash        string    `json:"hash"`
	By          string    `json:"by"`
	Subject     string    `json:"subject,omitempty"` // of who released it, where that was proven
	At          time.Time `json:"at"`
	// Payloads and Templates: digest by instance, of the rendered payload and of what it was
	// rendered from.
	Payloads  map[entities.InstanceID]string `json:"payloads"`
	Templates map[entities.InstanceID]string `json:"templates,omitempty"`
	// Runtimes that payloads were rendered for, where the configuration names another one by now.
	Runtimes map[entities.InstanceID]string `json:"runtimes,omitempty"`
	// Present: for a config release, what its configuration renders to under the version that an
	// instance already has; filled when its turn comes there.
	Present map[entities.InstanceID]entities.Target `json:"present,omitempty"`
	// Keeping: for a config release, the channels in which its version was cancelled, or taken back by a person: only its configuration
	// comes there, under the version that is there (I2, I4). Kept is what it brings, filled together with Present.
	Keeping map[string]bool              `json:"keeping,omitempty"`
	Kept    map[entities.InstanceID]Kept `json:"kept,omitempty"`
	Phases  map[string]*PhaseState       `json:"phases"` // by channel
	// Return: a person takes another one back by it, to what was good where it goes.
	Return bool `json:"return,omitempty"`
	// TakesBack is the id of that one, where a person asked for a rollback.
	TakesBack string `json:"takesBack,omitempty"`
	// Strategy that it was released with; empty: that of the service.
	Strategy maestro.Strategy `json:"strategy,omitempty"`

	Approvals  []entities.Approval        `json:"approvals,omitempty"`
	Bypasses   []entities.Bypass          `json:"bypasses,omitempty"`
	Extensions map[string]*ExtensionState `json:"extensions,omitempty"` // by Extension.RunKey
}

// PhaseState is a release's phase in one channel, since when and why.
type PhaseState struct {
	Phase  maestro.Phase `json:"phase"`
	Since  time.Time     `json:"since"`
	Reason string        `json:"reason,omitempty"`
	// CalledOff: a person took the release back here. A change of configuration does not bring its
	// version again.
	CalledOff bool `json:"calledOff,omitempty"`
	// Refused are the checks that said FAIL before the release entered: a newer one may pass it (B10).
	Refused []string `json:"refused,omitempty"`
	// Retried: it was rolled back or skipped here, and a person has it enter once more since then.
	Retried time.Time `json:"retried,omitzero"`
}

// Kept is a configuration under another version than that of its release.
type Kept struct {
	Version string `json:"version"` // as a person or CI named it
	entities.Target
}

// Config tells whether only a configuration change made this release (B9).
func (r *Release) Config() bool { return r.Version != r.FullVersion }

// PhaseIn implements maestro.Release.
func (r *Release) PhaseIn(channel string) (maestro.Phase, bool) {
	if p := r.Phases[channel]; p != nil {
		return p.Phase, true
	}
	return "", false
}

// in is how far a release is in a channel; nil: it does not concern it, or there is no release.
func (r *Release) in(channel string) *PhaseState {
	if r == nil {
		return nil
	}
	return r.Phases[channel]
}

// PastRollback tells whether a rollback that is under way in a channel, or failed there, does not hold the release: it was
// made after the failure, or is what was taken back, and a person retries it.
func (r *Release) PastRollback(channel string, b *entities.Rollback) bool {
	p := r.in(channel)
	retried := p != nil && b.Release == r.ID && !p.Retried.IsZero()
	return retried || !b.Failed.IsZero() && !r.At.Before(b.Failed)
}

// Waives implements maestro.Release: a bypassed condition names channels that the release need not
// have succeeded in. What was good in a channel before returns there without that.
func (r *Release) Waives(channel, condition string) bool {
	return r.Return || r.Bypassed(channel, condition) != nil
}

// Reopened implements maestro.Release.
func (r *Release) Reopened(channel string) bool {
	p := r.in(channel)
	return p != nil && !p.Retried.IsZero()
}

// Strategy is that by which a release goes.
func (s *State) Strategy(r *Release) maestro.Strategy {
	strategy := cmp.Or(r.Strategy, maestro.Strategy(s.Spec.Maestro.Strategy))
	if r.Return && strategy != "" {
		return maestro.Returning
	}
	return strategy
}

// Bypassed is the bypass of a condition of a channel, or nil.
func (r *Release) Bypassed(channel, condition string) *entities.Bypass {
	for i := range r.Bypasses {
		if b := &r.Bypasses[i]; b.Channel == channel && b.Condition == condition {
			return b
		}
	}
	return nil
}

// Over tells whether the release is finished in every channel.
func (r *Release) Over() bool {
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for _, p := range r.Phases {
		if !p.Phase.Over() {
			return false
		}
	}
	return true
}

// Target is what the release would put into an instance; none, where that is still to be rendered.
func (r *Release) Target(id entities.InstanceID) entities.Target {
	if r.Keeps(id.Channel) {
		t := r.Kept[id].Target
		t.Runtime = r.Runtimes[id]
		return t
	}
	return entities.Target{FullVersion: r.FullVersion, Incarnation: r.Incarnation, Payload: r.Payloads[id], Runtime: r.Runtimes[id]}
}

// Keeps tells whether only the configuration of the release comes to a channel.
func (r *Release) Keeps(channel string) bool { return r.Keeping[channel] }

// keep has only the configuration of the release come to a channel.
func (r *Release) keep(channel string) {
	if r.Keeping == nil {
		r.Keeping = map[string]bool{}
	}
	r.Keeping[channel] = true
}

// FullIn is the full version under which the release comes to an instance.
func (r *Release) FullIn(id entities.InstanceID) string {
	return cmp.Or(r.Target(id).FullVersion, r.FullVersion)
}

// comesAs tells whether the release comes to any instance under a full version.
func (r *Release) comesAs(fullVersion string) bool {
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for _, k := range r.Kept {
		if k.FullVersion == fullVersion {
			return true
		}
	}
	return r.FullVersion == fullVersion
}

// Concerns tells whether the release brings anything to an instance.
func (r *Release) Concerns(id entities.InstanceID) bool { return r.Target(id).Payload != "" }

// phases says how far the release is everywhere.
func (r *Release) phases() string {
	var parts []string
	for _, c := range entities.SortedKeys(r.Phases) {
		parts = append(parts, c+" "+string(r.Phases[c].Phase))
	}
	return strings.Join(parts, ", ")
}

// cancel ends what is still to come of the release in a channel.
func (r *Release) cancel(channel, reason string, now time.Time) {
	r.Phases[channel] = &PhaseState{Phase: maestro.Cancelled, Since: now, Reason: reason}
}

// calledOff: a person cancelled the release here, or took it back. (What was cancelled because its
// channel was removed has no template any more.)
func (r *Release) calledOff(channel string) bool {
	p := r.Phases[channel]
	return p != nil && (p.Phase == maestro.Cancelled || p.CalledOff) && r.templated(channel)
}

// templated tells whether the release knows what it was rendered from in a channel.
func (r *Release) templated(channel string) bool {
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for id := range r.Templates {
		if id.Channel == channel {
			return true
		}
	}
	return false
}

// unpromoted: still to come, and in no channel yet.
func (r *Release) unpromoted() bool {
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for _, p := range r.Phases {
		if p.Phase.Entered() {
			return false
		}
	}
	return !r.Over()
}

// CheckRelease says why a release cannot be accepted now, or nil. It needs no I/O, so that an
// update is validated before anything is written.
func (s *State) CheckRelease(version string, parameters []string, channels []string) error {
	if s.Spec == nil {
		return fmt.Errorf("%s/%s has no configuration yet; publish it with: converge apply DIR", s.Application, s.Title())
	}
	if err := s.Spec.CheckRelease(version, parameters, channels); err != nil {
		return err
	}
	if n := s.Open() + len(s.Reservations); n >= MaxOpenReleases {
		return fmt.Errorf("%d releases are in flight, the most that are kept; end those that are not wanted any more: converge cancel %s/%s --older-than VERSION",
			n, s.Application, s.Title())
	}
	return nil
}

// Open is how many releases are not over.
func (s *State) Open() int {
	n := 0
	for _, r := range s.Releases {
		if !r.Over() {
			n++
		}
	}
	return n
}

// NewRelease is what OpenRelease is given.
type NewRelease struct {
	ID          string // shared by all services of one release; empty: made from the sequence
	Version     string
	FullVersion string
	Incarnation int64
	Hash        string
	Payloads    map[entities.InstanceID]string
	By          string
	Who         *entities.Who // for the audit trail; nil: By, stated
	Strategy    maestro.Strategy
	// CutsOff: where a version was cancelled, its configuration does not come either, as before it did.
	CutsOff bool
}

func (n *NewRelease) subject() string {
	if n.Who == nil {
		return ""
	}
	return n.Who.Subject
}

// OpenRelease adds a release, pending in every channel that it has a payload for; one whose id is
// known is returned as it is (B7). A config release that is not yet promoted anywhere is replaced
// by a newer one.
func (s *State) OpenRelease(n NewRelease, now time.Time) *Release {
	if r := s.ReleaseByID(n.ID); r != nil {
		return r
	}
	s.LastRelease++
	for n.ID == "" && s.ReleaseByID(fmt.Sprint(s.LastRelease)) != nil {
		s.LastRelease++ // an id shared with other services may look like one of ours
	}
	r := &Release{
		ID: n.ID, Version: n.Version, FullVersion: n.FullVersion, Incarnation: n.Incarnation, Hash: n.Hash,
		By: n.By, Subject: n.subject(), At: now, Strategy: n.Strategy, Payloads: n.Payloads, Templates: map[entities.InstanceID]string{}, Phases: map[string]*PhaseState{},
	}
	if r.ID == "" {
		r.ID = fmt.Sprint(s.LastRelease)
	}
	for _, c := range s.Spec.Channels {
		for _, i := range c.Instances {
			r.Templates[c.ID(i)] = i.Template
			if _, ok := n.Payloads[c.ID(i)]; ok {
				r.Phases[c.Name] = &PhaseState{Phase: maestro.Pending, Since: now}
			}
		}
	}
	if r.Config() {
		s.inheritCancels(r, n.CutsOff, now)
		s.replaceUnpromoted(r, now)
	}
	if r.Incarnation >= s.WaitingConfig {
		s.WaitingConfig = 0
	}
	s.Releases = append(s.Releases, r)
	s.Record(now, "", fmt.Sprintf("release %s: %s from incarnation %d, by %s", r.ID, r.FullVersion, r.Incarnation, r.By))
	s.Journal[len(s.Journal)-1].Release = r.ID
	who := entities.Who{Name: n.By}
	if n.Who != nil {
		who = *n.Who
	}
	s.noteAct(entities.EventRelease, who, r, "", fmt.Sprintf("release of %s from incarnation %d", r.FullVersion, r.Incarnation), "", now)
	return r
}

// inheritCancels: where a version was cancelled before it came, a change of configuration does not
// bring it after all (A18). It comes under the version that is there, if there is one.
func (s *State) inheritCancels(r *Release, cutsOff bool, now time.Time) {
	of := s.offered()
	if of == nil || of.Version != r.Version {
		return
	}
	for _, c := range entities.SortedKeys(r.Phases) {
		switch off := of.Keeps(c) || of.calledOff(c) && !s.isAt(c, of); {
		case !cutsOff && s.offAt(c, r.Version):
			r.cancel(c, r.Version+" was cancelled before it had succeeded here", now)
		case off && !cutsOff && s.keepable(c):
			r.keep(c)
		case off:
			was := string(of.Phases[c].Phase)
			if of.Phases[c].Phase == maestro.Succeeded {
				was = "called off"
			}
			r.cancel(c, fmt.Sprintf("%s was %s here", of.FullVersion, was), now)
		}
	}
}

// offered is the newest release that was not cancelled before it came anywhere: its version is what
// a change of configuration applies to.
func (s *State) offered() *Release {
	for n := len(s.Releases) - 1; n >= 0; n-- {
		r := s.Releases[n]
		if r.Return {
			continue
		}
		// In any order: the answer is the same.
		//workflowcheck:ignore
		for c := range r.Phases {
			if !r.Keeps(c) && (!r.calledOff(c) || s.isAt(c, r)) {
				return r
			}
		}
	}
	return nil
}

// VersionOf is the version of an instance's present target, as a person or CI named it; "" where that is not known any more.
func (s *State) VersionOf(i *Instance) string {
	t, version := i.Delivery.Target, ""
	if t == nil {
		return ""
	}
	for n := len(s.Releases) - 1; n >= 0; n-- {
		r := s.Releases[n]
		switch k := r.Kept[i.ID]; {
		case k.Version != "" && k.FullVersion == t.FullVersion:
			return k.Version
		case r.FullVersion == t.FullVersion && !r.Return:
			return r.Version
		case r.FullVersion == t.FullVersion:
			version = r.Version
		}
	}
	return version
}

func (s *State) replaceUnpromoted(by *Release, now time.Time) {
	for _, r := range s.Releases {
		if !r.Config() || !r.unpromoted() {
			continue
		}
		for _, c := range entities.SortedKeys(r.Phases) {
			if r.Phases[c].Phase == maestro.Pending {
				r.Phases[c] = &PhaseState{Phase: maestro.Skipped, Since: now, Reason: "replaced by " + by.FullVersion}
			}
		}
		s.Record(now, "", r.FullVersion+" replaced by "+by.FullVersion)
	}
}

// isAt tells whether any instance of a channel is at a release.
func (s *State) isAt(channel string, r *Release) bool {
	return slices.ContainsFunc(s.In(channel), func(i *Instance) bool { return i.IsAt(r) })
}

// Brought is the newest release that an instance's present target is of, or nil.
func (s *State) Brought(i *Instance) *Release {
	for n := len(s.Releases) - 1; n >= 0; n-- {
		r := s.Releases[n]
		if p := r.Phases[i.ID.Channel]; p != nil && i.IsAt(r) && p.Phase != maestro.Pending {
			return r
		}
	}
	return nil
}

// Find returns the release of "@ID", the newest of a full version, else of a version.
func (s *State) Find(version, channel string) (*Release, error) {
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	if id, named := strings.CutPrefix(version, entities.ByID); named {
		if r := s.ReleaseByID(id); r != nil {
			return r, nil
		}
		return nil, fmt.Errorf("%s has no release %s, or forgot it since it is over", s.scope(""), id)
	}
	var found *Release
	for _, r := range s.Releases {
		if r.comesAs(version) || r.Version == version && (found == nil || !found.comesAs(version)) {
			found = r
		}
	}
	if found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("no release of version %q%s", version, entities.Expected(s.newestVersions()))
}

// shownVersions is how many versions are named to somebody who named none of them.
const shownVersions = 20

// newestVersions are the full versions of the newest releases, oldest first.
func (s *State) newestVersions() []string {
	var out []string
	for _, r := range slices.Backward(s.Releases) {
		if !slices.Contains(out, r.FullVersion) && len(out) < shownVersions {
			out = append(out, r.FullVersion)
		}
	}
	slices.Reverse(out)
	return out
}

// FindOpen returns the oldest release of a version that is not over, else what Find returns: of two
// releases of one version it is the older that waits for people, and the younger waits behind it.
func (s *State) FindOpen(version, channel string) (*Release, error) {
	newest, err := s.Find(version, channel)
	if err != nil || strings.HasPrefix(version, entities.ByID) {
		return newest, err
	}
	for _, r := range s.Releases {
		if !r.Over() && r.FullVersion == newest.FullVersion {
			return r, nil
		}
	}
	return newest, nil
}

// phaseChannels are the channels of a release, one or all, in the spec's order.
func (s *State) phaseChannels(r *Release, only string) []string {
	var out []string
	for _, c := range s.Spec.Channels {
		if r.Phases[c.Name] != nil && (only == "" || only == c.Name) {
			out = append(out, c.Name)
		}
	}
	return out
}

// Prune forgets releases that are over, but for a bounded tail and those that a channel is still
// at. What extensions that succeeded have said is dropped too, once their release is over; the store has it.
func (s *State) Prune() {
	over := 0
	for _, r := range s.Releases {
		if r.Over() {
			over++
			// In any order: the answer is the same.
			//workflowcheck:ignore
			for _, e := range r.Extensions {
				if e.Done {
					e.Tail = ""
				}
			}
		}
	}
	if over <= MaxFinishedReleases {
		return
	}
	kept, brought := make([]*Release, 0, len(s.Releases)), s.allBrought()
	for n, r := range s.Releases {
		if r.Over() && over > MaxFinishedReleases && n < len(s.Releases)-1 && !s.needed(r, brought) {
			over--
			continue
		}
		kept = append(kept, r)
	}
	s.Releases = kept
}

// allBrought is Brought of all instances, for who looks at many releases.
func (s *State) allBrought() map[*Instance]*Release {
	out := make(map[*Instance]*Release, len(s.Instances))
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for _, i := range s.Instances {
		out[i] = s.Brought(i)
	}
	return out
}

// needed tells whether an instance is at a release, may return to it, or may be retried there: such a one tells which
// version a full version is of.
func (s *State) needed(r *Release, brought map[*Instance]*Release) bool {
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for id, i := range s.Instances {
		if r.Phases[id.Channel] == nil {
			continue
		}
		d, t := &i.Delivery, r.Target(id)
		if i.IsAt(r) || d.LastGood != nil && d.LastGood.Same(t) || d.BeforePin != nil && d.BeforePin.Target.Same(t) ||
			d.Rollback != nil && d.Rollback.Release == r.ID || brought[i].takes(r) {
			return true
		}
	}
	return false
}
