package entities

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/maestro"
)

// This file holds what a person's act does to the state. Every function either changes the state
// and returns one line to answer, or returns an error that says what was wrong and changes
// nothing (bad input loses nothing).

// CheckRelease says why a release cannot be accepted now, or nil. It needs no I/O, so that an
// update is validated before anything is written.
func (s *State) CheckRelease(version string, parameters []string, channels []string) error {
	switch {
	case s.Spec == nil:
		return fmt.Errorf("%s/%s has no configuration yet; publish it with: converge apply DIR", s.Application, s.Service)
	case len(s.Spec.Channels) == 0:
		return fmt.Errorf("%s/%s is no longer declared", s.Application, s.Service)
	case s.Spec.Version != "":
		return fmt.Errorf("the version of %s/%s is set to %s in %s; change it there", s.Application, s.Service, s.Spec.Version, s.Spec.DeclaredAt)
	}
	if err := checkVersion(version); err != nil {
		return err
	}
	for _, p := range parameters {
		if !s.Spec.declares(p) {
			return fmt.Errorf("%s/%s has no parameter %q; expected %s", s.Application, s.Service, p, oneOf(s.Spec.parameterNames()))
		}
	}
	for _, c := range channels {
		if _, ok := s.Spec.Channel(c); !ok {
			return fmt.Errorf("%s/%s has no release channel %q; expected %s", s.Application, s.Service, c, oneOf(s.Spec.channelNames()))
		}
	}
	if n := s.open(); n >= MaxOpenReleases {
		return fmt.Errorf("%d releases are in flight, the most that are kept; cancel some first", n)
	}
	return nil
}

// checkVersion: a version is opaque, but it must be a name that a person can read and a script
// can quote.
func checkVersion(v string) error {
	if v == "" {
		return fmt.Errorf("no version given")
	}
	if len(v) > 128 {
		return fmt.Errorf("the version is %d bytes long; at most 128", len(v))
	}
	for n, r := range v {
		word := r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !word && (n == 0 || !strings.ContainsRune("._+-:@~=", r)) {
			return fmt.Errorf("version %q: expected letters, digits and . _ + - : @ ~ =, beginning with a letter or digit", v)
		}
	}
	return nil
}

func (s *State) open() int {
	n := 0
	for _, r := range s.Releases {
		if !r.Over() {
			n++
		}
	}
	return n
}

// NewRelease is what OpenRelease is told.
type NewRelease struct {
	ID          string // shared by all services of one release; empty: made from the sequence
	Version     string
	FullVersion string
	Incarnation int64
	Hash        string
	Payloads    map[string]string
	By          string
	Who         *Who // for the audit trail; nil: By, stated
}

// OpenRelease adds a release, pending in every channel that it has a payload for; one whose id is
// known is returned as it is (B7). A config release that is not yet promoted anywhere is replaced
// by a newer one (DESIGN section 5).
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
		By: n.By, At: now, Payloads: n.Payloads, Templates: map[string]string{}, Phases: map[string]*PhaseState{},
	}
	if r.ID == "" {
		r.ID = fmt.Sprint(s.LastRelease)
	}
	for _, c := range s.Spec.Channels {
		r.Templates[c.Name] = c.Template
		if _, ok := n.Payloads[c.Name]; ok {
			r.Phases[c.Name] = &PhaseState{Phase: maestro.Pending, Since: now}
		}
	}
	if r.Config() {
		s.inheritCancels(r, now)
		s.replaceUnpromoted(r, now)
	}
	if r.Incarnation >= s.Held {
		s.Held = 0
	}
	s.Releases = append(s.Releases, r)
	s.Record(now, "", fmt.Sprintf("release %s: %s from incarnation %d, by %s", r.ID, r.FullVersion, r.Incarnation, r.By))
	who := Who{Name: n.By}
	if n.Who != nil {
		who = *n.Who
	}
	s.noteAct(EventRelease, who, r, "", fmt.Sprintf("release of %s from incarnation %d", r.FullVersion, r.Incarnation), "", now)
	return r
}

// inheritCancels: where a version was cancelled before it came, a change of configuration does not
// bring it after all (A18).
func (s *State) inheritCancels(r *Release, now time.Time) {
	of := s.offered()
	if of == nil || of.Version != r.Version {
		return
	}
	for _, c := range SortedKeys(r.Phases) {
		if of.calledOff(c) && !s.isAt(c, of) {
			r.Phases[c] = &PhaseState{Phase: maestro.Cancelled, Since: now, Reason: fmt.Sprintf("%s was %s here", of.FullVersion, of.Phases[c].Phase)}
		}
	}
}

// calledOff: a person cancelled the release here, or took it back. (What was cancelled because its
// channel was removed has no template any more.)
func (r *Release) calledOff(channel string) bool {
	p := r.Phases[channel]
	return p != nil && (p.Phase == maestro.Cancelled || p.CalledOff) && r.Templates[channel] != ""
}

// offered is the newest release that was not cancelled before it came anywhere: its version is what
// a change of configuration applies to.
func (s *State) offered() *Release {
	for n := len(s.Releases) - 1; n >= 0; n-- {
		r := s.Releases[n]
		// In any order: the answer is the same.
		//workflowcheck:ignore
		for c := range r.Phases {
			if !r.calledOff(c) || s.isAt(c, r) {
				return r
			}
		}
	}
	return nil
}

