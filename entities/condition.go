package entities

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/maestro"
)

// Verdict is what a condition says now.
type Verdict string

// The verdicts. Everything but PASS delays (fail closed): WAIT ends by itself or by a person, FAIL
// only when something that failed is mended, ERROR when the check itself works again.
const (
	Pass  Verdict = "PASS"
	Wait  Verdict = "WAIT"
	Fail  Verdict = "FAIL"
	Error Verdict = "ERROR"
)

// Judgement is the verdict on one condition, with its reason and, where known, when it may change.
type Judgement struct {
	ID      string
	Verdict Verdict
	Reason  string
	Since   time.Time
	Next    time.Time // when it may next change by itself
	Unblock string    // what a person can do
}

// unasked ends the reason of what is asked only once everything before it passes.
const unasked = " once what comes before passes"

// Later tells that a condition was not judged, because something before it does not pass: it says
// nothing of the release yet.
func (j Judgement) Later() bool { return j.Verdict == Wait && strings.HasSuffix(j.Reason, unasked) }

// line says what a judgement says by itself, with its id where the reason does not tell what is
// judged.
func (j Judgement) line() string {
	switch id, _, named := strings.Cut(j.ID, "/"); {
	case named && id != string(ChannelStable), !named && bypassable(j.ID) && j.ID != "reading" && j.ID != "upstream" && j.ID != "asked":
		return j.ID + because(j.Reason)
	}
	return j.Reason
}

// judge gives the verdict on one precondition of a release. The kinds are listed here; unknown
// ones (of a newer version) are an ERROR, never a PASS.
func judge(c Condition, r *Release) Judgement {
	switch c.Kind {
	case ChannelStable:
		return judgeChannelStable(c, r)
	default:
		return Judgement{ID: c.ID, Verdict: Error, Reason: fmt.Sprintf("condition kind %q is unknown to this version", c.Kind)}
	}
}

// judgeChannelStable passes when the release has succeeded in all named channels. A success is
// part of the release, so it is sticky for that release even if the channel moves on (A8).
func judgeChannelStable(c Condition, r *Release) Judgement {
	j := Judgement{ID: c.ID, Verdict: Pass}
	var reasons []string
	for _, name := range c.Channels {
		p := r.Phases[name]
		if p == nil {
			continue // the channel was added after the release: it has nothing to say about it
		}
		v, why := stableIn(name, p, r.FullVersion)
		if worse(v, j.Verdict) {
			j.Verdict, reasons = v, nil
		}
		if v == j.Verdict {
			reasons = append(reasons, why)
			if p.Since.After(j.Since) {
				j.Since = p.Since
			}
		}
	}
	sort.Strings(reasons)
	j.Reason = strings.Join(reasons, ", ")
	return j
}

func stableIn(channel string, p *PhaseState, version string) (Verdict, string) {
	switch p.Phase {
	case maestro.Succeeded:
		return Pass, fmt.Sprintf("%s stable at %s", channel, version)
	case maestro.Pending:
		return Wait, fmt.Sprintf("%s has not entered %s yet", version, channel)
	case maestro.InProgress:
		return Wait, fmt.Sprintf("%s is going out to %s", version, channel)
	default:
		return Fail, fmt.Sprintf("%s %s in %s", version, p.Phase, channel)
	}
}

// worse orders verdicts: PASS < WAIT < ERROR < FAIL.
func worse(a, b Verdict) bool {
	rank := func(v Verdict) int { return strings.Index("PASS WAIT ERROR FAIL", string(v)) }
	return rank(a) > rank(b)
}
