// Package maestro computes one slot per channel from the releases in flight: which release holds the channel, which one is next in line,
// and which ones were overtaken. It knows phases, order and strategies only. The caller decides whether the next release may enter.
//
// Invariants (B7): a release never overtakes one that is in progress in a channel (except with Immediate, which states it, and one whose
// failed apply waits to be repeated), no release is lost, and a failed release never blocks its fix (B10). The package imports no other
// package of this module.
package maestro

import (
	"fmt"
	"slices"
)

// Phase is the progress of one release in one channel (B6).
type Phase string

// The phases. Skipped: a newer release entered instead.
const (
	Pending    Phase = "pending"
	InProgress Phase = "in progress"
	Succeeded  Phase = "succeeded"
	Failed     Phase = "failed"
	RolledBack Phase = "rolled back"
	Skipped    Phase = "skipped"
	Cancelled  Phase = "cancelled"
)

// Over reports whether the phase is final unless a person acts.
func (p Phase) Over() bool { return p != Pending && p != InProgress }

// Entered reports whether a release in this phase was promoted into the channel at some time.
func (p Phase) Entered() bool {
	return p == InProgress || p == Succeeded || p == Failed || p == RolledBack
}

// endsRelease reports whether a release in this phase cannot continue downstream.
func (p Phase) endsRelease() bool {
	return p == Failed || p == RolledBack || p == Skipped || p == Cancelled
}

// Strategy selects the next release of a channel among the waiting ones (B3).
type Strategy string

// The strategies.
const (
	Latest    Strategy = "latest"    // the newest release that passes its gates; older ones are skipped once it enters, and one that failed yields
	Train     Strategy = "train"     // the oldest release that can still enter, unless people let a newer one pass
	Immediate Strategy = "immediate" // like latest, and the release in progress yields
	Returning Strategy = "returning" // a release that rolls another one back: ahead of all others
)

// Replaces reports whether a release of this strategy may replace an older one in progress. retries: an apply of that one failed, and the next
// attempt has not begun.
func (s Strategy) Replaces(retries bool) bool { return s == Immediate || s == Latest && retries }

// Strategies are the strategies that can be declared.
var Strategies = []Strategy{Latest, Train, Immediate}

// Release is the view of a release that this package needs. A release without a phase for a channel never succeeds there.
type Release interface {
	PhaseIn(channel string) (Phase, bool)
	// Waives reports whether a person lets the release pass a condition of a channel (A15).
	Waives(channel, condition string) bool
	// Reopened reports whether a person lets the release enter a channel although a newer one entered.
	Reopened(channel string) bool
	// Aside reports whether the release is in progress in a channel and waits there for a release that passes it.
	Aside(channel string) bool
	// Track groups releases: those of different tracks neither overtake nor skip each other (B5).
	Track() string
}

// Channel is a node in the order. A release must have succeeded in the channels of After before it may enter here. By, if set, has the
// condition for each of them.
type Channel struct {
	Name  string
	After []string
	By    []string
	// Kept: the last release that succeeded here must enter all channels after this one before another release enters here.
	Kept bool
}

// Facts answers questions about a release in a channel, both given by index, from the state alone. It calls no external system.
type Facts interface {
	// Strategy of a release.
	Strategy(release int) Strategy
	// Refused: the release was refused there and cannot enter unless a person acts, so a release that was not refused goes first.
	Refused(release, channel int) bool
	// UpstreamReady: the upstream channels meet the further requirements after its success there: the required duration and health.
	UpstreamReady(release, channel int) bool
	// OnlyExternalLeft: once it succeeded upstream, only external conditions can hold the release.
	OnlyExternalLeft(release, channel int) bool
	// ApprovedOrBypassed: people approved the release there, or let it pass a condition.
	ApprovedOrBypassed(release, channel int) bool
	// ExternalBypassed: people let the release pass an external condition there.
	ExternalBypassed(release, channel int) bool
	// StepsRemain: the release is in progress there in steps, and some steps remain.
	StepsRemain(release, channel int) bool
	// Retries: the release is in progress there, an apply of it failed, and none runs until the next attempt.
	Retries(release, channel int) bool
	// MayPass: the release may pass the release of another track that is in progress there or aside.
	MayPass(release, other, channel int) bool
}

