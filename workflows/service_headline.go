package workflows

import (
	"fmt"
	"strings"

	"github.com/converge-engine/converge/entities"
)

// headline is the one line that says what a service does or waits for.
func headline(s *entities.State, d *entities.Decision, worst entities.Status) string {
	newest := s.Newest()
	switch {
	case worst == entities.StatusDeleted:
		return "taken down; its objects are removed"
	case s.Deletion != nil:
		return fmt.Sprintf("is being taken down by %s", s.Deletion.Who.Name)
	case len(s.Spec.Channels) == 0:
		return "no longer declared; its objects were left in place"
	case newest == nil:
		return "nothing released yet"
	case worst == entities.StatusConverged:
		return newest.FullVersion + " converged in every channel"
	}
	for _, c := range d.Channels {
		if i := s.Instances[c.Channel]; c.Status == worst && i != nil {
			return channelHeadline(s, c, i)
		}
	}
	return string(worst)
}

// channelHeadline says what is the matter with the channel that is worst.
func channelHeadline(s *entities.State, c entities.ChannelDecision, i *entities.Instance) string {
	switch c.Status {
	case entities.StatusManualApproval:
		if gates := approvable(c); len(gates) > 0 {
			return approvalHeadline(c, i, gates)
		}
	case entities.StatusPaused:
		return pausedHeadline(c)
	case entities.StatusFailed:
		return failedHeadline(c, i)
	case entities.StatusRollingBack, entities.StatusRolledBack, entities.StatusFailedRollback:
		if i.Rollback != nil && i.Target != nil {
			return rollbackHeadline(c, i)
		}
	}
	version := s.Newest().FullVersion
	if i.Target != nil {
		version = i.Target.FullVersion
	}
	if c.Next != nil && (c.Status == entities.StatusPreconditions || c.Status == entities.StatusBlocked || c.Status == entities.StatusManualApproval) {
		version = c.Next.FullVersion
	}
	line := fmt.Sprintf("%s %s in %s", version, c.Status, c.Channel)
	if len(c.Reasons) > 0 {
		line += ": " + c.Reasons[0]
	}
	return line
}

// approvalHeadline: "v8 waits for approval `go-live` (1 of 2)". How many are there is what the reason
// begins with.
func approvalHeadline(c entities.ChannelDecision, i *entities.Instance, gates []entities.Judgement) string {
	version := ""
	if c.Next != nil {
		version = c.Next.FullVersion
	} else if i.Target != nil {
		version = i.Target.FullVersion
	}
	var names []string
	for _, g := range gates {
		name := "`" + strings.TrimPrefix(g.ID, approvalID) + "`"
		if count, _, ok := strings.Cut(g.Reason, ","); ok && strings.Contains(count, " of ") {
			name += " (" + progressOf(count) + ")"
		}
		names = append(names, name)
	}
	return fmt.Sprintf("%s waits for approval %s", version, strings.Join(names, ", "))
}

// progressOf is "1 of 2" of "1 of 2 (alice".
func progressOf(count string) string {
	short, _, _ := strings.Cut(count, " (")
	return short
}

func rollbackHeadline(c entities.ChannelDecision, i *entities.Instance) string {
	b, why := i.Rollback, ""
	if b.Reason != "" {
		why = ": " + b.Reason
	}
	switch c.Status {
	case entities.StatusFailedRollback:
		return fmt.Sprintf("the way back from %s to %s FAILED in %s: %s", b.From, i.Target.FullVersion, c.Channel, i.Failure)
	case entities.StatusRollingBack:
		return fmt.Sprintf("going back from %s to %s in %s%s", b.From, i.Target.FullVersion, c.Channel, why)
	}
	return fmt.Sprintf("%s was rolled back to %s in %s%s", b.From, i.Target.FullVersion, c.Channel, why)
}

// pausedHeadline says who holds a channel and what waits for it.
func pausedHeadline(c entities.ChannelDecision) string {
	line := c.Channel + " is " + strings.Join(c.Reasons, "; ")
	if c.Next != nil {
		line += "; " + c.Next.FullVersion + " waits"
	}
	return line
}

func failedHeadline(c entities.ChannelDecision, i *entities.Instance) string {
	return fmt.Sprintf("%s FAILED in %s: %s", i.Target.FullVersion, c.Channel, i.Failure)
}
