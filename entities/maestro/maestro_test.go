package maestro

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// phases is a release: its phase by channel.
type phases map[string]Phase

func (p phases) Waives(string, string) bool { return false }

func (p phases) Aside(channel string) bool { return p[channel+" aside"] != "" }

func (p phases) Track() string { return string(p["line"]) }

func (p phases) Reopened(channel string) bool { return p[channel+" reopened"] != "" }

// testFacts is the state's knowledge of releases in channels: for each release a word, of letters as in the table below.
type testFacts []string

func (s testFacts) has(release int, channel string, letters string) bool {
	return release < len(s) && strings.Contains(s[release], letters+channel)
}

func name(channel int) string { return string(rune('a' + channel)) }

func (s testFacts) Strategy(release int) Strategy {
	for _, one := range append(Strategies, Returning) {
		if release < len(s) && strings.HasPrefix(s[release], string(one)) {
			return one
		}
	}
	return ""
}
func (s testFacts) Refused(release, channel int) bool { return s.has(release, name(channel), "-") }
func (s testFacts) UpstreamReady(release, channel int) bool {
	return !s.has(release, name(channel), ".")
}

func (s testFacts) OnlyExternalLeft(release, channel int) bool {
	return !s.has(release, name(channel), "?")
}

func (s testFacts) ApprovedOrBypassed(release, channel int) bool {
	return s.has(release, name(channel), "+") || s.ExternalBypassed(release, channel)
}

func (s testFacts) ExternalBypassed(release, channel int) bool {
	return s.has(release, name(channel), "!")
}

func (s testFacts) StepsRemain(release, channel int) bool { return s.has(release, name(channel), "~") }

func (s testFacts) Retries(release, channel int) bool { return s.has(release, name(channel), "r") }

func (s testFacts) MayPass(release, other, channel int) bool {
	return s.has(release, name(channel), ">")
}

func (p phases) PhaseIn(channel string) (Phase, bool) {
	phase, ok := p[channel]
	return phase, ok
}

// The phases of a table, by letter: a release is written "SPP", one letter a channel.
var letters = map[rune]Phase{
	'P': Pending, 'I': InProgress, 'S': Succeeded, 'F': Failed, 'R': RolledBack, 'K': Skipped, 'C': Cancelled,
}

func release(channels []Channel, word string) phases {
	p := phases{}
	for i, l := range word {
		if phase, ok := letters[l]; ok { // '-': the release does not concern the channel
			p[channels[i].Name] = phase
		}
	}
	return p
}

func (t Slot) String() string {
	n := func(i int) string {
		if i == None {
			return "-"
		}
		return fmt.Sprint(i)
	}
	s := fmt.Sprintf("%s holder %s newest %s next %s", t.Channel, n(t.Holder), n(t.Newest), n(t.Next))
	if t.Stuck != "" {
		s += " stuck: " + t.Stuck
	}
	if t.HolderStuck != "" {
		s += " cut: " + t.HolderStuck
	}
	if t.Yields {
		s += " yields"
	}
	if t.NeedsPeople {
		s += " people"
	}
	if len(t.Peers) > 0 {
		s += fmt.Sprintf(" before %v", t.Peers)
	}
	if t.KeptRelease != None {
		s += fmt.Sprintf(" kept for %d until %s", t.KeptRelease, strings.Join(t.KeptUntil, ","))
	}
	if len(t.Skips) > 0 {
		var skips []int
		for _, k := range t.Skips {
			skips = append(skips, k.Release)
		}
		s += fmt.Sprintf(" skips %v", skips)
	}
	return s
}

