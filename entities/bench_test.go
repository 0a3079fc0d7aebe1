package entities

import (
	"fmt"
	"testing"
)

// fleetOf is that many idle services, converged in three channels each.
func fleetOf(b *testing.B, services int) []*world {
	b.Helper()
	fleet := make([]*world, services)
	for i := range fleet {
		w := newWorld()
		w.channel("staging", func(*ChannelSpec) {})
		w.channel("canary", func(c *ChannelSpec) { c.Conditions = []Condition{stableAfter("staging")} })
		w.channel("production", func(c *ChannelSpec) { c.Conditions = []Condition{stableAfter("canary")} })
		w.publish()
		for v := range 3 {
			if _, err := w.release(fmt.Sprint("v", v), ""); err != nil {
				b.Fatal(err)
			}
		}
		w.obey()
		fleet[i] = w
	}
	return fleet
}

// The goal: the pure decision over 30,000 instances in under 50 ms (DESIGN section 9).
func BenchmarkDecide30000(b *testing.B) {
	fleet := fleetOf(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		for _, w := range fleet {
			if d := Decide(w.s, w.now, Mode{}); d.Channels[2].Status != StatusConverged {
				b.Fatal(d)
			}
		}
	}
}

// The same with a release under way in each service.
func BenchmarkDecide30000Moving(b *testing.B) {
	fleet := fleetOf(b, 10_000)
	for _, w := range fleet {
		if _, err := w.release("v9", ""); err != nil {
			b.Fatal(err)
		}
		w.decide(Mode{})
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, w := range fleet {
			if d := Decide(w.s, w.now, Mode{}); d.Channels[0].Status != StatusConverging {
				b.Fatal(d)
			}
		}
	}
}

// wide is one service with a channel and 499 behind it.
func wide(b *testing.B) *world {
	b.Helper()
	w := newWorld()
	w.channel("c000", func(*ChannelSpec) {})
	for i := 1; i < 500; i++ {
		w.channel(fmt.Sprintf("c%03d", i), func(c *ChannelSpec) { c.Conditions = []Condition{stableAfter("c000")} })
	}
	w.publish()
	if _, err := w.release("v1", ""); err != nil {
		b.Fatal(err)
	}
	w.obey()
	return w
}

func BenchmarkDecide500Channels(b *testing.B) {
	w := wide(b)
	b.ReportAllocs()
	for b.Loop() {
		Decide(w.s, w.now, Mode{})
	}
}

// A release from its opening until it has converged in all 500 channels.
func BenchmarkRelease500Channels(b *testing.B) {
	w := wide(b)
	version := 1
	b.ReportAllocs()
	for b.Loop() {
		version++
		if _, err := w.release(fmt.Sprint("v", version), ""); err != nil {
			b.Fatal(err)
		}
		w.obey()
	}
}

// The worst order: each channel behind the one before it, and a release that is already there, so
// that every pass lets it into one more.
func BenchmarkUnchangedThrough500InARow(b *testing.B) {
	w := newWorld()
	for i := range 500 {
		w.channel(fmt.Sprintf("c%03d", i), func(c *ChannelSpec) {
			if i > 0 {
				c.Conditions = []Condition{stableAfter(fmt.Sprintf("c%03d", i-1))}
			}
		})
	}
	w.publish()
	for range 2 {
		if _, err := w.release("v1", ""); err != nil {
			b.Fatal(err)
		}
		w.obey()
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.release("v1", ""); err != nil {
			b.Fatal(err)
		}
		w.decide(Mode{})
	}
}
