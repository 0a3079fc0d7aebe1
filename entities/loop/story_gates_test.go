package loop_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/selection"
)

// This file holds the story commands for gates (testdata/gates*.txtar).

// parseWho reads "alice", or "carol/sre" for a member of a group; "carol!/sre" is proven.
func parseWho(word string) entities.Who {
	name, groups, _ := strings.Cut(word, "/")
	name, proven := strings.CutSuffix(name, "!")
	who := entities.Who{Name: name, Proven: proven}
	if groups != "" {
		who.Groups = strings.Split(groups, ",")
	}
	return who
}

var gateCommands = map[string]command{
	// approve VERSION TOPIC WHO comment…
	"approve": func(s *story, arg []string) string { return s.approve(arg, false) },
	"reject":  func(s *story, arg []string) string { return s.approve(arg, true) },
	// bypass VERSION CHANNEL CONDITION WHO reason…
	"bypass": func(s *story, arg []string) string {
		b := entities.Bypass{Channel: arg[1], Condition: arg[2], Who: parseWho(arg[3]), Reason: wordsFrom(arg, 4), At: s.now}
		return answerText(perform(decide.Bypass(s.s, arg[0], b)))
	},
	// authorize VERB WHO CHANNELS…
	"authorize": func(s *story, arg []string) string {
		channels := arg[2:]
		if len(channels) == 0 {
			channels = s.s.Spec.ChannelNames()
		}
		return answerText("yes", entities.Authorize(s.s.Spec.Grants, arg[0], channels, parseWho(arg[1])))
	},
	// grant VERBS CHANNELS TO
	"grant": func(s *story, arg []string) string {
		g := entities.Grant{Verbs: strings.Split(arg[0], ","), To: strings.Split(arg[2], ",")}
		if arg[1] != "*" {
			g.Channels = strings.Split(arg[1], ",")
		}
		s.next.Grants = append(s.next.Grants, g)
		return ""
	},
	// runtime NAME max=1 approve=yes
	"runtime": func(s *story, arg []string) string { s.runtime(arg[0], arg[1:]); return "" },
	"identity": func(s *story, arg []string) string {
		s.next.Identity = &entities.Identity{Issuer: "https://id.shop.dev", Required: arg}
		return ""
	},
	// check CHANNEL ID VERDICT reason…; VERDICT@30m: it may change by itself in 30 minutes
	"check":  func(s *story, arg []string) string { return s.evaluate(arg[0], arg[1], arg[2], wordsFrom(arg, 3)) },
	"checks": func(s *story, _ []string) string { return s.checks() },
	// selects CHANNEL OUTPUT of the command of its policy
	"selects": func(s *story, arg []string) string { return s.selects(arg[0], wordsFrom(arg, 1)) },
	// candidates CHANNEL: the input of that command
	"candidates": func(s *story, arg []string) string { return s.candidates(arg[0]) },
	// preflight CHANNEL ID=VERDICT…; the others pass, an empty verdict is no answer
	"preflight": func(s *story, arg []string) string { return s.preflight(arg[0], arg[1:]) },
	// extension-ended NAME ok, or the error
	"extension-ended": func(s *story, arg []string) string {
		text := wordsFrom(arg, 1)
		if text == "ok" {
			text = ""
		}
		s.extensionEnded(arg[0], text)
		return ""
	},
	"lease-granted": func(s *story, arg []string) string {
		return fmt.Sprintln(s.s.LeaseGranted(s.leases[parseID(arg[0])].ID, s.now))
	},
	// follows VERSION CHANNELS…; - is the next in line, no channel is all
	"follows": func(s *story, arg []string) string {
		channels := arg[1:]
		if len(channels) == 0 {
			channels = s.s.Spec.ChannelNames()
		}
		return strings.Join(decide.Outlook(s.s, wordAt(arg, 0), channels, s.now), "\n") + "\n"
	},
	"why": func(s *story, arg []string) string { return s.why(arg[0]) },
}