func TestArrange_A18_B1_B2_B4_B6_B7_B10(t *testing.T) {
	chain := []Channel{{Name: "a"}, {Name: "b", After: []string{"a"}}, {Name: "c", After: []string{"b"}}}
	diamond := []Channel{{Name: "a"}, {Name: "b", After: []string{"a"}}, {Name: "c", After: []string{"a"}}, {Name: "d", After: []string{"b", "c"}}}
	for _, row := range []struct {
		name     string
		channels []Channel
		releases string // oldest first
		want     string
	}{
		{
			"one release, nothing entered", chain, "PPP",
			"a holder - newest - next 0\nb holder - newest - next 0\nc holder - newest - next 0",
		},
		{
			"one release goes through", chain, "SIP",
			"a holder - newest 0 next -\nb holder 0 newest 0 next -\nc holder - newest - next 0",
		},
		{
			"a second one follows", chain, "SIP IPP",
			"a holder 1 newest 1 next -\nb holder 0 newest 0 next 1\nc holder - newest - next 0",
		},
		{
			"the oldest is next: no overtaking", chain, "SSP SPP PPP",
			"a holder - newest 1 next 2\nb holder - newest 0 next 1\nc holder - newest - next 0",
		},
		{
			"a release that failed upstream is passed over for its fix", chain, "FPP PPP",
			"a holder - newest 0 next 1\nb holder - newest - next 1\nc holder - newest - next 1",
		},
		{
			"with no fix it is next, and stuck", chain, "FPP",
			"a holder - newest 0 next -\nb holder - newest - next 0 stuck: failed in a\nc holder - newest - next 0 stuck: failed in a",
		},
		{
			"of several stuck releases the newest is named", chain, "FPP CPP",
			"a holder - newest 0 next -\nb holder - newest - next 1 stuck: cancelled in a\nc holder - newest - next 1 stuck: cancelled in a",
		},
		{
			"a release in progress names a later failure upstream", chain, "FPI",
			"a holder - newest 0 next -\nb holder - newest - next 0 stuck: failed in a\nc holder 0 newest 0 next - cut: failed in a",
		},
		{
			"an overtaken release is skipped", chain, "FPP SIP",
			"a holder - newest 1 next -\nb holder 1 newest 1 next - skips [0]\nc holder - newest - next 1",
		},
		{
			"in a diamond a failed side blocks the channel below, not the other side", diamond, "SFPP",
			"a holder - newest 0 next -\nb holder - newest 0 next -\nc holder - newest - next 0\nd holder - newest - next 0 stuck: failed in b",
		},
		{
			"a release never succeeds in a channel that was declared later", chain, "S-P PPP",
			"a holder - newest 0 next 1\nb holder - newest - next 1\nc holder - newest - next 1",
		},
		{
			"a cancelled release does not block", chain, "SCC PPP",
			"a holder - newest 0 next 1\nb holder - newest - next 1\nc holder - newest - next 1",
		},
		{
			"rolled back and skipped end a release as failed does", chain, "RPP SKP",
			"a holder - newest 1 next -\nb holder - newest - next 0 stuck: rolled back in a\nc holder - newest - next 1 stuck: skipped in b",
		},
		{"no releases", chain, "", "a holder - newest - next -\nb holder - newest - next -\nc holder - newest - next -"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var releases []phases
			for _, word := range strings.Fields(row.releases) {
				releases = append(releases, release(row.channels, word))
			}
			var got []string
			for _, slot := range Arrange(releases, row.channels, testFacts{}) {
				got = append(got, slot.String())
			}
			require.Equal(t, row.want, strings.Join(got, "\n"))
		})
	}
}

// There are 2^50 ways through this lattice; each channel is visited once.
func TestArrangeVisitsEveryChannelOnce(t *testing.T) {
	var channels []Channel
	r := phases{}
	for i := range 50 {
		for _, side := range []string{"l", "r"} {
			c := Channel{Name: fmt.Sprint(side, i)}
			if i > 0 {
				c.After = []string{fmt.Sprint("l", i-1), fmt.Sprint("r", i-1)}
			}
			channels, r[c.Name] = append(channels, c), Pending
		}
	}
	slots := Arrange([]phases{r}, channels, testFacts{}) // the test's own deadline tells if it does not end
	require.Equal(t, 0, slots[len(slots)-1].Next)
}

