package entities

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// This file holds the baseline: what an installation requires of every application, independent of its configuration (G2). It adds
// protections and approvals to the channels, says who may bypass them, and sets limits. Names in an application cannot clash with it, since
// they contain no slash.

// baselinePrefix is the prefix of the ids of protections, and of the topics of approvals, of the baseline.
const baselinePrefix = "baseline/"

// BaselineID returns the id of a protection of the baseline, and the topic of an approval.
func BaselineID(name string) string { return baselinePrefix + name }

// IsBaselineID reports whether a gate belongs to the baseline.
func IsBaselineID(id string) bool {
	return strings.HasPrefix(strings.TrimPrefix(id, string(ManualApproval)+"/"), baselinePrefix)
}

// Baseline applies to every application. No application can relax or remove it.
type Baseline struct {
	Checks    []BaselineCheck    `json:"checks,omitempty"`
	Approvals []BaselineApproval `json:"approvals,omitempty"`
	// Bypass lists who may bypass these. If empty, the application decides.
	Bypass []string `json:"bypass,omitempty"`
	// Required lists verbs that every application refuses without proof.
	Required []string `json:"required,omitempty"`
	Limits   Limits   `json:"limits,omitzero"`
}

// BaselineCheck is a protection of every channel that it applies to. Its definition may contain ${{ application }}, ${{ service }} and
// ${{ channel }}, besides the version.
type BaselineCheck struct {
	Check
	How   CheckDefinition `json:"how"`
	Where ChannelSelector `json:"where,omitzero"`
}

// BaselineApproval is an approval of every channel that it applies to.
type BaselineApproval struct {
	Condition
	Where ChannelSelector `json:"where,omitzero"`
}

// ChannelSelector selects channels by patterns of names ("prod-*"). An empty list selects all. Each non-empty list must match.
type ChannelSelector struct {
	Applications []string `json:"applications,omitempty"`
	Channels     []string `json:"channels,omitempty"`
	Runtimes     []string `json:"runtimes,omitempty"`
}

// Limits limit an application when it is published. Zero is no limit.
type Limits struct {
	Services int `json:"services,omitempty"`
	Channels int `json:"channels,omitempty"`
	// RuntimesOf are the applications whose runtimes may be used. If empty: all.
	RuntimesOf []string `json:"runtimesOf,omitempty"`
}

// AppliedBaseline names the rules whose baseline is part of a spec, and who may bypass its gates.
type AppliedBaseline struct {
	Rules  int64    `json:"rules"`
	Bypass []string `json:"bypass,omitempty"`
}

// ApplyBaseline adds the baseline of the rules to a spec, and the address of the board, and replaces any that are in it. number is the number of the rules. on lists, by
// the first name of a channel, further runtimes of the channel that the spec does not name: releases still go there.
func (r *Rules) ApplyBaseline(number int64, spec *Spec, on map[string][]string) {
	spec.Baseline, spec.Board = nil, r.Board
	for n := range spec.Channels {
		c := &spec.Channels[n]
		c.Checks = slices.DeleteFunc(slices.Clone(c.Checks), func(k Check) bool { return IsBaselineID(k.ID) })
		c.Conditions = slices.DeleteFunc(slices.Clone(c.Conditions), func(k Condition) bool { return IsBaselineID(k.ID) || IsBaselineID(k.Topic) })
		if r.Baseline != nil {
			r.Baseline.addGates(spec.Application, c, on[cmp.Or(c.Key, c.Name)])
		}
	}
	if r.Baseline == nil {
		return
	}
	spec.Baseline = &AppliedBaseline{Rules: number, Bypass: r.Baseline.Bypass}
	spec.Identity = r.IdentityFor(spec.Identity)
}

// addGates adds the gates for a channel, before its own.
func (b *Baseline) addGates(application string, c *ChannelSpec, on []string) {
	var checks []Check
	for _, k := range b.Checks {
		if k.Where.matches(application, c, on) {
			k.Definition = DigestOf(k.How)
			checks = append(checks, k.Check)
		}
	}
	var conditions []Condition
	for _, a := range b.Approvals {
		if a.Where.matches(application, c, on) {
			conditions = append(conditions, a.Condition)
		}
	}
	c.Checks, c.Conditions = append(checks, c.Checks...), append(conditions, c.Conditions...)
	if len(c.Checks) == 0 {
		c.Checks = nil
	}
	if len(c.Conditions) == 0 {
		c.Conditions = nil
	}
}