func (s *story) approve(arg []string, reject bool) string {
	a := entities.Approval{Topic: arg[1], Who: parseWho(arg[2]), At: s.now, Reject: reject, Comment: wordsFrom(arg, 3)}
	return answerText(perform(s.s.Approve(arg[0], a)))
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

// evaluate answers a check as the activity does: an ERROR has no time of the next attempt, and a known result is no change.
func (s *story) evaluate(channel, id, verdict, reason string) string {
	verdict, next, timed := strings.Cut(verdict, "@")
	r := entities.CheckReading{Verdict: entities.Verdict(verdict), Reason: reason, At: s.now}
	if timed {
		r.Next = s.now.Add(s.duration(next))
	}
	for _, e := range s.decision.Evaluations(s.s) {
		if e.Channel != channel || e.ReadingKey() != id {
			continue
		}
		if !s.evaluated(e, r) {
			return "unchanged\n"
		}
		return ""
	}
	return "no evaluation is requested\n"
}

// selects answers for the command of a channel's policy, as the activity does.
func (s *story) selects(channel, printed string) string {
	for _, e := range s.decision.Evaluations(s.s) {
		if e.Channel != channel || e.Kind != entities.CheckSelection {
			continue
		}
		all, err := selection.Candidates(e)
		require.NoError(s.t, err)
		r, err := selection.ToReading(printed, all, s.now)
		if err != nil {
			r = entities.CheckReading{Verdict: entities.Error, Reason: err.Error(), At: s.now}
		}
		if !s.evaluated(e, r) {
			return "unchanged\n"
		}
		return ""
	}
	return "no evaluation is requested\n"
}

func (s *story) candidates(channel string) string {
	var b strings.Builder
	for _, e := range s.decision.Evaluations(s.s) {
		if e.Channel == channel && e.Kind == entities.CheckSelection {
			fmt.Fprintln(&b, "about release", e.Release)
			b.WriteString(strings.ReplaceAll(strings.Trim(e.Candidates, "[]"), "},{", "}\n{") + "\n")
		}
	}
	return b.String()
}

func (s *story) checks() string {
	var b strings.Builder
	for _, e := range s.decision.Evaluations(s.s) {
		about := "release " + e.Release
		if e.Release == "" {
			about = "a repair"
		}
		if e.Total > 0 {
			about += fmt.Sprintf(", %d of %d staying", e.Remaining, e.Total)
		}
		fmt.Fprintf(&b, "%s of %s about %s %s\n", e.ID, e.Channel, about, parenthesised(e.KnownDigest))
	}
	return strings.ReplaceAll(b.String(), " \n", "\n")
}

func (s *story) preflight(channel string, verdicts []string) string {
	op, ok := s.preflights[channel]
	if !ok {
		return "no evaluation is requested\n"
	}
	delete(s.preflights, channel)
	readings := map[string]entities.CheckReading{}
	for _, e := range op.Checks {
		readings[e.Key()] = entities.CheckReading{Verdict: entities.Pass, At: s.now}
	}
	for _, v := range verdicts {
		id, verdict, _ := strings.Cut(v, "=")
		if key := channel + "/" + id; verdict == "" {
			delete(readings, key)
		} else {
			readings[key] = entities.CheckReading{Verdict: entities.Verdict(verdict), Reason: "as of now", At: s.now}
		}
	}
	s.s.RecordPreflight(op, readings, s.now)
	return ""
}

// why prints the judgements of a channel with all details that explain shows.
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
			fmt.Fprintf(&b, "%s %s%s%s%s\n", g.Verdict, g.ID, entities.Because(g.Reason), at("since", g.Since), at("next", g.Next))
			if g.Unblock != "" {
				fmt.Fprintf(&b, "    %s\n", g.Unblock)
			}
		}
	}
	return b.String()
}

// declareGate reads a setting of a channel about gates; false: it is another setting.
func (s *story) declareGate(c *entities.ChannelSpec, key, value string) bool {
	parts := strings.Split(value, ":")
	switch key {
	case "approval":
		c.Conditions = append(c.Conditions, approval(parts))
	case "check":
		c.Checks = append(c.Checks, s.check(parts))
	case "extension":
		c.Extensions = append(c.Extensions, extension(c.Name, parts))
	case "unchecked":
		c.Checks, c.Extensions = nil, nil
	default:
		return false
	}
	return true
}

// approval reads `approval=go-live:2:group=sre,alice`.
func approval(parts []string) entities.Condition {
	need := 1
	if len(parts) > 1 {
		need, _ = strconv.Atoi(parts[1])
	}
	c := entities.Condition{ID: "approval/" + parts[0], Kind: entities.ManualApproval, Topic: parts[0], MinApprovers: need}
	if len(parts) > 2 {
		c.Approvers = strings.Split(strings.ReplaceAll(parts[2], "=", ":"), ",")
	}
	return c
}

// check reads `check=error-rate:preApproval,postDeployment+2m+15m,deployment!,repairs`, and the kind compare.
func (s *story) check(parts []string) entities.Check {
	c := entities.Check{ID: parts[0], Kind: entities.CheckAlways, Definition: "d1", Interval: 30 * time.Second}
	for _, at := range strings.Split(parts[1], ",") {
		switch at {
		case "repairs":
			c.Repairs = true
			continue
		case "compare":
			c.Kind = entities.CheckCompare
			continue
		case "capacity":
			c.Kind = entities.CheckCapacity
			continue
		}
		words := strings.Split(at, "+")
		stage, fails := strings.CutSuffix(words[0], "!")
		a := entities.CheckAt{Stage: entities.Stage(stage), Fails: fails}
		if len(words) == 3 {
			a.Delay, a.For = s.duration(words[1]), s.duration(words[2])
		}
		c.At = append(c.At, a)
	}
	return c
}

// extension reads `extension=migrate:postApproval:after=backup:key=shared:every=24h`.
func extension(channel string, parts []string) entities.Extension {
	e := entities.Extension{
		Name: parts[0], Stage: entities.Stage(parts[1]), Definition: "e1", Key: channel,
		Timeout: time.Minute, MaxAttempts: 2, RetryBackoff: 10 * time.Second, RetryMax: time.Minute,
	}
	for _, p := range parts[2:] {
		switch k, v, _ := strings.Cut(p, "="); k {
		case "after":
			e.After = strings.Split(v, ",")
		case "every":
			e.Every, _ = time.ParseDuration(v)
		default:
			e.Key = v
		}
	}
	return e
}
