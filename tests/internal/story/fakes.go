package story

import (
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/fakeruntime"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// fakes scripts the fake runtime, or asks it, at one channel of the line's service:
//
//	fake CHANNEL fails N TEXT        the next N applies fail; worth another attempt
//	fake CHANNEL ends N TEXT         the next N applies fail for good
//	fake CHANNEL break VERSION TEXT  that version never becomes healthy
//	fake CHANNEL slow N              later applies show after so many readings; -1: never
//	fake CHANNEL hang, go on         applies wait, and go on
//	fake CHANNEL drift, sick TEXT    somebody changes it by hand; it falls ill
//	fake CHANNEL blind N             the next N readings fail; -1: all, 0: none
//	fake CHANNEL runs VERSION        until that runs there; - is nothing
//	fake CHANNEL moves VERSION       until that was applied there and does not show yet
//	fake CHANNEL never VERSION       that was never applied there
//	fake CHANNEL removed             until it was taken away
func (p *Player) fakes(l line) {
	p.T.Helper()
	channel, rest, _ := strings.Cut(l.rest, " ")
	verb, rest, _ := strings.Cut(rest, " ")
	instance := p.Fake.At(p.App, l.service, channel)
	do, known := scripts[verb]
	switch {
	case known:
		word, text, _ := strings.Cut(rest, " ")
		times, err := strconv.Atoi(word)
		if err != nil {
			times = fakeruntime.Always
		}
		do(instance, times, word, text)
	case verb == "hang":
		p.gates[l.service+channel] = instance.HangApplies()
	case verb == "go":
		p.gates[l.service+channel]()
	case verb == "runs" || verb == "removed":
		want := strings.Trim(rest, "-")
		temporaltest.WaitFor(p.T, patience, func() (bool, string) {
			return instance.Version() == want && (verb == "runs" || instance.Removals() > 0), p.reason("have %q", instance.Version())
		})
	case verb == "moves":
		temporaltest.WaitFor(p.T, patience, func() (bool, string) {
			return instance.NextVersion() == rest, p.reason("have %q on its way", instance.NextVersion())
		})
	case verb == "never":
		for _, a := range p.Fake.Applies() {
			require.False(p.T, a.Instance == p.App+"/"+l.service+"/"+channel && a.Version == rest, p.at)
		}
	default:
		require.Fail(p.T, "no such line", p.at)
	}
}

// scripts get a number, or fakeruntime.Always when the first word is none; the first word; and what follows it.
var scripts = map[string]func(p *fakeruntime.ScriptedInstance, times int, word, text string){
	"fails": func(p *fakeruntime.ScriptedInstance, times int, _, text string) { p.FailApplies(times, text) },
	"ends": func(p *fakeruntime.ScriptedInstance, times int, _, text string) {
		p.FailAppliesPermanently(times, text)
	},
	"break": func(p *fakeruntime.ScriptedInstance, _ int, version, text string) { p.Break(version, text) },
	"slow": func(p *fakeruntime.ScriptedInstance, times int, _, _ string) {
		if times < 0 {
			times = 1 << 30
		}
		p.SettleAfter(times)
	},
	"drift": func(p *fakeruntime.ScriptedInstance, _ int, _, _ string) { p.SetDrifted(true) },
	"sick":  func(p *fakeruntime.ScriptedInstance, _ int, word, text string) { p.SetFailed(word + " " + text) },
	"blind": func(p *fakeruntime.ScriptedInstance, times int, _, _ string) { p.FailReadings(times, "FETCH_FAILED") },
}