// fleet is a set of releases that move at random through a random DAG, as maestro decides.
type fleet struct {
	t        *rapid.T
	channels []Channel
	releases []phases
	entered  map[string][]int // by channel, in order of entering
}

func newFleet(t *rapid.T) *fleet {
	f := &fleet{t: t, entered: map[string][]int{}}
	for i := range rapid.IntRange(1, 6).Draw(t, "channels") {
		c := Channel{Name: fmt.Sprint("c", i)}
		for up := range i {
			if rapid.Bool().Draw(t, "after") {
				c.After = append(c.After, fmt.Sprint("c", up))
			}
		}
		f.channels = append(f.channels, c)
	}
	return f
}

func (f *fleet) open() {
	p := phases{}
	for _, c := range f.channels {
		p[c.Name] = Pending
	}
	f.releases = append(f.releases, p)
}

// move lets one release enter or end in one channel, and reports whether any could.
func (f *fleet) move(outcomes ...Phase) bool {
	var moves []func()
	for _, slot := range Arrange(f.releases, f.channels, testFacts{}) {
		f.judge(slot)
		for _, i := range slot.Skips {
			f.releases[i.Release][slot.Channel] = Skipped
		}
		switch {
		case slot.Holder != None:
			moves = append(moves, func() {
				f.releases[slot.Holder][slot.Channel] = rapid.SampledFrom(outcomes).Draw(f.t, "outcome")
			})
		case slot.Next != None && f.ready(slot):
			moves = append(moves, func() {
				f.releases[slot.Next][slot.Channel] = InProgress
				f.entered[slot.Channel] = append(f.entered[slot.Channel], slot.Next)
			})
		}
	}
	if len(moves) == 0 {
		return false
	}
	moves[rapid.IntRange(0, len(moves)-1).Draw(f.t, "move")]()
	return true
}

func (f *fleet) ready(t Slot) bool {
	for _, c := range f.channels {
		for _, up := range c.After {
			if c.Name == t.Channel && f.releases[t.Next][up] != Succeeded {
				return false
			}
		}
	}
	return true
}

// judge checks the invariants of a slot.
func (f *fleet) judge(slot Slot) {
	holders := 0
	for i, r := range f.releases {
		if r[slot.Channel] == InProgress {
			holders++
		}
		if r[slot.Channel] != Pending && i == slot.Next {
			f.t.Fatalf("next is not pending: %s", slot)
		}
	}
	if holders > 1 {
		f.t.Fatalf("two releases in progress in %s", slot.Channel)
	}
	if order := f.entered[slot.Channel]; len(order) > 1 && order[len(order)-2] >= order[len(order)-1] {
		f.t.Fatalf("overtaken in %s: %v", slot.Channel, order)
	}
}

// No release overtakes another or is lost, and the last release arrives in all channels where it did not itself fail, independent of the
// earlier ones.
func TestFleet_B7_B10(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t)
		for range rapid.IntRange(1, 6).Draw(t, "releases") {
			f.open()
			for range rapid.IntRange(0, 6).Draw(t, "moves") {
				f.move(Succeeded, Succeeded, Failed, RolledBack, Cancelled)
			}
		}
		f.open() // the fix
		fix := f.releases[len(f.releases)-1]
		for moves := 0; f.move(Succeeded); moves++ {
			if moves > 2*len(f.releases)*len(f.channels) {
				t.Fatal("the fleet does not settle")
			}
		}
		for _, c := range f.channels {
			if fix[c.Name] != Succeeded {
				t.Fatalf("the fix is %s in %s: %v", fix[c.Name], c.Name, f.releases)
			}
			for i, r := range f.releases {
				if !r[c.Name].Over() {
					t.Fatalf("release %d remains %s in %s", i, r[c.Name], c.Name)
				}
			}
		}
	})
}

