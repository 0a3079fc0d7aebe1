package workflows

import (
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

func viewChannel(s *entities.State, c entities.ChannelDecision) protocol.ChannelStatus {
	i := s.Instances[c.Channel]
	if i == nil {
		i = &entities.Instance{}
	}
	spec, _ := s.Spec.Channel(c.Channel)
	out := protocol.ChannelStatus{
		Name: c.Channel, Runtime: spec.Runtime, Status: string(c.Status), Current: entities.ShownVersions(c.Current.Active),
		Since: i.Since, Conditions: []protocol.ConditionStatus{}, Objects: append([]entities.Object{}, i.Reading.Objects...),
		Omitted: i.Reading.Omitted, ObservedAt: i.LookedAt,
	}
	out.Checks, out.Rollback = viewChecks(i), i.Rollback
	if i.Target != nil && !i.Converged {
		out.StableSince = i.StableSince
	}
	if i.Lease != nil && i.Lease.Granted.IsZero() {
		out.LeaseAsked = i.Lease.Asked
	}
	if c.Status == entities.StatusConverging || c.Status == entities.StatusDegraded {
		out.NextChange = c.Due // elsewhere what is due is bookkeeping, and moves nothing
	}
	if i.Target != nil {
		out.Target, out.Desired = i.Target.FullVersion, i.Target.FullVersion
	}
	if c.Next != nil {
		out.Desired = c.Next.FullVersion
	}
	for n, reason := range c.Reasons {
		r := protocol.Reason{Text: reason, Since: reasonSince(c.Status, i)}
		if n == 0 {
			r.Unblock = unblock(s, c, i)
		}
		out.Reasons = append(out.Reasons, r)
	}
	for _, g := range c.Gates {
		out.Conditions = append(out.Conditions, protocol.ConditionStatus{
			ID: g.ID, Verdict: string(g.Verdict), Reason: g.Reason, Since: g.Since, NextCheck: g.Next, Unblock: g.Unblock,
		})
	}
	return out
}

func reasonSince(status entities.Status, i *entities.Instance) time.Time {
	if status == entities.StatusUnknown && !i.ErrSince.IsZero() {
		return i.ErrSince
	}
	return i.Since
}

// unblock is the command that would change a status which does not end by itself.
func unblock(s *entities.State, c entities.ChannelDecision, i *entities.Instance) string {
	name := s.Application + "/" + s.Service
	switch c.Status {
	case entities.StatusPaused:
		if p, ok := s.PauseOf(c.Channel); ok {
			return s.ResumeWith(p)
		}
	case entities.StatusFailed, entities.StatusFailedRollback:
		return fmt.Sprintf("release a fix, or: converge retry %s %s", name, i.Target.FullVersion)
	case entities.StatusRolledBack:
		if i.Rollback != nil {
			return fmt.Sprintf("release a fix, or: converge retry %s %s", name, i.Rollback.From)
		}
	case entities.StatusManualApproval:
		if gates := approvable(c); len(gates) > 0 {
			return gates[0].Unblock
		}
	}
	return ""
}

// viewChecks are the newest readings of checks that are asked now.
func viewChecks(i *entities.Instance) []protocol.CheckStatus {
	var out []protocol.CheckStatus
	for _, id := range entities.SortedKeys(i.Checks) {
		c := i.Checks[id]
		out = append(out, protocol.CheckStatus{
			ID: id, Verdict: string(c.Verdict), Reason: c.Reason, Since: c.Since, At: c.At, Next: c.CheckReading.Next, Errors: c.Errors,
		})
	}
	return out
}
