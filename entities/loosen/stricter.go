package loosen

import (
	"cmp"
	"maps"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/order"
)

// UnderRules returns the spec of a pinned incarnation under the rules of the newest one (D15, G2): its payloads, channels and instances
// are those of the pinned one. Who may do what, and how callers prove it, is as in the newest. Each gate is at least as strict as in
// either: if neither definition of a protection is known to be as strict as the other, both hold. rules is the number of the newest.
func UnderRules(pinned, newest *entities.Spec, rules int64, of Definitions) *entities.Spec {
	newest = newest.WithChannelNames(entities.RenamedChannels(newest, pinned))
	out := *pinned
	out.RulesOf = rules
	out.Grants, out.Identity, out.Notifications = newest.Grants, newest.Identity, newest.Notifications
	out.Baseline, out.Board = cmp.Or(newest.Baseline, pinned.Baseline), newest.Board
	out.GatedRollback = pinned.GatedRollback || newest.GatedRollback
	out.NoRollbackBelow = higherVersion(pinned.NoRollbackBelow, newest.NoRollbackBelow)
	out.Maestro.HoldUntil = cmp.Or(newest.Maestro.HoldUntil, pinned.Maestro.HoldUntil)
	if len(newest.Others) > 0 {
		out.Others = maps.Clone(newest.Others)
		for _, name := range entities.SortedKeys(pinned.Others) {
			out.Others[name] = pinned.Others[name]
		}
	}
	out.Runtimes = maps.Clone(pinned.Runtimes)
	for _, name := range entities.SortedKeys(out.Runtimes) {
		if r, now := out.Runtimes[name], newest.Runtimes[name]; r != nil && now != nil {
			both := *r
			both.ApproveApplies = r.ApproveApplies || now.ApproveApplies
			both.MaxApplies = lowerLimit(r.MaxApplies, now.MaxApplies)
			out.Runtimes[name] = &both
		}
	}
	out.Channels = slices.Clone(pinned.Channels)
	for n := range out.Channels {
		if now, ok := newest.Channel(out.Channels[n].Name); ok {
			tighten(&out.Channels[n], &now, of)
		}
	}
	return &out
}

// higherVersion is the stricter of two lower limits for rollbacks; "" is none. Of two versions that cannot be compared it is the second.
func higherVersion(pinned, newest string) string {
	if order, _, ok := order.CompareVersions(pinned, newest); newest == "" || pinned != "" && ok && order > 0 {
		return pinned
	}
	return newest
}

// lowerLimit is the stricter of two limits; 0 is none.
func lowerLimit(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// tighten makes a channel at least as strict as the same channel of the newest incarnation.
func tighten(c, newest *entities.ChannelSpec, of Definitions) {
	rollout, selectedBy := c.Rollout, c.Selection()
	if newest.Rollout != nil { // rollout policies have no order
		rollout, selectedBy = newest.Rollout, newest.Selection()
	}
	reportOnly := c.Report == "" && newest.Report != ""
	c.NoRollback = c.NoRollback && newest.NoRollback
	c.Conditions, c.Checks = stricterConditions(c.Conditions, newest.Conditions), stricterChecks(c.Checks, newest.Checks, of)
	if selectedBy != nil {
		c.Checks = append(c.Checks, *selectedBy)
	}
	if rollout != nil {
		c.SetRollout(*rollout)
	}
	if reportOnly {
		c.SetReportOnly()
	}
}

// stricterConditions are all conditions of both, each once. Those of rollout policies are left out.
func stricterConditions(pinned, newest []entities.Condition) []entities.Condition {
	out := slices.DeleteFunc(slices.Clone(newest), func(c entities.Condition) bool { return c.Kind.IsMarker() })
	for _, p := range pinned {
		at := slices.IndexFunc(out, func(n entities.Condition) bool { return n.ID == p.ID })
		switch {
		case p.Kind == entities.RolloutMarker || p.Kind == entities.SelectionMarker:
		case at < 0:
			out = append(out, p)
		default:
			out[at] = stricterCondition(p, out[at])
		}
	}
	return out
}

// stricterCondition is as strict as both. The newest decides who may approve, unless it allows any caller.
func stricterCondition(p, n entities.Condition) entities.Condition {
	n.MinApprovers, n.For = max(p.MinApprovers, n.MinApprovers), max(p.For, n.For)
	n.NotReleaser = p.NotReleaser || n.NotReleaser
	n.Channels = slices.Concat(n.Channels, difference(p.Channels, n.Channels))
	if len(n.Approvers) == 0 {
		n.Approvers = p.Approvers
	}
	switch {
	case p.Kind == entities.ChannelHealthy && n.Kind.OnChannels():
		n.Kind = entities.ChannelHealthy
	case n.Kind == entities.ChannelStable && n.For > 0:
		n.Kind = entities.ChannelStableFor
	}
	return n
}

// stricterChecks are the protections of the newest incarnation, and those of the pinned one that these do not cover. Selections are left
// out.
func stricterChecks(pinned, newest []entities.Check, of Definitions) []entities.Check {
	isSelection := func(c entities.Check) bool { return c.Kind == entities.CheckSelection }
	out := slices.DeleteFunc(slices.Clone(newest), isSelection)
	for _, p := range pinned {
		at := slices.IndexFunc(out, func(n entities.Check) bool { return n.ID == p.ID })
		switch {
		case isSelection(p), at >= 0 && len(stages(&p, &out[at])) == 0 && len(definition(&p, &out[at], of, nil)) == 0:
			continue
		case at >= 0:
			p.ID = freeID(p.ID, out, pinned)
		}
		out = append(out, p)
	}
	return out
}

// freeID adds the suffix to an id until no check has it: the pinned spec may be under the rules of a third one.
func freeID(id string, of ...[]entities.Check) string {
	all := slices.Concat(of...)
	for slices.ContainsFunc(all, func(c entities.Check) bool { return c.ID == id }) {
		id += entities.PinnedSuffix
	}
	return id
}