func TestPhaseOver_B6(t *testing.T) {
	over := map[Phase]bool{Pending: false, InProgress: false, Succeeded: true, Failed: true, RolledBack: true, Skipped: true, Cancelled: true}
	entered := map[Phase]bool{InProgress: true, Succeeded: true, Failed: true, RolledBack: true}
	for _, p := range letters {
		require.Equal(t, over[p], p.Over(), p)
		require.Equal(t, entered[p], p.Entered(), p)
	}
}

// A release that is held permanently is passed over, and named only if no other can come.
func TestRefusedReleasesArePassedOver(t *testing.T) {
	old := testFacts{"-a", "-a"}
	channels := []Channel{{Name: "a"}}
	one := []phases{release(channels, "R"), release(channels, "P")}
	require.Equal(t, "a holder - newest 0 next 1", Arrange(one, channels, old)[0].String())
	two := append(one, release(channels, "P"), release(channels, "P"))
	require.Equal(t, "a holder - newest 0 next 2", Arrange(two, channels, old)[0].String())
}

// The next release by strategies: the words give each release's strategy, and by channel whether it is refused there (-a), lacks an
// approval (?a), has some (+a), or was let pass an external condition (!a).
func TestStrategies_B3_B4_B10(t *testing.T) {
	one := []Channel{{Name: "a"}}
	chain := []Channel{{Name: "a"}, {Name: "b", After: []string{"a"}}}
	kept := []Channel{{Name: "a", Kept: true}, {Name: "b", After: []string{"a"}}, {Name: "c", After: []string{"a"}}}
	for _, row := range []struct {
		name     string
		channels []Channel
		releases string
		says     testFacts
		want     string
	}{
		{"latest: the newest", one, "P P P", testFacts{"latest", "latest", "latest"}, "a holder - newest - next 2 before [0 1]"},
		{"latest: the newest of those that soaked upstream", one, "P P P", testFacts{"latest", "latest", "latest.a"}, "a holder - newest - next 1 before [0]"},
		{"latest: of those still soaking the oldest, which is done first", one, "P P", testFacts{"latest.a", "latest.a"}, "a holder - newest - next 0"},
		{"train: the oldest", one, "P P P", testFacts{"train", "train", "train"}, "a holder - newest - next 0"},
		{"immediate: as latest", one, "P P", testFacts{"immediate", "immediate"}, "a holder - newest - next 1 before [0]"},
		{"no strategy: the oldest, regardless of approvals", one, "P P", testFacts{"", "+a"}, "a holder - newest - next 0"},
		{"latest never overtakes the release in progress", one, "I P P", testFacts{"latest", "latest", "latest"}, "a holder 0 newest 0 next 2 before [1]"},
		{"immediate: the release in progress yields", one, "I P P", testFacts{"latest", "latest", "immediate"}, "a holder 0 newest 0 next 2 yields before [1]"},
		{"latest: so does one whose apply failed, until the next attempt", one, "I P P", testFacts{"latestra", "latest", "latest"}, "a holder 0 newest 0 next 2 yields before [1]"},
		{"train: not that one either", one, "I P", testFacts{"trainra", "train+a"}, "a holder 0 newest 0 next 1"},
		{"latest: nor while the next one waits for people", one, "I P", testFacts{"latestra", "latest?a"}, "a holder 0 newest 0 next 1 people"},
		{"but not while it waits for people", one, "I P", testFacts{"immediate", "immediate?a"}, "a holder 0 newest 0 next 1 people"},
		{"nor if it was refused", one, "I P", testFacts{"immediate", "immediate-a"}, "a holder 0 newest 0 next 1"},
		{"a release that enters skips older ones, even if it fails later", one, "P P F P", testFacts{"latest", "train", "latest", "latest"}, "a holder - newest 2 next 3 skips [0 1]"},
		{"of the approved ones the newest", one, "P P P", testFacts{"latest", "latest", "latest?a"}, "a holder - newest - next 1 before [0]"},
		{"none may pass: the newest is named", one, "P P", testFacts{"latest?a", "latest?a"}, "a holder - newest - next 1 people before [0]"},
		{"a bypass of an external condition is next", one, "P P", testFacts{"latest!a", "latest"}, "a holder - newest - next 0"},
		{"the newest of them", one, "P P P", testFacts{"latest!a", "latest!a", "latest"}, "a holder - newest - next 1 before [0]"},
		{"a refused release is no candidate", one, "P P P", testFacts{"latest", "latest", "latest-a"}, "a holder - newest - next 1 before [0]"},
		{"nor is a stuck one", chain, "SP FP", testFacts{"latest", "latest"}, "a holder - newest 1 next -\nb holder - newest - next 0"},
		{"an arrived release before one that has not arrived", chain, "SP PP", testFacts{"latest", "latest"}, "a holder - newest 0 next 1\nb holder - newest - next 0"},
		{"of those not arrived the oldest", chain, "IP PP PP", testFacts{"latest", "latest", "latest"}, "a holder 0 newest 0 next 2 before [1]\nb holder - newest - next 0"},
		{"train: approved, it passes those that wait", one, "P P P", testFacts{"train?a", "train+a", "train+a"}, "a holder - newest - next 1"},
		{"train: not before it was approved by all", one, "P P", testFacts{"train?a", "train+a?a"}, "a holder - newest - next 0"},
		{"train: nor before it arrived", chain, "SP IP", testFacts{"train", "train+b"}, "a holder 1 newest 1 next -\nb holder - newest - next 0"},
		{"of both kinds the newest that passes", one, "P P P", testFacts{"train", "latest", "train"}, "a holder - newest - next 1"},
		{"else the train", one, "P P", testFacts{"train+a", "latest?a"}, "a holder - newest - next 0"},
		{"a rollback is ahead of all", one, "S P P", testFacts{"latest", "returning", "immediate"}, "a holder - newest 0 next 1"},
		{
			"kept until it is promoted into all later channels", kept, "SPP PPP",
			testFacts{"latest", "latest"},
			"a holder - newest 0 next 1 kept for 0 until b,c\nb holder - newest - next 0\nc holder - newest - next 0",
		},
		{
			"in progress or over counts as promoted", kept, "SIR PPP",
			testFacts{"latest", "latest"},
			"a holder - newest 0 next 1\nb holder 0 newest 0 next 1\nc holder - newest 0 next 1",
		},
		{
			"one that failed keeps nothing", kept, "FPP PPP",
			testFacts{"latest", "latest"},
			"a holder - newest 0 next 1\nb holder - newest - next 1\nc holder - newest - next 1",
		},
		{
			"nor one that was refused there", kept, "SPP PPP",
			testFacts{"latest-b-c", "latest"},
			"a holder - newest 0 next 1\nb holder - newest - next 1\nc holder - newest - next 1",
		},
		{
			"nor one that was refused on its way there",
			[]Channel{{Name: "a", Kept: true}, {Name: "b", After: []string{"a"}}, {Name: "c", After: []string{"a", "b"}}},
			"SPP PPP",
			testFacts{"latest-b", "latest"},
			"a holder - newest 0 next 1\nb holder - newest - next 1\nc holder - newest - next 0",
		},
		{
			"nor one whose next step there is permanently held",
			[]Channel{{Name: "a", Kept: true}, {Name: "x", After: []string{"a"}}, {Name: "b", After: []string{"a", "x"}}, {Name: "c", After: []string{"a", "b"}}},
			"S-IP PPPP",
			testFacts{"latest~c", "latest"},
			"a holder - newest 0 next 1\nx holder - newest - next 1\nb holder 0 newest 0 next 1 cut: is not released to x\nc holder - newest - next 0",
		},
		{
			"but one with no step left, which only has to soak",
			[]Channel{{Name: "a", Kept: true}, {Name: "x", After: []string{"a"}}, {Name: "b", After: []string{"a", "x"}}, {Name: "c", After: []string{"a", "b"}}},
			"S-IP PPPP",
			testFacts{"latest", "latest"},
			"a holder - newest 0 next 1 kept for 0 until c\nx holder - newest - next 1\nb holder 0 newest 0 next 1 cut: is not released to x\nc holder - newest - next 0",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			var releases []phases
			for _, word := range strings.Fields(row.releases) {
				releases = append(releases, release(row.channels, word))
			}
			var got []string
			for _, slot := range Arrange(releases, row.channels, row.says) {
				got = append(got, slot.String())
			}
			require.Equal(t, row.want, strings.Join(got, "\n"))
		})
	}
}

