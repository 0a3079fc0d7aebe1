// Package maestro computes one turn per channel from the releases in flight: which release holds the channel, which one is next in line,
// and which ones were overtaken. It knows phases, order and strategies only. The caller decides whether the next release may enter.
//
// Invariants (B7): a release never overtakes one that is in progress in a channel (except with Immediate, which states it), no release is
// lost, and a failed release never blocks its fix (B10). The package imports no other package of this module.
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

// dead reports whether a release in this phase cannot continue downstream.
func (p Phase) dead() bool {
	return p == Failed || p == RolledBack || p == Skipped || p == Cancelled
}

// Strategy selects the next release of a channel among the waiting ones (B3).
type Strategy string

// The strategies.
const (
	Latest    Strategy = "latest"    // the newest release that passes its gates; older ones are skipped once it enters
	Train     Strategy = "train"     // the oldest release that can still enter, unless people let a newer one pass
	Immediate Strategy = "immediate" // like latest, and the release in progress yields
	Returning Strategy = "returning" // a release that takes another one back: ahead of all others
)

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
	// Line groups releases: those of different lines neither overtake nor skip each other (B5).
	Line() string
}

// Channel is a node in the order. A release must have succeeded in the channels of After before it may enter here. By, if set, has the
// condition for each of them.
type Channel struct {
	Name  string
	After []string
	By    []string
	// Kept: the last release that succeeded here must enter all channels after this one before another release enters here.
	Kept bool
	// Crosses: of several lines the nearest release is next, even if the release in progress belongs to another line. That one does not
	// yield to it.
	Crosses bool
}

// Known answers questions about a release in a channel, both given by index, from the state alone. It calls no external system.
type Known interface {
	// Strategy of a release.
	Strategy(release int) Strategy
	// Held: the release was refused there and cannot enter unless a person acts, so a release that was not refused goes first.
	Held(release, channel int) bool
	// Rested: the upstream channels meet the further requirements after its success there: the required duration and health.
	Rested(release, channel int) bool
	// Clear: once it succeeded upstream, only external conditions can hold the release.
	Clear(release, channel int) bool
	// Spoken: people approved the release there, or let it pass a condition.
	Spoken(release, channel int) bool
	// Let: people let the release pass an external condition there.
	Let(release, channel int) bool
	// Short: the release is in progress there in steps, and some steps remain.
	Short(release, channel int) bool
	// Passes: the release may pass the release of another line that is in progress there or aside.
	Passes(release, other, channel int) bool
}

// None is the index for "no release".
const None = -1

// Turn is the situation in one channel. Indexes point into the given releases, oldest first.
type Turn struct {
	Channel string
	Holder  int      // the release in progress here, or None
	Aside   int      // a release that is also in progress and waits for one that passes it; or None
	Newest  int      // the newest release of the line of Next that ever entered here, or None
	Next    int      // the release next in line, or None; of several lines the nearest
	Stuck   string   // why Next cannot enter unless a person acts: "failed in staging"; empty if it can
	Cut     string   // the same for Holder, as if it had not entered yet: it may have more steps left
	Yields  bool     // Holder yields to Next
	Passes  bool     // Next passes Holder, or the release aside, which continues afterwards
	People  bool     // Next waits for people
	Peers   []int    // older releases as near as Next, where the newest goes first: one that is already being evaluated continues
	Skips   []Skip   // pending releases older than the newest of their line: overtaken
	Keeper  int      // the release that the channel is kept for, or None
	KeptFor []string // the channels that it must be promoted into first
}

// Skip is a release that another one overtook.
type Skip struct{ Release, By int }

// Arrange returns the turn of every channel, in the order of the channels. Releases are oldest first; channels form a DAG (A1).
func Arrange[R Release](releases []R, channels []Channel, known Known) []Turn {
	a := arranger[R]{Known: known, releases: releases, channels: channels, known: make([][]answer, len(releases))}
	turns, all := make([]Turn, len(channels)), lines(releases)
	for n := range channels {
		turns[n] = a.turn(all, n)
	}
	return turns
}

type arranger[R Release] struct {
	Known
	releases []R
	channels []Channel
	places   map[string]int // index by channel name; built at the first lookup
	known    [][]answer     // results of stuck per release and channel: a DAG has many paths to one channel
}

// answer is a cached result of stuck.
type answer struct {
	known bool
	why   string
}

