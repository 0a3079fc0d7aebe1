package entities

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// This file holds what stories say of gates (testdata/gates*.txtar).

// gateWork is what the gates of a world have under way.
type gateWork struct {
	preflights map[string]PreflightOp
	extensions map[string]ExtensionOp // by name
	leases     map[string]LeaseOp
}

// note takes note of the work that a decision starts.
func (g *gateWork) note(d *Decision) {
	if g.preflights == nil {
		*g = gateWork{map[string]PreflightOp{}, map[string]ExtensionOp{}, map[string]LeaseOp{}}
	}
	for _, op := range d.Preflights {
		g.preflights[op.Channel] = op
	}
	for _, op := range d.Extensions {
		g.extensions[op.Extension.Name] = op
	}
	for _, op := range d.Leases {
		if op.GiveBack {
			delete(g.leases, op.Channel)
		} else {
			g.leases[op.Channel] = op
		}
	}
}

// someone reads "alice", or "carol/sre" for one of a group; "carol!/sre" has proven it.
func someone(word string) Who {
	name, groups, _ := strings.Cut(word, "/")
	name, proven := strings.CutSuffix(name, "!")
	who := Who{Name: name, Proven: proven}
	if groups != "" {
		who.Groups = strings.Split(groups, ",")
	}
	return who
}

// gate carries out the commands about gates; false: there is no such command.
func (s *story) gate(verb string, arg []string) (string, bool) {
	rest := func(from int) string { return strings.Join(arg[min(from, len(arg)):], " ") }
	switch verb {
	case "approve", "reject": // approve VERSION TOPIC WHO comment…
		return refusal(s.s.Approve(arg[0], Approval{Topic: arg[1], Who: someone(arg[2]), At: s.now, Reject: verb == "reject", Comment: rest(3)})), true
	case "bypass": // bypass VERSION CHANNEL CONDITION WHO reason…
		return refusal(s.s.AddBypass(arg[0], Bypass{Channel: arg[1], Condition: arg[2], Who: someone(arg[3]), Reason: rest(4), At: s.now})), true
	case "authorize": // authorize VERB WHO CHANNELS…
		return refusal("yes", s.s.Authorize(arg[0], arg[2:], someone(arg[1]))), true
	case "grant": // grant VERBS CHANNELS TO
		g := Grant{Verbs: strings.Split(arg[0], ","), To: strings.Split(arg[2], ",")}
		if arg[1] != "*" {
			g.Channels = strings.Split(arg[1], ",")
		}
		s.next.Grants = append(s.next.Grants, g)
	case "runtime": // runtime NAME max=1 approve=yes
		s.runtime(arg[0], arg[1:])
	case "identity":
		s.next.Identity = &Identity{Issuer: "https://id.shop.dev", Required: arg}
	case "check": // check CHANNEL ID VERDICT reason…
		return s.judgeCheck(arg[0], arg[1], Verdict(arg[2]), rest(3)), true
	case "checks":
		return s.asked(), true
	case "preflight": // preflight CHANNEL ID=VERDICT…; the others pass
		return s.preflight(arg[0], arg[1:]), true
	case "extension-ended": // extension-ended NAME ok, or what went wrong
		op, text := s.extensions[arg[0]], rest(1)
		delete(s.extensions, arg[0])
		if text == "ok" {
			text = ""
		}
		s.s.ExtensionEnded(op, text, "the end of its output", "log-1", s.now)
	case "lease-granted":
		return fmt.Sprintln(s.s.LeaseGranted(s.leases[arg[0]].ID, s.now)), true
	case "why":
		return s.why(arg[0]), true
	default:
		return "", false
	}
	return "", true
}

func (s *story) runtime(name string, settings []string) {
	rt := s.next.Runtimes[name]
	for _, setting := range settings {
		key, value, _ := strings.Cut(setting, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "max":
			rt.MaxApplies = n
		case "approve":
			rt.ApproveApplies = value == "yes"
		case "remove":
			rt.CanRemove = value == "yes"
		}
	}
	s.next.Runtimes[name] = rt
}