// None is the index for "no release".
const None = -1

// Slot is the situation in one channel. Indexes point into the given releases, oldest first.
type Slot struct {
	Channel     string
	Holder      int      // the release in progress here, or None
	Aside       int      // a release that is also in progress and waits for one that passes it; or None
	Newest      int      // the newest release of the track of Next that ever entered here, or None
	Next        int      // the release next in line, or None; of several tracks the nearest
	Stuck       string   // why Next cannot enter unless a person acts: "failed in staging"; empty if it can
	HolderStuck string   // the same for Holder, as if it had not entered yet: it may have more steps left
	Yields      bool     // Holder yields to Next
	Passes      bool     // Next passes Holder, or the release aside, which continues afterwards
	NeedsPeople bool     // Next waits for people
	Peers       []int    // older releases as near as Next, where the newest goes first: one that is already being evaluated continues
	Skips       []Skip   // pending releases older than the newest of their track: overtaken
	KeptRelease int      // the release that the channel is kept for, or None
	KeptUntil   []string // the channels that it must be promoted into first
}

// Skip is a release that another one overtook.
type Skip struct{ Release, By int }

// Arrange returns the slot of every channel, in the order of the channels. Releases are oldest first; channels form a DAG (A1).
func Arrange[R Release](releases []R, channels []Channel, facts Facts) []Slot {
	a := arranger[R]{Facts: facts, releases: releases, channels: channels, stuckCache: make([][]cachedStuck, len(releases))}
	slots, all := make([]Slot, len(channels)), tracks(releases)
	for n := range channels {
		slots[n] = a.slot(all, n)
	}
	return slots
}

type arranger[R Release] struct {
	Facts
	releases   []R
	channels   []Channel
	indexes    map[string]int  // index by channel name; built at the first lookup
	stuckCache [][]cachedStuck // results of stuck per release and channel: a DAG has many paths to one channel
}

// cachedStuck is a cached result of stuck.
type cachedStuck struct {
	valid bool
	why   string
}

// tracks returns the tracks of the releases. There is at least one.
func tracks[R Release](releases []R) []string {
	all := []string{""}
	for _, r := range releases {
		if track := r.Track(); !slices.Contains(all, track) {
			all = append(all, track)
		}
	}
	return all
}

// slot computes the slot of a channel. The release in progress counts for all tracks. The nearest release is next; of two equally near
// ones, the older.
func (a *arranger[R]) slot(tracks []string, n int) Slot {
	t := a.slotOf(tracks[0], n)
	others, holder, aside, skips := make([]Slot, len(tracks)-1), t.Holder, t.Aside, t.Skips
	for k, track := range tracks[1:] {
		others[k] = a.slotOf(track, n)
		holder, aside, skips = max(holder, others[k].Holder), max(aside, others[k].Aside), append(skips, others[k].Skips...)
	}
	current := holder
	if holder == None {
		current = aside
	}
	for _, o := range others {
		if o.Next != None && (t.Next == None || a.before(o.Next, t.Next, current, n)) {
			t = o
		}
	}
	t.Yields = t.Yields && t.Holder == holder
	t.Passes = current != None && t.Next != None && (holder == None || aside == None) && a.mayPass(t.Next, current, n)
	t.Holder, t.Aside, t.Skips = holder, aside, skips
	if t.Holder != None {
		t.HolderStuck = a.stuck(t.Holder, n)
	}
	return t
}

// before reports whether a release goes before one of another track. A release in progress yields only to its own track.
func (a *arranger[R]) before(i, than, holder, n int) bool {
	if holder == None {
		return a.nearer(i, than, n)
	}
	switch a.releases[holder].Track() {
	case a.releases[i].Track():
		return a.baseRank(i, n) > rankRefused && !a.overtaken(i, than, holder, n)
	case a.releases[than].Track():
		return a.baseRank(than, n) <= rankRefused && a.nearer(i, than, n) || a.overtaken(than, i, holder, n)
	}
	return a.nearer(i, than, n)
}

