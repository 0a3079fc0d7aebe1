package entities

import (
	"fmt"
	"strings"
)

// This file holds what stories say of ways back (testdata/back*.txtar).

// back carries out the commands about ways back; false: there is no such command.
func (s *story) back(verb string, arg []string) (string, bool) {
	rest := func(from int) string { return strings.Join(arg[min(from, len(arg)):], " ") }
	opt := func(i int) string {
		if i < len(arg) && arg[i] != "-" {
			return arg[i]
		}
		return ""
	}
	switch verb {
	case "rollback": // rollback VERSION CHANNEL why…; - is none
		return refusal(s.s.RollbackRelease(opt(0), opt(1), bob, rest(2), s.now)), true
	case "pin": // pin VERSION CHANNEL why…
		return refusal(s.s.PinChannel(opt(0), Pin{Channel: opt(1), Who: bob, Reason: rest(2), At: s.now})), true
	case "unpin":
		return refusal(s.s.UnpinChannel(opt(0), bob, rest(1), s.now)), true
	case "hold": // hold SCOPE why…
		s.s.Hold(arg[0], &Pause{By: "carol", Reason: rest(1), At: s.now}, s.now)
	case "let-go":
		s.s.Hold(arg[0], nil, s.now)
	case "undeclare": // the service is gone from the configuration
		s.next.Channels, s.next.Runtimes = nil, nil
		s.publish()
	case "delete":
		return refusal(s.s.TakeDown(bob, rest(0), s.now)), true
	case "removed": // removed CHANNEL ok, or what went wrong
		op, text := s.removes[arg[0]], rest(1)
		delete(s.removes, arg[0])
		if text == "ok" {
			text = ""
		}
		s.s.Removed(op, text, s.now)
	case "gone":
		return fmt.Sprintln(s.s.Gone()), true
	case "audit": // since the last time
		return s.audit(), true
	default:
		return "", false
	}
	return "", true
}

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
		fmt.Fprintln(&b, strings.Join(strings.Fields(fmt.Sprintf("%d %s %s %s %s %s: %s", l.N, l.At.Format("15:04:05"), who, l.Kind, l.Channel, l.Version, l.Text)), " ")+parenthesised(l.Reason))
	}
	return b.String()
}
