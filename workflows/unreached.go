package workflows

import (
	"fmt"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
)

// unreached are services that could not be notified of what all others know, and the time of the next attempt. They delay no other service,
// and no newer notice.
type unreached struct {
	protocol.Unreached
	Since string    `json:"since,omitempty"` // the oldest manifest known to the services that are too many to list
	Tries int       `json:"tries,omitempty"`
	Next  time.Time `json:"next,omitzero"`
}

// maxNotifyDelay is the longest delay between two attempts to notify services.
const maxNotifyDelay = 5 * time.Minute

// after is the state after an attempt that reached all services except the missed ones.
func (u unreached) after(missed protocol.Unreached, now time.Time) unreached {
	if len(missed.Services) == 0 {
		return unreached{}
	}
	wait := min(15*time.Second<<min(u.Tries, 10), maxNotifyDelay)
	return unreached{Unreached: missed, Tries: u.Tries + 1, Next: now.Add(wait)}
}

// due reports whether it is time for the next attempt.
func (u unreached) due(now time.Time) bool { return len(u.Services) > 0 && !now.Before(u.Next) }

// text lists the services that were not notified, for display.
func (u unreached) text(what string) string {
	const named = 5
	names := strings.Join(u.Services[:min(len(u.Services), named)], ", ")
	if more := len(u.Services) - named + u.More; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return clip(fmt.Sprintf("%s: %s; this is retried, and delays no other service (%s)", what, names, u.Why))
}