// lines returns the lines of the releases. There is at least one.
func lines[R Release](releases []R) []string {
	all := []string{""}
	for _, r := range releases {
		if line := r.Line(); !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	return all
}

// turn computes the turn of a channel. The release in progress counts for all lines. The nearest release is next; of two equally near
// ones, the older.
func (a *arranger[R]) turn(lines []string, n int) Turn {
	t := a.turnOf(lines[0], n)
	others, holder, aside, skips := make([]Turn, len(lines)-1), t.Holder, t.Aside, t.Skips
	for k, line := range lines[1:] {
		others[k] = a.turnOf(line, n)
		holder, aside, skips = max(holder, others[k].Holder), max(aside, others[k].Aside), append(skips, others[k].Skips...)
	}
	has := holder
	if holder == None {
		has = aside
	}
	for _, o := range others {
		if o.Next != None && (t.Next == None || a.before(o.Next, t.Next, has, n)) {
			t = o
		}
	}
	t.Yields = t.Yields && t.Holder == holder
	t.Passes = has != None && t.Next != None && (holder == None || aside == None) && a.passes(t.Next, has, n)
	t.Holder, t.Aside, t.Skips = holder, aside, skips
	if t.Holder != None {
		t.Cut = a.stuck(t.Holder, n)
	}
	return t
}

// before reports whether a release goes before one of another line. A release in progress yields only to its own line.
func (a *arranger[R]) before(i, than, holder, n int) bool {
	if holder == None {
		return a.nearer(i, than, n)
	}
	switch a.releases[holder].Line() {
	case a.releases[i].Line():
		return a.near(i, n) > held && !a.overtaken(i, than, holder, n)
	case a.releases[than].Line():
		return a.near(than, n) <= held && a.nearer(i, than, n) || a.overtaken(than, i, holder, n)
	}
	return a.nearer(i, than, n)
}

// overtaken reports whether a release waits for the one in progress, which is of its line, while a release of another line can pass both.
func (a *arranger[R]) overtaken(i, by, holder, n int) bool {
	comes := i > holder && a.Strategy(i) == Immediate && a.near(i, n) >= cleared && !a.aside(holder, n)
	return !comes && a.near(by, n) > held && a.passes(by, holder, n)
}

// passes reports whether release i may pass another one. A release that cannot continue unless a person acts yields to its own line, and
// none passes it.
func (a *arranger[R]) passes(i, other, n int) bool {
	return a.releases[i].Line() != a.releases[other].Line() && (a.aside(other, n) || a.stuck(other, n) == "") && a.Passes(i, other, n)
}

func (a *arranger[R]) aside(i, n int) bool { return a.releases[i].Aside(a.channels[n].Name) }

func (a *arranger[R]) nearer(i, than, n int) bool {
	k, other := a.near(i, n), a.near(than, n)
	return k > other || k == other && i < than
}

func (a *arranger[R]) turnOf(line string, n int) Turn {
	c := &a.channels[n]
	t, good, here := a.past(line, c.Name)
	best := rank(-1)
	for i, r := range a.releases {
		if p, _ := r.PhaseIn(c.Name); p != Pending || r.Line() != line {
			continue
		}
		if i < t.Newest && (i < here || !r.Reopened(c.Name)) {
			t.Skips = append(t.Skips, Skip{i, t.Newest})
			continue
		}
		best = t.consider(i, a.rank(i, n), best)
	}
	if t.Next != None {
		t.Stuck, t.People = a.stuck(t.Next, n), best == arrived
		t.Yields = t.Holder != None && t.Holder < t.Next && best >= cleared && a.Strategy(t.Next) == Immediate
	}
	if c.Kept && good != None && t.Holder == None {
		if t.KeptFor = a.ahead(good, c.Name); len(t.KeptFor) > 0 {
			t.Keeper = good
		}
	}
	return t
}

// past returns the releases of a line that are or were in a channel. good is the newest one that succeeded there; here is the newest one
// that succeeded or is in progress.
func (a *arranger[R]) past(line, channel string) (t Turn, good, here int) {
	t, good, here = Turn{Channel: channel, Holder: None, Aside: None, Newest: None, Next: None, Keeper: None}, None, None
	for i, r := range a.releases {
		if r.Line() != line {
			continue
		}
		p, _ := r.PhaseIn(channel)
		switch p {
		case InProgress:
			if here = i; r.Aside(channel) {
				t.Aside = i
			} else {
				t.Holder = i
			}
		case Succeeded:
			good, here = i, i
		}
		if p.Entered() {
			t.Newest = i
		}
	}
	return t, good, here
}

// consider makes a release the next one if it is nearer than those before it, and returns the rank of the next one.
func (t *Turn) consider(i int, k, best rank) rank {
	switch {
	case k > best:
		t.Next, t.Peers = i, nil
		return k
	case k == best && k.newest():
		if k >= arrived {
			t.Peers = append(t.Peers, t.Next)
		}
		t.Next = i
	}
	return best
}

// rank is how near a waiting release is to entering. The highest rank is next.
type rank int

const (
	stuck   rank = iota // it cannot enter unless a person acts
	held                // the same: it was refused here
	line                // it has not arrived yet, or it keeps its place in the line
	arrived             // it waits for people
	spoken              // people let it pass the line
	cleared             // it passes all known conditions
	let                 // and people let it pass the external conditions
	back                // it takes another release back
)

// newest reports whether the newest of several releases of this rank is next. Otherwise the oldest is.
func (k rank) newest() bool { return k <= held || k == arrived || k == cleared || k == let }

// near is how near a release is to entering, independent of the other releases of its line.
func (a *arranger[R]) near(i, n int) rank {
	switch {
	case a.stuck(i, n) != "":
		return stuck
	case a.Held(i, n):
		return held
	case a.Strategy(i) == Returning:
		return back
	case !a.arrived(i, &a.channels[n]) || !a.Rested(i, n):
		return line
	case !a.Clear(i, n):
		return arrived
	case a.Let(i, n):
		return let
	}
	return cleared
}

func (a *arranger[R]) rank(i, n int) rank {
	k, s := a.near(i, n), a.Strategy(i)
	switch {
	case k <= held || k == back || s != "" && s != Train:
		return k
	case s == Train && k >= cleared && a.Spoken(i, n):
		return spoken
	}
	return line
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

// ahead returns the channels directly after one that a release has not entered yet and still can enter.
func (a *arranger[R]) ahead(i int, channel string) []string {
	var out []string
	for n := range a.channels {
		c := &a.channels[n]
		p, _ := a.releases[i].PhaseIn(c.Name)
		for _, up := range c.After {
			if up == channel && p == Pending && !a.barred(i, n, map[int]bool{}) {
				out = append(out, c.Name)
				break
			}
		}
	}
	return out
}

// barred reports whether a release cannot enter a channel unless a person acts: it is stuck, or it was refused there or upstream.
func (a *arranger[R]) barred(i, n int, seen map[int]bool) bool {
	if seen[n] {
		return false
	}
	seen[n] = true
	if a.stuck(i, n) != "" || a.Held(i, n) {
		return true
	}
	c := &a.channels[n]
	for k, up := range c.After {
		if k < len(c.By) && a.releases[i].Waives(c.Name, c.By[k]) {
			continue
		}
		p, _ := a.releases[i].PhaseIn(up)
		at := a.place(up, n)
		if p == Pending && at != None && a.barred(i, at, seen) {
			return true
		}
		if p == InProgress && at != None && a.stuck(i, at) != "" && a.Short(i, at) { // a failing gate holds its next step
			return true
		}
	}
	return false
}

// place is the index of a channel. It is usually right before the channel that names it.
func (a *arranger[R]) place(channel string, by int) int {
	if by > 0 && a.channels[by-1].Name == channel {
		return by - 1
	}
	if a.places == nil {
		a.places = make(map[string]int, len(a.channels))
		for n := range a.channels {
			a.places[a.channels[n].Name] = n
		}
	}
	if n, ok := a.places[channel]; ok {
		return n
	}
	return None
}

// stuck returns why release i cannot reach channel at unless a person acts, or "". An unknown channel holds nothing up.
func (a *arranger[R]) stuck(i, at int) string {
	if at == None {
		return ""
	}
	if a.known[i] == nil {
		a.known[i] = make([]answer, len(a.channels))
	}
	if k := a.known[i][at]; k.known {
		return k.why
	}
	c, why := &a.channels[at], ""
	for n, up := range c.After {
		if n < len(c.By) && a.releases[i].Waives(c.Name, c.By[n]) {
			continue
		}
		p, concerned := a.releases[i].PhaseIn(up)
		if !concerned && a.place(up, at) != None {
			why = "is not released to " + up
		} else if p.dead() {
			why = fmt.Sprintf("%s in %s", p, up)
		} else if p == Pending {
			why = a.stuck(i, a.place(up, at))
		}
		if why != "" {
			break
		}
	}
	a.known[i][at] = answer{true, why}
	return why
}
