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
		return answerText(s.rollBack(state.RollbackRequest{Version: wordAt(arg, 0), Channel: wordAt(arg, 1), Who: bob, Reason: wordsFrom(arg, 2)}))
	},
	"rollback-while-paused": func(s *story, arg []string) string {
		b := state.RollbackRequest{Version: wordAt(arg, 0), Channel: wordAt(arg, 1), WhilePaused: true, Who: bob, Reason: wordsFrom(arg, 2)}
		return answerText(s.rollBack(b))
	},
	// pin VERSION CHANNEL why…
	"pin": func(s *story, arg []string) string {
		return answerText(perform(s.s.Pin(wordAt(arg, 1), wordAt(arg, 0), bob, wordsFrom(arg, 2), s.now)))
	},
	// unpin CHANNEL why…; the same for "unpin-stay"
	"unpin":      func(s *story, arg []string) string { return s.unpin(state.UnpinRequest{}, arg) },
	"unpin-stay": func(s *story, arg []string) string { return s.unpin(state.UnpinRequest{Stay: true}, arg) },
	// pause-scope SCOPE why…
	"pause-scope": func(s *story, arg []string) string {
		s.s.SetPause(arg[0], &entities.Pause{By: "carol", Reason: wordsFrom(arg, 1), At: s.now}, s.now)
		return ""
	},
	"drain":        func(s *story, arg []string) string { s.drain(entities.Drain{}, arg); return "" },
	"evict":        func(s *story, arg []string) string { s.drain(entities.Drain{Force: true}, arg); return "" }, // drain --force
	"restore":      func(s *story, arg []string) string { s.drain(entities.Drain{Restoring: true}, arg); return "" },
	"resume-scope": func(s *story, arg []string) string { s.s.SetPause(arg[0], nil, s.now); return "" },
	// the service is removed from the configuration
	"undeclare": func(s *story, _ []string) string {
		s.next.Channels, s.next.Runtimes = nil, nil
		s.publish()
		return ""
	},
	// restart CHANNEL why…
	"restart": func(s *story, arg []string) string {
		return answerText(perform(s.s.Restart(wordAt(arg, 0), bob, wordsFrom(arg, 1), s.now)))
	},
	"delete": func(s *story, arg []string) string {
		return answerText(perform(s.s.Delete(bob, wordsFrom(arg, 0), s.now)))
	},
	// take-down CHANNEL why…
	"take-down": func(s *story, arg []string) string {
		return answerText(perform(s.s.TakeDown(arg[0], bob, wordsFrom(arg, 1), s.now)))
	},
	// removed INSTANCE ok, or the error
	"removed": func(s *story, arg []string) string {
		id, text := parseID(arg[0]), wordsFrom(arg, 1)
		op := s.removes[id]
		delete(s.removes, id)
		if text == "ok" {
			text = ""
		}
		s.s.RecordRemoval(op, text, s.now)
		return ""
	},
	"gone":  func(s *story, _ []string) string { return fmt.Sprintln(s.s.FullyRemoved()) },
	"audit": func(s *story, _ []string) string { return s.audit() },
}

func (s *story) unpin(u state.UnpinRequest, arg []string) string {
	u.Channel, u.Who, u.Reason = wordAt(arg, 0), bob, wordsFrom(arg, 1)
	return answerText(perform(s.s.Unpin(u, s.now)))
}

// audit prints the audit lines since the last time.
func (s *story) audit() string {
	var b strings.Builder
	for _, l := range s.s.Audit {
		if l.N <= s.auditSeen {
			continue
		}
		s.auditSeen = l.N
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
	permit := entities.DrainPermit{Service: "service/shop/web", Allowed: wordAt(arg, 1) == "go"}
	if !permit.Allowed {
		permit.WaitsFor = wordsFrom(arg, 1)
	}
	d.Permits = []entities.DrainPermit{permit}
	p := entities.Pause{By: "carol", Reason: "new nodes", At: s.now, Drain: &d}
	s.s.SetPause(entities.ScopeRuntime+arg[0], p.ForService(permit.Service), s.now)
}
