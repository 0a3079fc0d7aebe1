package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/chaos/record"
)

// size is how much of everything a run has.
type size struct {
	releases, kills, freezes, cuts int
	services                       int
	signals                        int  // percent of releases that come by a signal; of pauses and resumptions half as many more
	attacks                        int  // messages of a hostile client
	long                           bool // some freezes and cuts outlast a heartbeat timeout
}

// step is something that a lane does: an act, or a wait. What it is about is drawn beforehand as far as it can be: "" as the
// version of a pin is what is the target then.
type step struct {
	record.Act
	after int  // wait until so many releases were made in all
	twice bool // send it again once it was answered
	waits bool // wait until nothing moves, no act
	clear bool // its version is the oldest release that waits for somebody's word on production, if any does
}

// String is a line of the plan.
func (s step) String() string {
	text := s.Act.String()
	if s.waits {
		text = "wait"
	}
	if s.Signal {
		text += " by a signal"
	}
	if s.twice {
		text += " twice"
	}
	if s.clear {
		text += " whatever waits"
	}
	if s.after > 0 {
		text += fmt.Sprintf(" after %d", s.after)
	}
	return text
}

// fault is one that will be.
type fault struct {
	after        int // releases
	kind, target string
	lasts        time.Duration
}

// plan is all that a run does, drawn from a seed alone: what of it meets what is a matter of time.
type plan struct {
	seed   uint64
	size   size
	lanes  map[string][]step // by service; that of the application is ""
	faults []fault
	// attacks are what a hostile client sends meanwhile.
	attacks []attack
}

// String is for comparing.
func (p plan) String() string {
	var b strings.Builder
	for _, lane := range p.names() {
		for _, s := range p.lanes[lane] {
			fmt.Fprintf(&b, "%s: %s\n", lane, s)
		}
	}
	for _, f := range p.faults {
		fmt.Fprintf(&b, "after %d: %s %s %s\n", f.after, f.kind, f.target, f.lasts)
	}
	for _, a := range p.attacks {
		fmt.Fprintln(&b, a)
	}
	return b.String()
}

// names of the lanes: the services', then that of the application.
func (p plan) names() []string { return append(serviceNames(p.size.services), "") }

func serviceNames(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("s%d", i+1)
	}
	return out
}

// draw draws a plan.
func draw(seed uint64, s size) plan {
	d := &drawing{rand: rand.New(rand.NewPCG(seed, 0)), signals: s.signals} //nolint:gosec // it has to be repeatable
	p := plan{seed: seed, size: s, lanes: map[string][]step{}}
	for n, service := range serviceNames(s.services) {
		releases := s.releases / s.services
		if n < s.releases%s.services {
			releases++
		}
		d.lane, d.service, d.unpin = nil, service, false
		for number := 1; number <= releases; number++ {
			d.release(number)
		}
		if d.unpin {
			d.act(protocol.Unpin, record.Production, "")
		}
		p.lanes[service] = d.lane
	}
	d.lane, d.service = nil, ""
	d.application(s)
	p.lanes[""] = d.lane
	p.faults = d.faults(s)
	p.attacks = drawAttacks(seed, s)
	return p
}

// drawing draws one lane after the other.
type drawing struct {
	rand    *rand.Rand
	signals int
	acts    int
	service string
	lane    []step
	unpin   bool // production is pinned
}

// percent is true so often.
func (d *drawing) percent(n int) bool { return d.rand.IntN(100) < n }

// choice is a word, each as often as the number before it says, of 100.
func (d *drawing) choice(of ...any) string {
	at := d.rand.IntN(100)
	for i := 0; i < len(of); i += 2 {
		if at -= of[i].(int); at < 0 {
			return of[i+1].(string)
		}
	}
	return ""
}

func (d *drawing) act(verb, channel, version string) *step {
	d.acts++
	d.lane = append(d.lane, step{Act: record.Act{N: d.acts, Verb: verb, Service: d.service, Channel: channel, Version: version}})
	return &d.lane[len(d.lane)-1]
}

func (d *drawing) wait() { d.lane = append(d.lane, step{waits: true}) }

