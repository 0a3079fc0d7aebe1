package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file holds approvals: of a release, by topic (A14), and of every single apply if a runtime requires that (C10). An approval may be
// given before the release waits for it.

// ApplyTopic is the prefix of the topics of approvals of single applies: "apply/CHANNEL".
const ApplyTopic = "apply/"

// ApprovalCount is the progress of the approval of a release for a condition.
type ApprovalCount struct {
	Approvers []string           // distinct people who approved, in the order of their approvals
	Required  int                // at least 1
	Since     time.Time          // time of the last approval
	Rejected  *entities.Approval // a rejection is final
}

// Satisfied reports whether enough people approved and no person rejected.
func (t ApprovalCount) Satisfied() bool { return t.Rejected == nil && len(t.Approvers) >= t.Required }

// CountApprovals counts the distinct authorized people whose approvals are valid in a channel.
func (r *Release) CountApprovals(channel string, c entities.Condition) ApprovalCount {
	t := ApprovalCount{Required: max(c.MinApprovers, 1)}
	var counted []entities.Who
	for i := range r.Approvals {
		a := &r.Approvals[i]
		switch _, withdrawn := a.Withdrawn[channel]; {
		case a.Topic != c.Topic:
		case a.Reject:
			return ApprovalCount{Required: t.Required, Rejected: a, Since: a.At}
		case withdrawn:
		case r.mayApprove(c, a.Who) && !slices.ContainsFunc(counted, a.Who.Same):
			t.Approvers, counted = append(t.Approvers, a.Who.Name), append(counted, a.Who)
			if a.At.After(t.Since) {
				t.Since = a.At
			}
		}
	}
	return t
}

// ApprovalText formats the progress of an approval, "1 of 2 (alice), by any of group:sre except alice", with withdrawn approvals. If
// callers can prove their identity, an approver who did not is marked.
func (s *State) ApprovalText(r *Release, channel string, c entities.Condition) string {
	t := r.CountApprovals(channel, c)
	if t.Rejected != nil {
		return t.Rejected.Rejection()
	}
	text := fmt.Sprintf("%d of %d", len(t.Approvers), t.Required)
	if len(t.Approvers) > 0 {
		text += " (" + strings.Join(s.FormatApprovers(r, c.Topic, t.Approvers), ", ") + ")"
	}
	if !t.Satisfied() {
		text += r.eligibleApprovers(c, t.Approvers) + s.withdrawnText(r, channel, c.Topic, t.Approvers)
	}
	return text
}

// withdrawnText lists the approvals that are no longer valid in a channel, and why: "; withdrawn: alice (v2 failed in staging)".
func (s *State) withdrawnText(r *Release, channel, topic string, counted []string) string {
	var who []string
	why := ""
	for i := range r.Approvals {
		a := &r.Approvals[i]
		if reason, withdrawn := a.Withdrawn[channel]; withdrawn && a.Topic == topic && !slices.Contains(slices.Concat(who, counted), a.Who.Name) {
			who, why = append(who, a.Who.Name), reason
		}
	}
	if len(who) == 0 {
		return ""
	}
	return "; withdrawn: " + strings.Join(s.FormatApprovers(r, topic, who), ", ") + " (" + why + ")"
}

// FormatApprovers formats the names of approvers of a topic. If callers can prove their identity, an approver who did not is marked.
func (s *State) FormatApprovers(r *Release, topic string, who []string) []string {
	if s.Spec.Identity == nil {
		return who
	}
	shown := make([]string, len(who))
	for i, name := range who {
		shown[i] = name + " stated"
		for _, a := range r.Approvals {
			if a.Topic == topic && a.Who.Name == name && a.Who.Proven {
				shown[i] = name
			}
		}
	}
	return shown
}

func (r *Release) mayApprove(c entities.Condition, who entities.Who) bool {
	return (len(c.Approvers) == 0 || who.IsOneOf(c.Approvers)) && !(c.NotReleaser && who.Same(r.releaser()))
}

// releaser is the person who released it.
func (r *Release) releaser() entities.Who { return entities.Who{Name: r.By, Subject: r.Subject} }

