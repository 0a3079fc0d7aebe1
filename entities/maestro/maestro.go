// Package maestro turns the releases in flight into one turn per channel: which release holds the
// channel, which is next in line, and which have been overtaken. It knows phases, order and strategies only;
// whether the next release may enter is judged elsewhere.
//
// Invariants (B7): a release never overtakes one that is in progress in a channel (but by Immediate, which says so), none is
// lost, and a failed one never blocks the fix behind it (B10). It imports nothing of ours.
package maestro

import (
	"fmt"
	"slices"
)

// Phase is how far one release is in one channel (B6).
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

// Over tells whether nothing more happens in this phase by itself.
func (p Phase) Over() bool { return p != Pending && p != InProgress }

// Entered tells whether a release of this phase was promoted into the channel at some time.
func (p Phase) Entered() bool {
	return p == InProgress || p == Succeeded || p == Failed || p == RolledBack
}

// dead tells whether a release of this phase will not go on downstream.
func (p Phase) dead() bool {
	return p == Failed || p == RolledBack || p == Skipped || p == Cancelled
}

// Strategy says which of the releases that wait at a channel is next there (B3).
type Strategy string

// The strategies.
const (
	Latest    Strategy = "latest"    // the newest that passes; older ones are skipped once it enters
	Train     Strategy = "train"     // the oldest that can come, unless people let a newer one pass
	Immediate Strategy = "immediate" // as latest, and what is in progress yields
	Returning Strategy = "returning" // a release that takes another one back: ahead of all
)

// Strategies are those that can be declared.
var Strategies = []Strategy{Latest, Train, Immediate}

// Release is a release as maestro sees it. A channel without a phase does not concern it: it never succeeds there.
type Release interface {
	PhaseIn(channel string) (Phase, bool)
	// Waives tells whether a person lets it pass a condition of a channel (A15).
	Waives(channel, condition string) bool
	// Reopened tells whether a person has it enter a channel after all, though a newer one entered.
	Reopened(channel string) bool
	// Aside tells whether it is in progress in a channel, and waits there for what passes it.
	Aside(channel string) bool
	// Line is what it has to do with others: those of different lines neither overtake nor skip each other (B5).
	Line() string
}

// Channel is a place in the order: After names the channels that a release must have succeeded in
// before it may enter here, and By, where it is given, the condition that says so of each.
type Channel struct {
	Name  string
	After []string
	By    []string
	// Kept: nothing enters before what succeeded here last has gone on to all that come after this channel.
	Kept bool
	// Crosses: of several lines the nearest is next, though what is in progress is of another: it makes no room for that.
	Crosses bool
}

// Known is what the state itself says of a release in a channel, each by its index: nobody outside is asked.
type Known interface {
	// Strategy by which a release goes.
	Strategy(release int) Strategy
	// Held: it is refused there and will not come by itself, so that it is passed over for one that is not.
	Held(release, channel int) bool
	// Rested: the channels before it are as they must be beyond its success there: for as long as is asked, and well.
	Rested(release, channel int) bool
	// Clear: nothing but what is asked outside holds it, once it has succeeded in the channels before.
	Clear(release, channel int) bool
	// Spoken: people approved it or let it pass something there.
	Spoken(release, channel int) bool
	// Let: people let it pass something there that is asked outside.
	Let(release, channel int) bool
	// Short: it is in progress there, by steps, and has some to go.
	Short(release, channel int) bool
	// Passes: it may pass what is in progress there, or aside, which is of another line.
	Passes(release, other, channel int) bool
}

// None is the index of no release.
const None = -1

// Turn is the situation in one channel. Indexes point into the releases given, oldest first.
type Turn struct {
	Channel string
	Holder  int      // the release in progress here, or None
	Aside   int      // one that is in progress too, and waits for what passes it; or None
	Newest  int      // the newest release that ever entered here, or None; of the line of Next
	Next    int      // the release next in line, or None; of several lines the nearest
	Stuck   string   // why Next cannot come by itself: "failed in staging"; empty when it can
	Cut     string   // the same of Holder, as if it were still to come: it may have more steps to go
	Yields  bool     // Holder makes room for Next
	Passes  bool     // Next passes Holder, or what is aside, which goes on afterwards
	People  bool     // Next waits for people
	Peers   []int    // that are as near as Next and older, where the newest goes first: one that is being asked about goes on
	Skips   []Skip   // pending releases older than the newest of their line: overtaken
	Keeper  int      // the release that the channel is kept for, or None
	KeptFor []string // the channels that it is to be promoted into first
}

// Skip is a release that was overtaken by another one.
type Skip struct{ Release, By int }

// Arrange gives the turn of every channel, in the channels' order. Releases are oldest first; channels form a DAG (A1).
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
	places   map[string]int // of the channels, once one is looked up
	known    [][]answer     // per release and channel, what stuck said: a DAG has many ways to one channel
}

// answer is what stuck said, once it was asked.
type answer struct {
	known bool
	why   string
}

// lines of the releases: there is one at least.
func lines[R Release](releases []R) []string {
	all := []string{""}
	for _, r := range releases {
		if line := r.Line(); !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	return all
}

// turn of a channel. What is in progress there is so for all lines, and next is the nearest: of two that are as near, the older.
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

// before tells whether a release is next rather than one of another line. What is in progress makes room for its own line at most.
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

// overtaken tells whether a release waits for what is in progress, which is of its line, while one of another line can pass both.
func (a *arranger[R]) overtaken(i, by, holder, n int) bool {
	comes := i > holder && a.Strategy(i) == Immediate && a.near(i, n) >= cleared && !a.aside(holder, n)
	return !comes && a.near(by, n) > held && a.passes(by, holder, n)
}

// passes: what goes no further by itself makes room for its own line, and is passed by none.
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

// past is who of a line is and was in a channel: of those that succeeded there the newest is good, and here is the newest that did or
// is in progress.
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

// consider has a release be next if it is nearer than those before it, and gives the rank of what is.
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

// rank is how near a waiting release is to entering: the highest is next.
type rank int

const (
	stuck   rank = iota // it will not come by itself
	held                // nor will it: it was refused here
	line                // it is still to come, or takes its place in the line
	arrived             // it waits for people
	spoken              // people let it pass the line
	cleared             // it passes as far as is known
	let                 // and people let it pass what is asked outside
	back                // it takes another release back
)

// newest tells whether of several the newest is next, else the oldest.
func (k rank) newest() bool { return k <= held || k == arrived || k == cleared || k == let }

// near is how near a release is to entering, whatever others of its line do.
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

// arrived tells whether a release has succeeded wherever it must have.
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

// ahead names the channels right after one that a release is still to enter, and can.
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

// barred tells whether a release will not come to a channel by itself: it is stuck, or was refused there or on its way.
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
		if p == InProgress && at != None && a.stuck(i, at) != "" && a.Short(i, at) { // a gate that fails holds its next step
			return true
		}
	}
	return false
}

// place of a channel in the order given, which stands most often right before the one that names it.
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

// stuck says why release i will not reach channel at by itself, or "". What is not a channel holds nothing up.
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
			why = "does not go to " + up
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
