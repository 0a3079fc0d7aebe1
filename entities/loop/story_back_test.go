package loop_test

import (
	"fmt"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// This file holds the story commands for rollbacks, pins, pauses of larger scopes, and removals (testdata/back*.txtar).

var backCommands = map[string]command{
	// rollback VERSION CHANNEL why…; - is none
	"rollback": func(s *story, arg []string) string {
		return refusal(s.rollBack(state.RollingBack{Version: at(arg, 0), Channel: at(arg, 1), Who: bob, Reason: rest(arg, 2)}))
	},
	"rollback-while-paused": func(s *story, arg []string) string {
		b := state.RollingBack{Version: at(arg, 0), Channel: at(arg, 1), WhilePaused: true, Who: bob, Reason: rest(arg, 2)}
		return refusal(s.rollBack(b))
	},
	// pin VERSION CHANNEL why…
	"pin": func(s *story, arg []string) string {
		return refusal(done(s.s.Pin(at(arg, 1), at(arg, 0), bob, rest(arg, 2), s.now)))
	},
	// unpin CHANNEL why…; the same for "unpin-stay"
	"unpin":      func(s *story, arg []string) string { return s.unpin(state.Unpinning{}, arg) },
	"unpin-stay": func(s *story, arg []string) string { return s.unpin(state.Unpinning{Stay: true}, arg) },
	// pause-scope SCOPE why…
	"pause-scope": func(s *story, arg []string) string {
		s.s.SetPause(arg[0], &entities.Pause{By: "carol", Reason: rest(arg, 1), At: s.now}, s.now)
		return ""
	},
	"drain":        func(s *story, arg []string) string { s.drain(entities.Drain{}, arg); return "" },
	"evict":        func(s *story, arg []string) string { s.drain(entities.Drain{Force: true}, arg); return "" }, // drain --force
	"turnup":       func(s *story, arg []string) string { s.drain(entities.Drain{Up: true}, arg); return "" },
	"resume-scope": func(s *story, arg []string) string { s.s.SetPause(arg[0], nil, s.now); return "" },
	// the service is removed from the configuration
	"undeclare": func(s *story, _ []string) string {
		s.next.Channels, s.next.Runtimes = nil, nil
		s.publish()
		return ""
	},
	// restart CHANNEL why…
	"restart": func(s *story, arg []string) string {
		return refusal(done(s.s.Restart(at(arg, 0), bob, rest(arg, 1), s.now)))
	},
	"delete": func(s *story, arg []string) string { return refusal(done(s.s.Delete(bob, rest(arg, 0), s.now))) },
	// take-down CHANNEL why…
	"take-down": func(s *story, arg []string) string {
		return refusal(done(s.s.TakeDown(arg[0], bob, rest(arg, 1), s.now)))
	},
	// removed INSTANCE ok, or the error
	"removed": func(s *story, arg []string) string {
		id, text := idOf(arg[0]), rest(arg, 1)
		op := s.removes[id]
		delete(s.removes, id)
		if text == "ok" {
			text = ""
		}
		s.s.Removed(op, text, s.now)
		return ""
	},
	"gone":  func(s *story, _ []string) string { return fmt.Sprintln(s.s.Gone()) },
	"audit": func(s *story, _ []string) string { return s.audit() },
}

func (s *story) unpin(u state.Unpinning, arg []string) string {
	u.Channel, u.Who, u.Reason = at(arg, 0), bob, rest(arg, 1)
	return refusal(done(s.s.Unpin(u, s.now)))
}

// audit prints the audit lines since the last time.
func (s *story) audit() string {
	var b strings.Builder
	for _, l := range s.s.Audit {
		if l.N <= s.audited {
			continue
		}
		s.audited = l.N
		who := "converge"
		if l.Who != nil {
			who = l.Who.Name
		}
		line := fmt.Sprintf("%d %s %s %s %s %s: %s", l.N, l.At.Format("15:04:05"), who, l.Kind, l.Channel, l.Version, l.Text)
		fmt.Fprintln(&b, strings.Join(strings.Fields(line), " ")+parenthesised(l.Reason))
	}
	return b.String()
}

// drain reports a drain to the service: drain RUNTIME go, or what it waits for.
func (s *story) drain(d entities.Drain, arg []string) {
	turn := entities.Turn{Service: "service/shop/web", Go: at(arg, 1) == "go"}
	if !turn.Go {
		turn.Waits = rest(arg, 1)
	}
	d.Turns = []entities.Turn{turn}
	p := entities.Pause{By: "carol", Reason: "new nodes", At: s.now, Drain: &d}
	s.s.SetPause(entities.ScopeRuntime+arg[0], p.For(turn.Service), s.now)
}