// EligibleApprovers are the people who can still approve for a condition of a channel; nil: everybody can.
func (s *State) EligibleApprovers(r *Release, channel string, c entities.Condition) *entities.Eligible {
	have := r.CountApprovals(channel, c).Approvers
	if c.NotReleaser {
		have = append(have, r.By)
	}
	return s.eligible(channel, entities.Eligible{Named: c.Approvers, Except: have})
}

// EligibleForApplies are the people who can approve every apply in a channel; nil: everybody can.
func (s *State) EligibleForApplies(channel string) *entities.Eligible {
	return s.eligible(channel, entities.Eligible{})
}

// eligible adds the grants; nil: nothing restricts it.
func (s *State) eligible(channel string, e entities.Eligible) *entities.Eligible {
	e.Granted, e.None = entities.GrantedTo(s.Spec.Grants, "approve", channel)
	if len(e.Named)+len(e.Granted)+len(e.Except) == 0 && !e.None {
		return nil
	}
	return &e
}

// eligibleApprovers lists the people who can still approve, at the end of a text: ", by any of group:sre except alice (the releaser)". Of the
// people whom the condition names, it leaves out those who cannot; if none is left, it says so.
func (r *Release) eligibleApprovers(c entities.Condition, have []string) string {
	except, ownRelease := slices.Clone(have), ""
	if c.NotReleaser {
		except = append([]string{r.By + " (the releaser)"}, except...)
		if slices.Contains(c.Approvers, r.By) {
			ownRelease = " (" + r.By + " released it)"
		}
	}
	left := slices.DeleteFunc(slices.Clone(c.Approvers), func(name string) bool {
		return slices.Contains(have, name) || c.NotReleaser && name == r.By
	})
	isGroup := func(name string) bool { return strings.HasPrefix(name, entities.PrefixGroup) }
	switch {
	case len(c.Approvers) == 0:
		return ", by any caller" + exceptText(except)
	case slices.ContainsFunc(c.Approvers, isGroup):
		return ", by any of " + strings.Join(left, ", ") + exceptText(except)
	case len(left) == 0:
		return "; no one else may approve it" + ownRelease
	case len(left) < max(c.MinApprovers, 1)-len(have):
		return "; too few others may approve it: " + strings.Join(left, ", ") + ownRelease
	case len(left) == 1:
		return ", by " + left[0]
	}
	return ", by any of " + strings.Join(left, ", ")
}

func exceptText(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " except " + strings.Join(names, ", ")
}

// RestrictsApprovers reports whether a topic limits its approvers: a condition names the approvers, or requires more than one person.
func (s *State) RestrictsApprovers(topic string) bool {
	return slices.ContainsFunc(s.topicRequirements(topic), func(req topicRequirement) bool {
		c := req.condition
		return len(c.Approvers) > 0 || c.NotReleaser || c.MinApprovers > 1
	})
}

// RejectedIn reports whether a release was rejected for a topic that the channel requires. A release can be rejected before the channel
// requires the topic.
func (r *Release) RejectedIn(c *entities.ChannelSpec) bool {
	return slices.ContainsFunc(r.Approvals, func(a entities.Approval) bool {
		return a.Reject && slices.ContainsFunc(c.Conditions, func(cond entities.Condition) bool {
			return cond.Kind == entities.ManualApproval && cond.Topic == a.Topic && r.BypassOf(c.Name, cond.ID) == nil
		})
	})
}

// Approve records an approval or rejection of a release for a topic. A rejection (a.Reject) is final for that release in the channels of
// the topic that it has not entered.
func (s *State) Approve(version string, a entities.Approval) (Effect, error) {
	r, err := s.ToApprove(version, a)
	if err != nil {
		return nil, err
	}
	return s.approve(r, s.applyChannel(a.Topic), a)
}

// ToApprove returns the release of a version that an approval or rejection is for.
func (s *State) ToApprove(version string, a entities.Approval) (*Release, error) {
	channel := s.applyChannel(a.Topic)
	r, err := s.FindOpen(version, channel)
	if err != nil || a.Reject || strings.HasPrefix(version, entities.IDPrefix) {
		return r, err
	}
	for _, other := range s.openReleasesOf(r) {
		if _, err := s.approve(other, channel, a); err == nil {
			return other, nil
		}
	}
	return r, nil
}