// overtaken reports whether a release waits for the one in progress, which is of its track, while a release of another track can pass both.
func (a *arranger[R]) overtaken(i, by, holder, n int) bool {
	yields := a.yields(holder, i, n) && a.baseRank(i, n) >= rankCleared && !a.aside(holder, n)
	return !yields && a.baseRank(by, n) > rankRefused && a.mayPass(by, holder, n)
}

// yields reports whether a release in progress yields to a newer one of its track.
func (a *arranger[R]) yields(holder, i, n int) bool {
	return holder != None && holder < i && a.Strategy(i).Replaces(a.Retries(holder, n))
}

// mayPass reports whether release i may pass another one. A release that cannot continue unless a person acts yields to its own track, and
// none passes it.
func (a *arranger[R]) mayPass(i, other, n int) bool {
	return a.releases[i].Track() != a.releases[other].Track() && (a.aside(other, n) || a.stuck(other, n) == "") && a.MayPass(i, other, n)
}

func (a *arranger[R]) aside(i, n int) bool { return a.releases[i].Aside(a.channels[n].Name) }

func (a *arranger[R]) nearer(i, than, n int) bool {
	k, other := a.baseRank(i, n), a.baseRank(than, n)
	return k > other || k == other && i < than
}

func (a *arranger[R]) slotOf(track string, n int) Slot {
	c := &a.channels[n]
	t, succeeded, current := a.history(track, c.Name)
	best := rank(-1)
	for i, r := range a.releases {
		if p, _ := r.PhaseIn(c.Name); p != Pending || r.Track() != track {
			continue
		}
		if i < t.Newest && (i < current || !r.Reopened(c.Name)) {
			t.Skips = append(t.Skips, Skip{i, t.Newest})
			continue
		}
		best = t.consider(i, a.rank(i, n), best)
	}
	if t.Next != None {
		t.Stuck, t.NeedsPeople = a.stuck(t.Next, n), best == rankArrived
		t.Yields = best >= rankCleared && a.yields(t.Holder, t.Next, n)
	}
	if c.Kept && succeeded != None && t.Holder == None {
		if t.KeptUntil = a.pendingAfter(succeeded, c.Name); len(t.KeptUntil) > 0 {
			t.KeptRelease = succeeded
		}
	}
	return t
}

// history returns the releases of a track that are or were in a channel. succeeded is the newest one that succeeded there; current is the
// newest one that succeeded or is in progress.
func (a *arranger[R]) history(track, channel string) (t Slot, succeeded, current int) {
	t, succeeded, current = Slot{Channel: channel, Holder: None, Aside: None, Newest: None, Next: None, KeptRelease: None}, None, None
	for i, r := range a.releases {
		if r.Track() != track {
			continue
		}
		p, _ := r.PhaseIn(channel)
		switch p {
		case InProgress:
			if current = i; r.Aside(channel) {
				t.Aside = i
			} else {
				t.Holder = i
			}
		case Succeeded:
			succeeded, current = i, i
		}
		if p.Entered() {
			t.Newest = i
		}
	}
	return t, succeeded, current
}

// consider makes a release the next one if it is nearer than those before it, and returns the rank of the next one.
func (t *Slot) consider(i int, k, best rank) rank {
	switch {
	case k > best:
		t.Next, t.Peers = i, nil
		return k
	case k == best && k.newestFirst():
		if k >= rankArrived {
			t.Peers = append(t.Peers, t.Next)
		}
		t.Next = i
	}
	return best
}

// rank is how near a waiting release is to entering. The highest rank is next.
type rank int

const (
	rankStuck     rank = iota // it cannot enter unless a person acts
	rankRefused               // the same: it was refused here
	rankQueued                // it has not arrived yet, or it keeps its place in the queue
	rankArrived               // it waits for people
	rankApproved              // people let it pass the queue
	rankCleared               // it passes all known conditions
	rankBypassed              // and people let it pass the external conditions
	rankReturning             // it rolls another release back
)

// newestFirst reports whether the newest of several releases of this rank is next. Otherwise the oldest is.
func (k rank) newestFirst() bool {
	return k <= rankRefused || k == rankArrived || k == rankCleared || k == rankBypassed
}

