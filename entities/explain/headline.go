package explain

import (
	"cmp"
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// headline is the first line that a user reads: the current version, and the problem if there is one.
func headline(s protocol.Status, c protocol.ChannelStatus, now time.Time) string {
	prefix := name(s) + " " + c.Name + " runs " + cmp.Or(c.Current, "nothing")
	when := since(c.Since, now)
	switch entities.Status(c.Status) {
	case entities.StatusConverged:
		if c.Target == "" {
			return prefix + "; nothing was released here yet."
		}
		if c.MissingConfig != "" {
			return joined(", ", prefix+"; "+c.MissingConfig, when) + "."
		}
		return joined(", ", prefix+", as desired", when) + "."
	case entities.StatusPreconditions, entities.StatusManualApproval:
		if reportOnly(c) {
			return joined(", ", prefix+"; "+c.Target+" is only reported here", when) + ":"
		}
		if r, known := releaseIn(s, c); known && r.Phases[c.Name] == inProgress {
			return prefix + "; " + c.Desired + " cannot continue yet:"
		}
		return prefix + "; " + cmp.Or(c.Desired, c.Target) + " may not enter yet:"
	case entities.StatusUnknown:
		text := fmt.Sprintf("%s %s: the running version is unknown (last seen %s, target %s)", name(s), c.Name, cmp.Or(c.Current, "nothing"), cmp.Or(c.Target, "none"))
		return joined(", ", text, when) + ":"
	default:
		return joined(", ", prefix+"; "+problemText(c), when) + ":"
	}
}

// reportOnly reports whether a report-only channel waits for nothing.
func reportOnly(c protocol.ChannelStatus) bool {
	return c.ReportOnly && (c.Desired == "" || c.Desired == c.Target) && len(unmet(c)) == 0
}

// problemText describes the state of a channel that is not as desired. An unknown status is shown unchanged.
func problemText(c protocol.ChannelStatus) string {
	switch entities.Status(c.Status) {
	case entities.StatusConverging:
		if !c.StableSince.IsZero() {
			return cmp.Or(c.Target, c.Desired) + " is deployed and being watched"
		}
		return "moving to " + cmp.Or(c.Target, c.Desired)
	case entities.StatusSuspended:
		return cmp.Or(c.Target, c.Desired) + " is paused at a rollout step and waits for a person"
	case entities.StatusBlocked:
		return cmp.Or(c.Desired, c.Target) + " is blocked by something that failed"
	case entities.StatusFailed:
		return cmp.Or(c.Target, c.Desired) + " failed here"
	case entities.StatusRollingBack, entities.StatusRolledBack, entities.StatusFailedRollback:
		return rollback(c)
	case entities.StatusDeleted:
		return "deleted"
	case entities.StatusCancelled:
		return c.Target + " was cancelled before it succeeded here"
	case entities.StatusPaused:
		return joined(" ", "paused", prefixed("at ", c.Target), prefixed("while ", pausedHealth(c)))
	case entities.StatusDegraded:
		return "it had converged and is now unhealthy or drifted"
	case entities.StatusProgressing:
		return "as declared, but not all objects are ready"
	case entities.StatusOrphaned:
		return "no longer declared, left in place"
	}
	return c.Status
}

// pausedHealth describes the health of a paused channel, or returns "" if it is healthy.
func pausedHealth(c protocol.ChannelStatus) string {
	if c.Status != string(entities.StatusPaused) || c.Health == converged || c.Health == c.Status {
		return ""
	}
	return c.Health
}

// rollback describes a rollback in progress, or its result.
func rollback(c protocol.ChannelStatus) string {
	from, blocked := "", "the failed version"
	if c.Rollback != nil {
		from, blocked = " from "+c.Rollback.From, c.Rollback.From
	}
	switch entities.Status(c.Status) {
	case entities.StatusRollingBack:
		return "rolling back" + from + " to " + c.Target
	case entities.StatusFailedRollback:
		return "the rollback" + from + " to " + c.Target + " failed"
	}
	return "rolled back" + from + ", and " + blocked + " is barred here"
}