// applyChannel is the channel whose every apply is approved by a topic; "": it is another topic.
func (s *State) applyChannel(topic string) string {
	if channel, forApply := strings.CutPrefix(topic, ApplyTopic); forApply && len(s.instancesWithApplyApproval(channel)) > 0 {
		return channel
	}
	return ""
}

// openReleasesOf are the open releases of the same version: those without a failure come first.
func (s *State) openReleasesOf(r *Release) (open []*Release) {
	var failed []*Release
	for _, other := range s.Releases {
		switch {
		case other.Over() || other.FullVersion != r.FullVersion:
		case other.failedInAnyChannel():
			failed = append(failed, other)
		default:
			open = append(open, other)
		}
	}
	return append(open, failed...)
}

// failedInAnyChannel reports whether a release cannot continue from some channel.
func (r *Release) failedInAnyChannel() bool {
	// The order does not affect the result.
	//workflowcheck:ignore
	for _, p := range r.Phases {
		if p.Phase == maestro.Failed || p.Phase == maestro.RolledBack || p.Phase == maestro.Cancelled {
			return true
		}
	}
	return false
}

// approve records an approval or rejection of a release: for every apply in applyChannel, or, if that is "", for a topic.
func (s *State) approve(r *Release, applyChannel string, a entities.Approval) (Effect, error) {
	if a.Who.Name == "" {
		return nil, fmt.Errorf("no approver named for %s", r.FullVersion)
	}
	if applyChannel != "" {
		return s.approveApply(r, applyChannel, a)
	}
	if err := s.checkApproval(r, a); err != nil {
		return nil, err
	}
	return func() string {
		r.Approvals = append(r.Approvals, a)
		if a.Reject {
			return s.reject(r, a)
		}
		s.recordApproval(r, a, "", "approved "+a.Topic)
		return fmt.Sprintf("%s approved for %s by %s%s", r.FullVersion, a.Topic, a.Who.Name, s.approvalCountText(r, a.Topic))
	}, nil
}

// CheckOpen returns why no person can approve or reject a version for a topic now.
func (s *State) CheckOpen(version, topic string) error {
	channel := s.applyChannel(topic)
	r, err := s.FindOpen(version, channel)
	if err != nil || channel != "" {
		return err
	}
	return s.checkTopic(r, topic)
}

// checkTopic returns why no person can approve or reject a release for a topic.
func (s *State) checkTopic(r *Release, topic string) error {
	requirements := s.topicRequirements(topic)
	topics := s.topics()
	switch {
	case len(topics) == 0:
		return fmt.Errorf("no approval topic %q: no channel needs an approval", topic)
	case len(requirements) == 0:
		return fmt.Errorf("no approval topic %q%s", topic, entities.Expected(topics))
	}
	for i := range r.Approvals {
		if old := &r.Approvals[i]; old.Topic == topic && old.Reject {
			return fmt.Errorf("%s was %s for %s; a rejection is final", r.FullVersion, old.Rejection(), topic)
		}
	}
	if r.Over() {
		return fmt.Errorf("%s is over: %s", r.FullVersion, r.phasesText())
	}
	open := slices.ContainsFunc(requirements, func(req topicRequirement) bool {
		p := r.Phases[req.channel]
		return p != nil && p.Phase == maestro.Pending
	})
	if !open {
		return fmt.Errorf("%s does not wait for %s in any channel: %s", r.FullVersion, topic, r.phasesText())
	}
	return nil
}

// checkApproval returns an error for an approval that would change nothing or is not allowed.
func (s *State) checkApproval(r *Release, a entities.Approval) error {
	if err := s.checkTopic(r, a.Topic); err != nil {
		return err
	}
	for i := range r.Approvals {
		if old := &r.Approvals[i]; old.Topic == a.Topic && old.Who.Same(a.Who) && !a.Reject && s.approvalValid(r, old) {
			return fmt.Errorf("%s has already approved %s for %s; another person must approve", a.Who.Name, r.FullVersion, a.Topic)
		}
	}
	return r.checkApprover(s.topicRequirements(a.Topic), a)
}