// baseRank is how near a release is to entering, independent of the other releases of its track.
func (a *arranger[R]) baseRank(i, n int) rank {
	switch {
	case a.stuck(i, n) != "":
		return rankStuck
	case a.Refused(i, n):
		return rankRefused
	case a.Strategy(i) == Returning:
		return rankReturning
	case !a.arrived(i, &a.channels[n]) || !a.UpstreamReady(i, n):
		return rankQueued
	case !a.OnlyExternalLeft(i, n):
		return rankArrived
	case a.ExternalBypassed(i, n):
		return rankBypassed
	}
	return rankCleared
}

func (a *arranger[R]) rank(i, n int) rank {
	k, s := a.baseRank(i, n), a.Strategy(i)
	switch {
	case k <= rankRefused || k == rankReturning || s != "" && s != Train:
		return k
	case s == Train && k >= rankCleared && a.ApprovedOrBypassed(i, n):
		return rankApproved
	}
	return rankQueued
}

// arrived reports whether a release succeeded in all required channels.
func (a *arranger[R]) arrived(i int, c *Channel) bool {
	for n, up := range c.After {
		if n < len(c.By) && a.releases[i].Waives(c.Name, c.By[n]) {
			continue
		}
		if p, _ := a.releases[i].PhaseIn(up); p != Succeeded {
			return false
		}
	}
	return true
}

// pendingAfter returns the channels directly after one that a release has not entered yet and still can enter.
func (a *arranger[R]) pendingAfter(i int, channel string) []string {
	var out []string
	for n := range a.channels {
		c := &a.channels[n]
		p, _ := a.releases[i].PhaseIn(c.Name)
		for _, up := range c.After {
			if up == channel && p == Pending && !a.blocked(i, n, map[int]bool{}) {
				out = append(out, c.Name)
				break
			}
		}
	}
	return out
}

// blocked reports whether a release cannot enter a channel unless a person acts: it is stuck, or it was refused there or upstream.
func (a *arranger[R]) blocked(i, n int, seen map[int]bool) bool {
	if seen[n] {
		return false
	}
	seen[n] = true
	if a.stuck(i, n) != "" || a.Refused(i, n) {
		return true
	}
	c := &a.channels[n]
	for k, up := range c.After {
		if k < len(c.By) && a.releases[i].Waives(c.Name, c.By[k]) {
			continue
		}
		p, _ := a.releases[i].PhaseIn(up)
		at := a.indexOf(up, n)
		if p == Pending && at != None && a.blocked(i, at, seen) {
			return true
		}
		if p == InProgress && at != None && a.stuck(i, at) != "" && a.StepsRemain(i, at) { // a failing gate holds its next step
			return true
		}
	}
	return false
}

// indexOf is the index of a channel. It is usually right before the channel that names it.
func (a *arranger[R]) indexOf(channel string, by int) int {
	if by > 0 && a.channels[by-1].Name == channel {
		return by - 1
	}
	if a.indexes == nil {
		a.indexes = make(map[string]int, len(a.channels))
		for n := range a.channels {
			a.indexes[a.channels[n].Name] = n
		}
	}
	if n, ok := a.indexes[channel]; ok {
		return n
	}
	return None
}

// stuck returns why release i cannot reach channel at unless a person acts, or "". An unknown channel holds nothing up.
func (a *arranger[R]) stuck(i, at int) string {
	if at == None {
		return ""
	}
	if a.stuckCache[i] == nil {
		a.stuckCache[i] = make([]cachedStuck, len(a.channels))
	}
	if k := a.stuckCache[i][at]; k.valid {
		return k.why
	}
	c, why := &a.channels[at], ""
	for n, up := range c.After {
		if n < len(c.By) && a.releases[i].Waives(c.Name, c.By[n]) {
			continue
		}
		p, concerned := a.releases[i].PhaseIn(up)
		if !concerned && a.indexOf(up, at) != None {
			why = "is not released to " + up
		} else if p.endsRelease() {
			why = fmt.Sprintf("%s in %s", p, up)
		} else if p == Pending {
			why = a.stuck(i, a.indexOf(up, at))
		}
		if why != "" {
			break
		}
	}
	a.stuckCache[i][at] = cachedStuck{true, why}
	return why
}