// A reopened release is not skipped for a newer one that was rolled back, but for one that is the current one or will enter.
func TestReopened_B3(t *testing.T) {
	channels := []Channel{{Name: "a"}}
	reopened := phases{"a": Pending, "a reopened": Pending}
	all := testFacts{"latest", "latest", "latest", "latest"}
	slot := func(words ...string) string {
		releases := []phases{release(channels, "S"), reopened}
		for _, word := range words {
			releases = append(releases, release(channels, word))
		}
		return Arrange(releases, channels, all)[0].String()
	}
	require.Equal(t, "a holder - newest 2 next 1", slot("R"))
	require.Equal(t, "a holder - newest 2 next 3 before [1]", slot("R", "P"))
	require.Equal(t, "a holder - newest 2 next - skips [1]", slot("S"))
	require.Equal(t, "a holder 2 newest 2 next - skips [1]", slot("I"))
}

// A release of another track passes the one in progress if it may, and is next before those that wait for that one. None passes a release
// that yields to a newer one of its track, or that cannot continue; all that may pass a release that is set aside.
func TestPassing_B5(t *testing.T) {
	releaseOf := func(track string, phase Phase, more ...string) phases {
		p := phases{"line": Phase(track), "b": phase, "a": Succeeded}
		for _, m := range more {
			p[m] = "yes"
		}
		return p
	}
	version, next := releaseOf("", InProgress), releaseOf("", Pending)
	cut := phases{"a": RolledBack, "b": InProgress}
	flags, size := releaseOf("flags", Pending), releaseOf("size", Pending)
	for _, row := range []struct {
		name     string
		releases []phases
		says     testFacts
		want     string
	}{
		{"it may not", []phases{version, flags}, testFacts{"latest", "latest"}, "next 1, in progress 0, aside -1"},
		{"it may", []phases{version, flags}, testFacts{"latest", "latest >b"}, "passes 1, in progress 0, aside -1"},
		{"before a release of the same line as the holder", []phases{version, next, flags}, testFacts{"latest", "latest", "latest >b"}, "passes 2, in progress 0, aside -1"},
		{"after a release that the holder yields to", []phases{version, next, flags}, testFacts{"latest", "immediate", "latest >b"}, "next 1, in progress 0, aside -1"},
		{"if it may not pass, the line of the holder is next", []phases{version, next, flags}, testFacts{"latest", "latest", "latest"}, "next 1, in progress 0, aside -1"},
		{"a stuck holder yields only to its own line", []phases{cut, next, flags}, testFacts{"latest", "latest", "latest >b"}, "next 1, in progress 0, aside -1"},
		{"none passes a release that itself passes", []phases{releaseOf("", InProgress, "b aside"), releaseOf("flags", InProgress), size}, testFacts{"latest", "latest", "latest >b"}, "next 2, in progress 1, aside 0"},
		{"a release aside waits for its fix", []phases{releaseOf("", InProgress, "b aside"), releaseOf("flags", Failed), next, flags}, testFacts{"latest", "latest", "immediate", "latest >b"}, "passes 3, in progress -1, aside 0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			slot := Arrange(row.releases, []Channel{{Name: "a"}, {Name: "b", After: []string{"a"}}}, row.says)[1]
			verb := "next"
			if slot.Passes {
				verb = "passes"
			}
			require.Equal(t, row.want, fmt.Sprintf("%s %d, in progress %d, aside %d", verb, slot.Next, slot.Holder, slot.Aside))
		})
	}
}