func (w ChannelSelector) matches(application string, c *ChannelSpec, on []string) bool {
	onRuntime := slices.ContainsFunc(c.Instances, func(i InstanceSpec) bool { return matchesAny(w.Runtimes, i.Runtime) }) ||
		slices.ContainsFunc(on, func(runtime string) bool { return matchesAny(w.Runtimes, runtime) })
	return matchesAny(w.Applications, application) && matchesAny(w.Channels, c.Name) && (onRuntime || len(w.Runtimes) == 0)
}

// matchesAny reports whether a name matches one of the patterns, or there are none.
func matchesAny(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		matched, err := path.Match(p, name)
		return matched || err != nil // an invalid pattern matches everything
	})
}

// MaxBaseline limits the protections and approvals of a baseline: every service has them in every channel.
const MaxBaseline = 30

// Check rejects an invalid baseline. Nil is no baseline.
func (b *Baseline) Check() error {
	if b == nil {
		return nil
	}
	if n := len(b.Checks) + len(b.Approvals); n > MaxBaseline {
		return fmt.Errorf(`"baseline" has %d protections and approvals; at most %d`, n, MaxBaseline)
	}
	seen := map[string]bool{}
	for _, c := range b.Checks {
		if seen[c.ID] || !c.isComplete() {
			return fmt.Errorf(`"baseline": %q is not a valid protection of a baseline, or a duplicate`, c.ID)
		}
		seen[c.ID] = true
	}
	for _, a := range b.Approvals {
		if seen[a.ID] || !a.isComplete() {
			return fmt.Errorf(`"baseline": %q is not a valid approval of a baseline, or a duplicate`, a.ID)
		}
		seen[a.ID] = true
	}
	return nil
}

// isComplete reports whether a check is complete: it has a baseline name, a definition and stages, and is the same for all services.
func (c *BaselineCheck) isComplete() bool {
	return IsBaselineID(c.ID) && len(c.At) > 0 && c.Kind.Shared() && c.How.Kind == c.Kind && c.How.ID == c.ID && c.How.Application == ""
}

// isComplete reports whether an approval is complete: it has a baseline name, and requires an approver.
func (a *BaselineApproval) isComplete() bool {
	return IsBaselineID(a.Topic) && a.ID == string(ManualApproval)+"/"+a.Topic && a.Kind == ManualApproval && a.MinApprovers > 0
}

// Shared reports whether a kind of check can be the same for all services: it needs nothing of an application.
func (k CheckKind) Shared() bool { return slices.Contains(SharedKinds(), k) }

// SharedKinds returns the kinds of check that a baseline may have.
func SharedKinds() []CheckKind {
	return []CheckKind{CheckAllowedTimes, CheckDeniedVersions, CheckPrometheus, CheckAlertmanager, CheckHTTP, CheckCEL, CheckAlways}
}

// People returns the names of users and groups in a baseline. Nil has none.
func (b *Baseline) People() []string {
	if b == nil {
		return nil
	}
	all := slices.Clone(b.Bypass)
	for _, a := range b.Approvals {
		all = append(all, a.Approvers...)
	}
	return all
}

// namesPeople reports whether the baseline depends on the identity of callers: an approval names approvers, or a verb requires proof.
func (b *Baseline) namesPeople() bool {
	return len(b.Bypass)+len(b.Required) > 0 || slices.ContainsFunc(b.Approvals, func(a BaselineApproval) bool {
		return len(a.Approvers) > 0 || a.NotReleaser
	})
}

// IdentityFor returns how callers of an application prove their identity. If the baseline names people, it is the identity of the
// installation, so that no application can declare its own issuer to impersonate them.
func (r *Rules) IdentityFor(own *Identity) *Identity {
	if r.Identity == nil || r.Baseline == nil || !r.Baseline.namesPeople() {
		return own
	}
	imposed := *r.Identity
	imposed.Required, imposed.Bound, imposed.BoundExcept = slices.Clone(r.Baseline.Required), nil, nil
	if slices.ContainsFunc(r.Baseline.Approvals, func(a BaselineApproval) bool { return a.NotReleaser }) {
		imposed.Required = append(imposed.Required, "publish", "release")
	}
	if own != nil {
		imposed.Required, imposed.Bound, imposed.BoundExcept = append(imposed.Required, own.Required...), own.Bound, own.BoundExcept
	}
	slices.Sort(imposed.Required)
	imposed.Required = slices.Compact(imposed.Required)
	return &imposed
}

// CheckIdentity rejects an identity of an application that the installation would replace.
func (r *Rules) CheckIdentity(own *Identity) error {
	now := r.IdentityFor(own)
	if own == nil || own.Issuer == now.Issuer && own.Audience == now.Audience && own.UserClaim == now.UserClaim && own.GroupsClaim == now.GroupsClaim {
		return nil
	}
	return fmt.Errorf("the baseline of the installation names people by tokens of %s for %s; `identity` declares another issuer, audience or claims", now.Issuer, now.Audience)
}