func (s *story) judgeCheck(channel, id string, verdict Verdict, reason string) string {
	for _, l := range s.s.CheckLooks() {
		if l.Channel == channel && l.reading() == id {
			r := CheckReading{Verdict: verdict, Reason: reason, At: s.now}
			if verdict == Error {
				r.Next = s.now.Add(l.Interval)
			}
			s.s.CheckSeen(l, r, s.now)
			return ""
		}
	}
	return "nobody asks\n"
}

func (s *story) asked() string {
	var b strings.Builder
	for _, l := range s.s.CheckLooks() {
		about := "release " + l.Release
		if l.Release == "" {
			about = "a repair"
		}
		fmt.Fprintf(&b, "%s of %s about %s %s\n", l.ID, l.Channel, about, parenthesised(l.Known))
	}
	return strings.ReplaceAll(b.String(), " \n", "\n")
}

func (s *story) preflight(channel string, verdicts []string) string {
	op, ok := s.preflights[channel]
	if !ok {
		return "nobody asks\n"
	}
	delete(s.preflights, channel)
	readings := map[string]CheckReading{}
	for _, l := range op.Checks {
		readings[l.Key()] = CheckReading{Verdict: Pass, At: s.now}
	}
	for _, v := range verdicts {
		id, verdict, _ := strings.Cut(v, "=")
		if key := channel + "/" + id; verdict == "" {
			delete(readings, key)
		} else {
			readings[key] = CheckReading{Verdict: Verdict(verdict), Reason: "as of now", At: s.now}
		}
	}
	s.s.PreflightDone(op, readings, s.now)
	return ""
}

// why prints the judgements of a channel with all that explain shows of them.
func (s *story) why(channel string) string {
	var b strings.Builder
	at := func(what string, t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return ", " + what + " " + t.Format("15:04:05")
	}
	for _, c := range s.decision.Channels {
		for _, g := range c.Gates {
			if c.Channel != channel {
				continue
			}
			fmt.Fprintf(&b, "%s %s%s%s%s\n", g.Verdict, g.ID, because(g.Reason), at("since", g.Since), at("next", g.Next))
			if g.Unblock != "" {
				fmt.Fprintf(&b, "    %s\n", g.Unblock)
			}
		}
	}
	return b.String()
}

// declareGate reads a setting of a channel that is about gates; false: it is not.
func (s *story) declareGate(c *ChannelSpec, key, value string) bool {
	parts := strings.Split(value, ":")
	switch key {
	case "approval": // approval=go-live:2:group=sre,alice
		need := 1
		if len(parts) > 1 {
			need, _ = strconv.Atoi(parts[1])
		}
		cond := Condition{ID: "approval/" + parts[0], Kind: ManualApproval, Topic: parts[0], MinApprovers: need}
		if len(parts) > 2 {
			cond.Approvers = strings.Split(strings.ReplaceAll(parts[2], "=", ":"), ",")
		}
		c.Conditions = append(c.Conditions, cond)
	case "check": // check=error-rate:preApproval,postDeployment+2m+15m,deployment!,repairs
		check := Check{ID: parts[0], Kind: CheckAlways, Definition: "d1", Interval: 30 * time.Second}
		for _, at := range strings.Split(parts[1], ",") {
			if at == "repairs" {
				check.Repairs = true
				continue
			}
			words := strings.Split(at, "+")
			stage, fails := strings.CutSuffix(words[0], "!")
			a := CheckAt{Stage: Stage(stage), Fails: fails}
			if len(words) == 3 {
				a.Delay, a.For = s.duration(words[1]), s.duration(words[2])
			}
			check.At = append(check.At, a)
		}
		c.Checks = append(c.Checks, check)
	case "extension": // extension=migrate:postApproval:after=backup:key=shared
		e := Extension{
			Name: parts[0], Stage: Stage(parts[1]), Definition: "e1", Key: c.Name,
			Timeout: time.Minute, MaxAttempts: 2, RetryBackoff: 10 * time.Second, RetryMax: time.Minute,
		}
		for _, p := range parts[2:] {
			if k, v, _ := strings.Cut(p, "="); k == "after" {
				e.After = strings.Split(v, ",")
			} else {
				e.Key = v
			}
		}
		c.Extensions = append(c.Extensions, e)
	case "unchecked":
		c.Checks, c.Extensions = nil, nil
	default:
		return false
	}
	return true
}

func (s *story) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	require.NoError(s.t, err)
	return d
}