// checkApprover returns an error for a person who may not approve the topic in any channel. The releaser may reject the release.
func (r *Release) checkApprover(requirements []topicRequirement, a entities.Approval) error {
	var list []string
	ownRelease := false
	for _, req := range requirements {
		by := req.condition
		by.NotReleaser = by.NotReleaser && !a.Reject
		if r.mayApprove(by, a.Who) {
			return nil
		}
		ownRelease = ownRelease || by.NotReleaser && a.Who.Same(r.releaser())
		list = append(list, by.Approvers...)
	}
	if ownRelease {
		return fmt.Errorf("%s released %s and may not approve %s", a.Who.Name, r.FullVersion, a.Topic)
	}
	return fmt.Errorf("%s may not approve %s; allowed: %s%s", a.Who.Name, a.Topic, entities.JoinNames(list), a.Who.UncountedGroups())
}

// approvalValid reports whether an approval is valid in all channels that the release has not entered.
func (s *State) approvalValid(r *Release, a *entities.Approval) bool {
	return !slices.ContainsFunc(s.topicRequirements(a.Topic), func(req topicRequirement) bool {
		_, withdrawn := a.Withdrawn[req.channel]
		p := r.phaseState(req.channel)
		return withdrawn && p != nil && p.Phase == maestro.Pending
	})
}

// reject ends the release in the channels of the topic that it has not entered.
func (s *State) reject(r *Release, a entities.Approval) string {
	var cancelled []string
	for _, req := range s.topicRequirements(a.Topic) {
		if p := r.Phases[req.channel]; p != nil && p.Phase == maestro.Pending {
			r.cancel(req.channel, a.Rejection(), a.At)
			cancelled = append(cancelled, req.channel)
		}
	}
	channel := ""
	if len(cancelled) == 1 {
		channel = cancelled[0]
	}
	s.recordApproval(r, a, channel, "rejected "+a.Topic)
	return fmt.Sprintf("%s rejected by %s in %s", r.FullVersion, a.Who.Name, strings.Join(cancelled, ", "))
}

func (s *State) recordApproval(r *Release, a entities.Approval, channel, text string) {
	s.AppendJournal(a.At, channel, fmt.Sprintf("%s %s by %s%s", r.FullVersion, text, a.Who.Name, entities.Because(a.Comment)))
	kind := entities.EventApproval
	if a.Reject {
		kind = entities.EventRejection
	}
	s.recordAudit(entities.AuditEntry{
		At: a.At, Kind: kind, Who: &a.Who, Channel: channel, Release: r.ID, Version: r.FullVersion,
		Text: text, Reason: a.Comment,
	})
}

// approvalCountText formats the number of approvals of a topic if more than one is required.
func (s *State) approvalCountText(r *Release, topic string) string {
	text := ""
	for _, req := range s.topicRequirements(topic) {
		if req.condition.MinApprovers > 1 {
			text = ": " + s.ApprovalText(r, req.channel, req.condition)
		}
		if !r.CountApprovals(req.channel, req.condition).Satisfied() {
			break
		}
	}
	return text
}

// topicRequirement is a channel that requires the approval of a topic.
type topicRequirement struct {
	channel   string
	condition entities.Condition
}

func (s *State) topicRequirements(topic string) []topicRequirement {
	var out []topicRequirement
	for n := range s.Spec.Channels {
		for _, c := range s.Spec.Channels[n].Approvals() {
			if c.Topic == topic {
				out = append(out, topicRequirement{s.Spec.Channels[n].Name, c})
			}
		}
	}
	return out
}

// topics are all topics that can be approved, in the order of the channels.
func (s *State) topics() []string {
	var out []string
	for n := range s.Spec.Channels {
		c := &s.Spec.Channels[n]
		for _, cond := range c.Approvals() {
			if !slices.Contains(out, cond.Topic) {
				out = append(out, cond.Topic)
			}
		}
		if len(s.instancesWithApplyApproval(c.Name)) > 0 {
			out = append(out, ApplyTopic+c.Name)
		}
	}
	return out
}

// Topics are the topics of all approvals, in the order of the channels.
func (s *State) Topics() (topics []string) {
	add := func(topic string) {
		if !slices.Contains(topics, topic) {
			topics = append(topics, topic)
		}
	}
	for n := range s.Spec.Channels {
		c := &s.Spec.Channels[n]
		for _, condition := range c.Approvals() {
			add(condition.Topic)
		}
		if len(s.instancesWithApplyApproval(c.Name)) > 0 {
			add(ApplyTopic + c.Name)
		}
	}
	return topics
}

