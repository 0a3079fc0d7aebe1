package workflows

import (
	"fmt"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
)

// unreached are services that could not be told what all others know, and when they are told again. They hold up nobody
// else, and nothing newer.
type unreached struct {
	protocol.Unreached
	Since string    `json:"since,omitempty"` // the manifest that those know at least who are too many to be named
	Tries int       `json:"tries,omitempty"`
	Next  time.Time `json:"next,omitzero"`
}

// slowestTelling is the longest pause between two tries to tell services that could not be told.
const slowestTelling = 5 * time.Minute

// after is what is left to be told once more, after a try that reached all but some.
func (u unreached) after(missed protocol.Unreached, now time.Time) unreached {
	if len(missed.Services) == 0 {
		return unreached{}
	}
	wait := min(15*time.Second<<min(u.Tries, 10), slowestTelling)
	return unreached{Unreached: missed, Tries: u.Tries + 1, Next: now.Add(wait)}
}

// due: it is time to try again.
func (u unreached) due(now time.Time) bool { return len(u.Services) > 0 && !now.Before(u.Next) }

// text says who was not told, for people.
func (u unreached) text(what string) string {
	const named = 5
	names := strings.Join(u.Services[:min(len(u.Services), named)], ", ")
	if more := len(u.Services) - named + u.More; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return clip(fmt.Sprintf("%s: %s; this is tried again, and held up no other (%s)", what, names, u.Why))
}