// release draws a release and what people do about it. What is paused is resumed in the same round, a pin lasts into the
// next one.
func (d *drawing) release(number int) {
	flavour := d.choice(5, record.FailsInStaging, 8, record.FailsInProduction, 8, record.FailsAtFirst, 3, record.Long)
	if number == 1 {
		flavour = ""
	}
	version := fmt.Sprintf("v%d%s", number, flavour)
	unpin, paused := d.unpin, d.choice(5, record.Staging, 5, record.Production, 3, "all")
	channel := strings.TrimSuffix(paused, "all")
	if paused != "" {
		d.act(protocol.Pause, channel, "").Signal = d.percent(d.signals * 3 / 2)
	}
	s := d.act(protocol.Release, "", version)
	s.Signal, s.twice = d.percent(d.signals), d.percent(10)
	if d.percent(5) {
		d.act(protocol.Refresh, "", "")
	}
	verb := d.choice(62, protocol.Approve, 10, protocol.Bypass, 8, protocol.Reject, 8, protocol.Cancel)
	if verb != "" {
		d.act(verb, "", version).twice = d.percent(10)
	}
	if paused != "" {
		d.act(protocol.Resume, channel, "").Signal = d.percent(d.signals * 3 / 2)
	}
	if d.percent(80) {
		d.wait()
	}
	// Releases go one after the other, and one that nobody says a word on would hold up all that come later.
	d.act(d.choice(70, protocol.Approve, 15, protocol.Reject, 15, protocol.Cancel), "", "").clear = true
	if unpin {
		d.act(protocol.Unpin, record.Production, "").twice = d.percent(10)
		d.unpin = false
	}
	d.afterwards(version, flavour)
}

// afterwards draws what people do about a release that went out.
func (d *drawing) afterwards(version, flavour string) {
	failed := flavour == record.FailsInStaging || flavour == record.FailsInProduction
	switch {
	case failed && d.percent(50):
		d.act(protocol.Retry, "", version)
		d.wait()
	case d.percent(8):
		d.act(protocol.Rollback, d.choice(50, record.Production), "").twice = d.percent(20)
		d.wait()
	case !d.unpin && d.percent(8):
		d.act(protocol.Pin, record.Production, "").twice = d.percent(10)
		d.unpin = true
	}
}

// application draws publications, and pauses of everything and of the runtime.
func (d *drawing) application(s size) {
	every := max(2, min(12, s.releases/2))
	for after := every; after < s.releases; after += every {
		verb, resumes := protocol.Publish, false
		if d.percent(30) {
			verb, resumes = protocol.Pause, true
		}
		scope := ""
		if resumes && d.percent(50) {
			scope = "runtime"
		}
		d.act(verb, scope, "").after = after
		if resumes {
			d.act(protocol.Resume, scope, "").after = after + 2
		}
	}
}

// faults spreads faults over the releases.
func (d *drawing) faults(s size) []fault {
	var out []fault
	for range s.kills {
		target := d.choice(30, worker1, 30, worker2, 25, serverName, 15, storeName)
		out = append(out, fault{kind: record.Kill, target: target, lasts: d.between(0, 3000)})
	}
	for range s.freezes {
		target := d.choice(25, worker1, 25, worker2, 25, serverName, 25, storeName)
		out = append(out, fault{kind: record.Freeze, target: target, lasts: d.lasts(s.long)})
	}
	for range s.cuts {
		kind := d.choice(50, record.Stall, 50, record.Cut)
		out = append(out, fault{kind: kind, target: d.choice(35, worker1, 35, worker2, 30, storeName), lasts: d.lasts(s.long)})
	}
	d.rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	for n := range out {
		out[n].after = (n + 1) * s.releases / (len(out) + 1)
	}
	return out
}

func (d *drawing) lasts(long bool) time.Duration {
	if long && d.percent(30) {
		return d.between(11_000, 16_000)
	}
	return d.between(500, 4000)
}

func (d *drawing) between(low, high int) time.Duration {
	return time.Duration(low+d.rand.IntN(high-low)) * time.Millisecond
}