// TopicChannels are the channels that an approval of a topic opens.
func (s *State) TopicChannels(topic string) []string {
	var out []string
	for n := range s.Spec.Channels {
		c := &s.Spec.Channels[n]
		opens := topic == ApplyTopic+c.Name && len(s.instancesWithApplyApproval(c.Name)) > 0
		for _, condition := range c.Approvals() {
			opens = opens || condition.Topic == topic
		}
		if opens {
			out = append(out, c.Name)
		}
	}
	return out
}

// instancesWithApplyApproval are the instances of a channel whose runtimes require an approval of every apply.
func (s *State) instancesWithApplyApproval(channel string) []*Instance {
	return slices.DeleteFunc(s.InstancesIn(channel), func(i *Instance) bool {
		_, rt := s.Runtime(i.ID)
		return !rt.ApproveApplies
	})
}

// applyApprovalRequest describes the applies of a release that an approval is for.
type applyApprovalRequest struct {
	pending   bool               // the release has not entered the channel yet
	isTarget  bool               // it is the target of some instance
	instances []*Instance        // instances with an apply that waits for the approval, or will come
	given     *entities.Approval // the approval that was given already
}

func (s *State) applyApprovalRequest(r *Release, channel string) applyApprovalRequest {
	p := r.Phases[channel]
	request := applyApprovalRequest{pending: p != nil && p.Phase == maestro.Pending}
	for _, i := range s.instancesWithApplyApproval(channel) {
		at := i.currentVersion() == r.FullVersionFor(i.ID)
		request.isTarget = request.isTarget || at
		switch {
		case i.EntryApproved(r), !request.pending && i.ApplyApproved(r.FullVersionFor(i.ID)):
			request.given = i.Approval.For(r.FullVersionFor(i.ID))
		case request.pending || at && !i.Approval.WaitingSince.IsZero():
			request.instances = append(request.instances, i)
		}
	}
	return request
}

// approveApply approves the next apply of a release in a channel: of the instances where one waits, or of those with which the release
// will enter. The approval is used up when that apply starts.
func (s *State) approveApply(r *Release, channel string, a entities.Approval) (Effect, error) {
	switch request := s.applyApprovalRequest(r, channel); {
	case !request.pending && !request.isTarget:
		return nil, fmt.Errorf("no apply of %s is expected in %s: %s", r.FullVersion, channel, r.phasesText())
	case !request.pending && a.Reject:
		return nil, fmt.Errorf("%s is already the target of %s; roll it back with: converge rollback", r.FullVersion, channel)
	case len(request.instances) == 0 && request.given != nil && !a.Reject:
		return nil, fmt.Errorf("the apply of %s in %s is already approved, by %s", r.FullVersion, channel, request.given.Who.Name)
	case len(request.instances) == 0 && !a.Reject:
		return nil, fmt.Errorf("no apply of %s waits for approval in %s", r.FullVersion, channel)
	case a.Reject:
		return func() string {
			r.cancel(channel, a.Rejection(), a.At)
			s.recordApproval(r, a, channel, "rejected "+a.Topic)
			return fmt.Sprintf("%s rejected by %s in %s", r.FullVersion, a.Who.Name, channel)
		}, nil
	default:
		return func() string {
			a.Release = r.ID
			for _, i := range request.instances {
				given := a
				given.Version = r.FullVersionFor(i.ID)
				i.Approval.add(&given)
			}
			s.recordApproval(r, a, channel, "approved "+a.Topic)
			return fmt.Sprintf("the apply of %s in %s is approved by %s", r.FullVersion, channel, a.Who.Name)
		}, nil
	}
}

// ApplyApproved reports whether the next apply of a version is approved here.
func (i *Instance) ApplyApproved(version string) bool {
	return i.Approval.For(version) != nil
}

// EntryApproved reports whether the apply with which a release enters is approved here. The approval is for this release only: another
// release of the same version needs its own.
func (i *Instance) EntryApproved(r *Release) bool {
	given := i.Approval.For(r.FullVersionFor(i.ID))
	return given != nil && (given.Release == "" || given.Release == r.ID)
}

