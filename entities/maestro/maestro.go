// Package maestro turns the releases in flight into one turn per channel: which release holds the
// channel, which is next in line, and which have been overtaken. It knows phases and order only;
// whether the next release may enter is judged elsewhere.
//
// Invariants (B7): a release never overtakes another in a channel, none is lost,
// and a failed one never blocks the fix behind it (B10). It imports nothing of ours.
package maestro

import "fmt"

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

// Release is a release as maestro sees it. A channel without a phase does not concern it: it never succeeds there.
type Release interface {
	PhaseIn(channel string) (Phase, bool)
	// Waives tells whether a person lets it pass a condition of a channel (A15).
	Waives(channel, condition string) bool
}

// Channel is a place in the order: After names the channels that a release must have succeeded in
// before it may enter here, and By, where it is given, the condition that says so of each.
type Channel struct {
	Name  string
	After []string
	// Held tells whether a release, by index, is held here and will not come by itself: it is passed
	// over for one that is not. Nil: none is.
	Held func(int) bool
	By   []string
}

// None is the index of no release.
const None = -1

// Turn is the situation in one channel. Indexes point into the releases given, oldest first.
type Turn struct {
	Channel string
	Holder  int    // the release in progress here, or None
	Newest  int    // the newest release that ever entered here, or None
	Next    int    // the release next in line, or None
	Stuck   string // why Next cannot come by itself: "failed in staging"; empty when it can
	Skips   []int  // pending releases older than Newest: overtaken
}

// Arrange gives the turn of every channel, in the channels' order. Releases are oldest first;
// channels form a DAG (A1). Strategy: train, each release through every channel in order (B1).
func Arrange[R Release](releases []R, channels []Channel) []Turn {
	a := arranger[R]{releases: releases, channels: channels, known: make([][]answer, len(releases))}
	turns := make([]Turn, len(channels))
	for n := range channels {
		turns[n] = a.turn(n)
	}
	return turns
}

type arranger[R Release] struct {
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

func (a *arranger[R]) turn(n int) Turn {
	c := &a.channels[n]
	t := Turn{Channel: c.Name, Holder: None, Newest: None, Next: None}
	for i, r := range a.releases {
		p, _ := r.PhaseIn(c.Name)
		if p == InProgress {
			t.Holder = i
		}
		if p.Entered() {
			t.Newest = i
		}
	}
	held := false
	for i, r := range a.releases {
		if p, _ := r.PhaseIn(c.Name); p != Pending {
			continue
		}
		if i < t.Newest {
			t.Skips = append(t.Skips, i)
			continue
		}
		if t.Next != None && t.Stuck == "" && !held {
			continue // the oldest that can come is next: no overtaking
		}
		stuck := a.stuck(i, n)
		if t.Next != None && t.Stuck == "" && stuck != "" {
			continue // one that is held may still come; this one will not
		}
		t.Next, t.Stuck = i, stuck
		held = c.Held != nil && c.Held(i)
	}
	return t
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
