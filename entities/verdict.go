package entities

import "time"

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

// severity orders verdicts: PASS < WAIT < ERROR < FAIL. Zero is no verdict that this version knows.
func (v Verdict) severity() int {
	switch v {
	case Pass:
		return 1
	case Wait:
		return 2
	case Error:
		return 3
	case Fail:
		return 4
	}
	return 0
}

// Known tells whether this version knows the verdict.
func (v Verdict) Known() bool { return v.severity() > 0 }

// Worse tells whether a verdict is worse than another: PASS < WAIT < ERROR < FAIL.
func (v Verdict) Worse(than Verdict) bool { return v.severity() > than.severity() }

// CheckReading is what evaluating a check gave.
type CheckReading struct {
	Verdict Verdict   `json:"verdict"`
	Reason  string    `json:"reason,omitempty"`
	Next    time.Time `json:"next,omitzero"` // when it may next change by itself
	At      time.Time `json:"at"`
}

// Digest tells readings apart that matter: a new reason alone is no news, a new time is.
func (r CheckReading) Digest() string {
	if r.Verdict == "" {
		return ""
	}
	next := ""
	if !r.Next.IsZero() {
		next = r.Next.UTC().Format(time.RFC3339)
	}
	return string(r.Verdict) + " " + next
}

// Evaluation is one check to be evaluated, and what is known of it.
type Evaluation struct {
	Channel     string        `json:"channel"`
	ID          string        `json:"id"`
	Kind        CheckKind     `json:"kind"`
	Definition  string        `json:"definition"`
	Release     string        `json:"release,omitempty"` // id; "" for a repair
	FullVersion string        `json:"fullVersion"`       // asked about
	Payload     string        `json:"payload,omitempty"` // digest, of the version asked about
	Present     string        `json:"present,omitempty"` // digest of the payload that is there now
	Known       string        `json:"known,omitempty"`   // CheckReading.Digest of what is known; "": any reading is news
	Interval    time.Duration `json:"interval"`
}

// Key tells the evaluations of one service apart.
func (e Evaluation) Key() string { return e.Channel + "/" + e.ReadingKey() }

// ReadingKey tells the readings of one channel apart. A repair may ask about a check that a release asks
// about too.
func (e Evaluation) ReadingKey() string {
	if e.Release == "" {
		return RepairKey(e.ID)
	}
	return e.ID
}

// RepairKey is the key of the reading of a check that a repair asks about.
func RepairKey(check string) string { return "repair:" + check }