// For is the approval of the next apply of a version, or nil.
func (a *ApplyApproval) For(version string) *entities.Approval {
	if a.Given != nil && a.Given.Version == version {
		return a.Given
	}
	for _, other := range a.Others {
		if other.Version == version {
			return other
		}
	}
	return nil
}

// add adds an approval. It replaces one of the same version.
func (a *ApplyApproval) add(approval *entities.Approval) {
	a.remove(func(old *entities.Approval) bool { return old.Version == approval.Version })
	if a.Given != nil {
		a.Others = append(slices.Clone(a.Others), a.Given) // the slice may be shared
	}
	a.Given, a.WaitingSince = approval, time.Time{}
}

// remove removes approvals.
func (a *ApplyApproval) remove(match func(*entities.Approval) bool) {
	if a.Given != nil && match(a.Given) {
		a.Given = nil
	}
	if slices.ContainsFunc(a.Others, match) {
		a.Others = slices.DeleteFunc(slices.Clone(a.Others), match)
	}
}

// DropStaleApprovals drops the approvals of applies in a channel that will not come any more. For a degraded instance a repair may come.
func (s *State) DropStaleApprovals(spec *entities.ChannelSpec, degraded func(entities.InstanceID) bool) {
	for _, inst := range spec.Instances {
		i := s.Instances[spec.ID(inst)]
		if i == nil || i.Approval.Given == nil && len(i.Approval.Others) == 0 {
			continue
		}
		isDegraded := degraded(i.ID)
		i.Approval.remove(func(given *entities.Approval) bool { return !s.applyExpected(i, given.Version, isDegraded) })
	}
}

// applyExpected reports whether the approved apply may still come.
func (s *State) applyExpected(i *Instance, version string, degraded bool) bool {
	if i.currentVersion() == version && (!i.Delivery.Converged || degraded) {
		return true
	}
	return slices.ContainsFunc(s.Releases, func(r *Release) bool {
		p := r.Phases[i.ID.Channel]
		return r.FullVersionFor(i.ID) == version && p != nil && p.Phase == maestro.Pending && i.EntryApproved(r)
	})
}

// Bypass lets a release pass a condition of a channel. The caller ensures that the release needs it (A15).
func (s *State) Bypass(r *Release, b entities.Bypass) Effect {
	return func() string {
		r.Bypasses = append(r.Bypasses, b)
		if p := s.Channel(b.Channel).Preflight; p != nil && !p.Running && !p.Window {
			s.Channel(b.Channel).Preflight = nil // a failed preflight delays the next one; the bypass may concern the condition that failed
		}
		text := fmt.Sprintf("%s passes %s of %s, %s", r.FullVersion, b.Condition, b.Channel, b.Text())
		s.AppendJournal(b.At, b.Channel, text)
		s.recordAudit(entities.AuditEntry{
			At: b.At, Kind: entities.EventBypass, Who: &b.Who, Channel: b.Channel, Release: r.ID, Version: r.FullVersion,
			Text: "bypassed " + b.Condition, Reason: b.Reason,
		})
		return text
	}
}

// CheckBypass returns an error for a bypass that is incomplete or too late.
func (s *State) CheckBypass(r *Release, b entities.Bypass) error {
	switch {
	case b.Channel == "":
		return fmt.Errorf("no release channel given%s", entities.Expected(s.Spec.ChannelNames()))
	case b.Who.Name == "":
		return fmt.Errorf("no caller named for the bypass")
	case strings.TrimSpace(b.Reason) == "":
		return fmt.Errorf("a bypass needs a reason")
	case s.Spec.CheckBypass(b.Condition, b.Who) != nil:
		return s.Spec.CheckBypass(b.Condition, b.Who)
	case r.Phases[b.Channel] == nil:
		return fmt.Errorf("%s is not released to %s", r.FullVersion, b.Channel)
	case r.Phases[b.Channel].Phase.Over() && !(b.Condition == entities.NoRollbackBelow && s.HeldByFloor(b.Channel, r)):
		return fmt.Errorf("%s is over in %s: %s", r.FullVersion, b.Channel, r.Phases[b.Channel].Phase)
	}
	return nil
}
