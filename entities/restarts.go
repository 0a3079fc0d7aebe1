package entities

import "time"

// restartsWindow is how long after a restart the next one counts together with it.
const restartsWindow = time.Hour

// Restarts counts the last restarts of a workflow from its checkpoint, each within an hour of the one before.
type Restarts struct {
	Count int       `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	Why   string    `json:"why"` // of the last one: "its workflow was terminated by alice@laptop: cleaning up"
}

// Add returns the restarts with one more. More than an hour after the last one the count begins again.
func (r Restarts) Add(why string, at time.Time) Restarts {
	if r.Count == 0 || at.Sub(r.Last) > restartsWindow {
		r = Restarts{First: at}
	}
	r.Count++
	r.Last, r.Why = at, why
	return r
}

// Repeated reports several restarts, the last of them within the hour before now. A zero now is the time of the last one.
func (r *Restarts) Repeated(now time.Time) bool {
	return r != nil && r.Count > 1 && (now.IsZero() || now.Sub(r.Last) <= restartsWindow)
}