// CheckBypass returns why a caller may not bypass a gate of the baseline, or nil.
func (s *Spec) CheckBypass(id string, who Who) error {
	if !s.RestrictsBypass(id) || who.IsOneOf(s.Baseline.Bypass) {
		return nil
	}
	return fmt.Errorf("%s belongs to the baseline of the installation, and %s may not bypass it; allowed: %s", id, cmp.Or(who.Name, "a caller without a name"), JoinNames(s.Baseline.Bypass)+who.UncountedGroups())
}

// RestrictsBypass reports whether the baseline restricts who may bypass a gate.
func (s *Spec) RestrictsBypass(id string) bool {
	return s != nil && s.Baseline != nil && len(s.Baseline.Bypass) > 0 && IsBaselineID(id)
}

// ScopeApplications is the prefix of the scope of a grant for applications: "application/shop-*", a pattern of names.
const ScopeApplications = "application/"

// FirstPublication returns the rules for the first publication of an application: how callers prove their identity, and the grants for it.
// Anyone may publish until a grant, or a requirement of proof, names the verb itself.
func (r *Rules) FirstPublication(application, verb string) (*Identity, []Grant) {
	var identity *Identity
	if r.Identity != nil {
		narrow := *r.Identity
		narrow.Required = slices.DeleteFunc(slices.Clone(narrow.Required), func(v string) bool { return v != verb })
		narrow.Bound = slices.DeleteFunc(slices.Clone(narrow.Bound), func(v string) bool { return v != verb })
		identity = &narrow
	}
	if !slices.ContainsFunc(r.Grants, func(g Grant) bool { return slices.Contains(g.Verbs, verb) }) {
		if !identity.RequiresProof(verb) {
			identity = nil
		}
		return identity, nil
	}
	grants := []Grant{{Verbs: []string{verb}}} // so that a grant is required
	for _, g := range r.Grants {
		if g.coversVerb(verb) && g.coversApplication(application) {
			grants = append(grants, Grant{Verbs: []string{verb}, To: g.To})
		}
	}
	return identity, grants
}

// coversApplication reports whether a grant of the installation is for an application, rather than for a runtime.
func (g Grant) coversApplication(application string) bool {
	return len(g.Channels) == 0 || slices.ContainsFunc(g.Channels, func(scope string) bool {
		pattern, applies := strings.CutPrefix(scope, ScopeApplications)
		matched, err := path.Match(pattern, application)
		return applies && matched && err == nil
	})
}

// RuntimesOf returns the applications whose runtimes others may use, if the installation restricts them.
func (r *Rules) RuntimesOf() []string {
	if r.Baseline == nil {
		return nil
	}
	return r.Baseline.Limits.RuntimesOf
}

// Check returns why an application may not have so many services and channels, or nil.
func (l Limits) Check(services, channels int) error {
	switch {
	case l.Services > 0 && services > l.Services:
		return fmt.Errorf("%d services; the installation allows an application at most %d", services, l.Services)
	case l.Channels > 0 && channels > l.Channels:
		return fmt.Errorf("%d release channels; the installation allows an application at most %d", channels, l.Channels)
	}
	return nil
}

// BaselineChange lists the ids of removed, changed and added parts of a baseline, each with a sign.
func BaselineChange(before, after *Baseline) string {
	old, now := before.items(), after.items()
	var out []string
	for _, id := range SortedKeys(old) {
		switch digest, still := now[id]; {
		case !still:
			out = append(out, "removed "+id)
		case digest != old[id]:
			out = append(out, "changed "+id)
		}
	}
	for _, id := range SortedKeys(now) {
		if _, known := old[id]; !known {
			out = append(out, "added "+id)
		}
	}
	return strings.Join(out, ", ")
}

// items returns the parts of a baseline by id, as digests.
func (b *Baseline) items() map[string]string {
	all := map[string]string{}
	if b == nil {
		return all
	}
	for _, c := range b.Checks {
		all[c.ID] = DigestOf(c)
	}
	for _, a := range b.Approvals {
		all[a.ID] = DigestOf(a)
	}
	if len(b.Bypass) > 0 {
		all["bypass"] = DigestOf(b.Bypass)
	}
	if len(b.Required) > 0 {
		all["required"] = DigestOf(b.Required)
	}
	if b.Limits.Services+b.Limits.Channels+len(b.Limits.RuntimesOf) > 0 {
		all["limits"] = DigestOf(b.Limits)
	}
	return all
}