func (s *State) replaceUnpromoted(by *Release, now time.Time) {
	for _, r := range s.Releases {
		if !r.Config() || !r.unpromoted() {
			continue
		}
		for _, c := range SortedKeys(r.Phases) {
			if r.Phases[c].Phase == maestro.Pending {
				r.Phases[c] = &PhaseState{Phase: maestro.Skipped, Since: now, Reason: "replaced by " + by.FullVersion}
			}
		}
		s.Record(now, "", r.FullVersion+" replaced by "+by.FullVersion)
	}
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

func (s *State) declared(channel string) bool {
	_, ok := s.Spec.Channel(channel)
	return ok
}

func templatesDiffer(r *Release, spec *Spec) bool {
	for _, c := range spec.Channels {
		if r.Templates[c.Name] != c.Template {
			return true
		}
	}
	return false
}

// CancelRelease ends what is still to come of a release: pending phases never start, targets
// already set stay enforced (A18).
func (s *State) CancelRelease(version, channel string, who Who, reason string, now time.Time) (string, error) {
	r, err := s.findOpen(version, channel)
	if err != nil {
		return "", err
	}
	var ended []string
	for _, c := range s.phaseChannels(r, channel) {
		if !r.Phases[c].Phase.Over() {
			r.Phases[c] = &PhaseState{Phase: maestro.Cancelled, Since: now, Reason: "by " + who.Name + because(reason)}
			ended = append(ended, c)
		}
	}
	if len(ended) == 0 {
		return "", fmt.Errorf("%s is over: %s", r.FullVersion, phases(r))
	}
	s.noteAct(EventCancel, who, r, channel, "cancelled in "+strings.Join(ended, ", "), reason, now)
	s.Record(now, channel, fmt.Sprintf("%s cancelled by %s in %s%s", r.FullVersion, who.Name, strings.Join(ended, ", "), because(reason)))
	return fmt.Sprintf("%s cancelled in %s", r.FullVersion, strings.Join(ended, ", ")), nil
}

// restart begins the attempts at the present target anew; an apply that runs is the first of them.
func (i *Instance) restart(now time.Time) {
	i.Failure, i.PausedAt = "", time.Time{}
	i.settle()
	i.Progress = ApplyState{Running: i.Progress.Running, Started: i.Progress.Started, Ended: i.Progress.Ended}
	if i.Progress.Running {
		i.Progress.First = now
	}
}

// RefreshScope asks for a look now.
func (s *State) RefreshScope(channel string) (string, error) {
	if err := s.checkChannel(channel); err != nil {
		return "", err
	}
	for _, c := range s.Spec.Channels {
		if channel == "" || c.Name == channel {
			s.Instance(c.Name).Look = true
		}
	}
	return s.scope(channel) + " is looked at now", nil
}

// find returns the newest release of a full version, else of a version.
func (s *State) find(version, channel string) (*Release, error) {
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	var known []string
	var found *Release
	for _, r := range s.Releases {
		if r.FullVersion == version || r.Version == version && (found == nil || found.FullVersion != version) {
			found = r
		}
		if !slices.Contains(known, r.FullVersion) {
			known = append(known, r.FullVersion)
		}
	}
	if found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("no release of version %q; expected %s", version, oneOf(known))
}

// findOpen returns the oldest release of a version that is not over, else what find returns: of two
// releases of one version it is the older that waits for people, and the younger waits behind it.
func (s *State) findOpen(version, channel string) (*Release, error) {
	newest, err := s.find(version, channel)
	if err != nil {
		return nil, err
	}
	for _, r := range s.Releases {
		if !r.Over() && r.FullVersion == newest.FullVersion {
			return r, nil
		}
	}
	return newest, nil
}

func (s *State) checkChannel(channel string) error {
	if s.Spec == nil {
		return fmt.Errorf("%s/%s has no configuration yet", s.Application, s.Service)
	}
	if channel != "" && !s.declared(channel) {
		return fmt.Errorf("%s/%s has no release channel %q; expected %s", s.Application, s.Service, channel, oneOf(s.Spec.channelNames()))
	}
	return nil
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

func (s *State) scope(channel string) string {
	if channel == "" {
		return s.Application + "/" + s.Service
	}
	return s.Application + "/" + s.Service + " " + channel
}

func phases(r *Release) string {
	var parts []string
	for _, c := range SortedKeys(r.Phases) {
		parts = append(parts, c+" "+string(r.Phases[c].Phase))
	}
	return strings.Join(parts, ", ")
}

func oneOf(names []string) string {
	if len(names) == 0 {
		return "nothing, there is none yet"
	}
	return "one of " + strings.Join(names, ", ")
}

func (s *Spec) declares(parameter string) bool {
	for _, p := range s.Parameters {
		if p.Name == parameter {
			return true
		}
	}
	return false
}

func (s *Spec) parameterNames() []string {
	var out []string
	for _, p := range s.Parameters {
		out = append(out, p.Name)
	}
	return out
}

func (s *Spec) channelNames() []string {
	var out []string
	for _, c := range s.Channels {
		out = append(out, c.Name)
	}
	return out
}

// SortedKeys are the keys of a map in order: what ranges over them gives the same bytes every time.
//
//workflowcheck:ignore
func SortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
