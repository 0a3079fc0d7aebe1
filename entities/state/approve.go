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

// Tally is the progress of the approval of a release for a condition.
type Tally struct {
	Have     []string           // distinct people who approved, in the order of their approvals
	Need     int                // at least 1
	Since    time.Time          // time of the last approval
	Rejected *entities.Approval // a rejection is final
}

// Given reports whether enough people approved and no person rejected.
func (t Tally) Given() bool { return t.Rejected == nil && len(t.Have) >= t.Need }

// Tally counts the distinct authorized people whose approvals are valid in a channel.
func (r *Release) Tally(channel string, c entities.Condition) Tally {
	t := Tally{Need: max(c.MinApprovers, 1)}
	var counted []entities.Who
	for i := range r.Approvals {
		a := &r.Approvals[i]
		switch _, withdrawn := a.Withdrawn[channel]; {
		case a.Topic != c.Topic:
		case a.Reject:
			return Tally{Need: t.Need, Rejected: a, Since: a.At}
		case withdrawn:
		case r.mayApprove(c, a.Who) && !slices.ContainsFunc(counted, a.Who.Same):
			t.Have, counted = append(t.Have, a.Who.Name), append(counted, a.Who)
			if a.At.After(t.Since) {
				t.Since = a.At
			}
		}
	}
	return t
}

// TallyText formats the progress of an approval, "1 of 2 (alice), by any of group:sre except alice", with withdrawn approvals. If callers
// can prove their identity, an approver who did not is marked.
func (s *State) TallyText(r *Release, channel string, c entities.Condition) string {
	t := r.Tally(channel, c)
	if t.Rejected != nil {
		return t.Rejected.Rejection()
	}
	text := fmt.Sprintf("%d of %d", len(t.Have), t.Need)
	if len(t.Have) > 0 {
		text += " (" + strings.Join(s.ShownPeople(r, c.Topic, t.Have), ", ") + ")"
	}
	if !t.Given() {
		text += ", by " + r.whoMay(c, t.Have) + s.withdrawnText(r, channel, c.Topic, t.Have)
	}
	return text
}

// withdrawnText lists the approvals that are no longer valid in a channel, and why: "; withdrawn: alice (v2 failed in staging)".
func (s *State) withdrawnText(r *Release, channel, topic string, again []string) string {
	var who []string
	why := ""
	for i := range r.Approvals {
		a := &r.Approvals[i]
		if because, withdrawn := a.Withdrawn[channel]; withdrawn && a.Topic == topic && !slices.Contains(slices.Concat(who, again), a.Who.Name) {
			who, why = append(who, a.Who.Name), because
		}
	}
	if len(who) == 0 {
		return ""
	}
	return "; withdrawn: " + strings.Join(s.ShownPeople(r, topic, who), ", ") + " (" + why + ")"
}

// ShownPeople formats the names of approvers of a topic. If callers can prove their identity, an approver who did not is marked.
func (s *State) ShownPeople(r *Release, topic string, who []string) []string {
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
	return (len(c.Approvers) == 0 || who.Among(c.Approvers)) && !(c.NotReleaser && who.Same(r.releaser()))
}

// releaser is the person who released it.
func (r *Release) releaser() entities.Who { return entities.Who{Name: r.By, Subject: r.Subject} }

// whoMay lists the people who can still approve: "any of group:sre except alice".
func (r *Release) whoMay(c entities.Condition, have []string) string {
	text := "anybody"
	if len(c.Approvers) > 0 {
		text = "any of " + strings.Join(c.Approvers, ", ")
	}
	if c.NotReleaser {
		have = append([]string{r.By + ", who released it"}, have...)
	}
	if len(have) > 0 {
		text += " except " + strings.Join(have, ", ")
	}
	return text
}

// Restricted reports whether a topic limits its approvers: a condition names the approvers, or requires more than one person.
func (s *State) Restricted(topic string) bool {
	return slices.ContainsFunc(s.asking(topic), func(ask asks) bool {
		c := ask.condition
		return len(c.Approvers) > 0 || c.NotReleaser || c.MinApprovers > 1
	})
}

// RejectedIn reports whether a release was rejected for a topic that the channel requires. A release can be rejected before the channel
// requires the topic.
func (r *Release) RejectedIn(c *entities.ChannelSpec) bool {
	return slices.ContainsFunc(r.Approvals, func(a entities.Approval) bool {
		return a.Reject && slices.ContainsFunc(c.Conditions, func(cond entities.Condition) bool {
			return cond.Kind == entities.ManualApproval && cond.Topic == a.Topic && r.Bypassed(c.Name, cond.ID) == nil
		})
	})
}

// Approve records an approval or rejection of a release for a topic. A rejection (a.Reject) is final for that release in the channels of
// the topic that it has not entered.
func (s *State) Approve(version string, a entities.Approval) (Effect, error) {
	channel, ofApply := strings.CutPrefix(a.Topic, ApplyTopic)
	if ofApply = ofApply && len(s.approvedApplies(channel)) > 0; !ofApply {
		channel = ""
	}
	r, err := s.FindOpen(version, channel)
	if err != nil {
		return nil, err
	}
	if !a.Reject && !strings.HasPrefix(version, entities.ByID) {
		for _, again := range s.releasedAgain(r) {
			if effect, err := s.approve(again, channel, a); err == nil {
				return effect, nil
			}
		}
	}
	return s.approve(r, channel, a)
}

// releasedAgain are the open releases of the same version: those without a failure come first.
func (s *State) releasedAgain(r *Release) (open []*Release) {
	var broken []*Release
	for _, again := range s.Releases {
		switch {
		case again.Over() || again.FullVersion != r.FullVersion:
		case again.failedSomewhere():
			broken = append(broken, again)
		default:
			open = append(open, again)
		}
	}
	return append(open, broken...)
}

// failedSomewhere reports whether a release cannot continue from some channel.
func (r *Release) failedSomewhere() bool {
	// The order does not affect the result.
	//workflowcheck:ignore
	for _, p := range r.Phases {
		if p.Phase == maestro.Failed || p.Phase == maestro.RolledBack || p.Phase == maestro.Cancelled {
			return true
		}
	}
	return false
}

// approve records an approval or rejection of a release: for every apply in the channel ofApply, or, if that is "", for a topic.
func (s *State) approve(r *Release, ofApply string, a entities.Approval) (Effect, error) {
	if a.Who.Name == "" {
		return nil, fmt.Errorf("no approver named for %s", r.FullVersion)
	}
	if ofApply != "" {
		return s.approveApply(r, ofApply, a)
	}
	if err := s.checkApproval(r, a); err != nil {
		return nil, err
	}
	return func() string {
		r.Approvals = append(r.Approvals, a)
		if a.Reject {
			return s.reject(r, a)
		}
		s.noteApproval(r, a, "", "approved "+a.Topic)
		return fmt.Sprintf("%s approved for %s by %s%s", r.FullVersion, a.Topic, a.Who.Name, s.progress(r, a.Topic))
	}, nil
}

// checkApproval returns an error for an approval that would change nothing or is not allowed.
func (s *State) checkApproval(r *Release, a entities.Approval) error {
	asking := s.asking(a.Topic)
	if len(asking) == 0 {
		return fmt.Errorf("no approval topic %q%s", a.Topic, entities.Expected(s.topics()))
	}
	for i := range r.Approvals {
		old := &r.Approvals[i]
		switch {
		case old.Topic != a.Topic:
		case old.Reject:
			return fmt.Errorf("%s was %s for %s; a rejection is final", r.FullVersion, old.Rejection(), a.Topic)
		case old.Who.Same(a.Who) && !a.Reject && s.counts(r, old):
			return fmt.Errorf("%s has already approved %s for %s; another person must approve", a.Who.Name, r.FullVersion, a.Topic)
		}
	}
	if r.Over() {
		return fmt.Errorf("%s is over: %s", r.FullVersion, r.phases())
	}
	open := slices.ContainsFunc(asking, func(ask asks) bool {
		p := r.Phases[ask.channel]
		return p != nil && p.Phase == maestro.Pending
	})
	if !open {
		return fmt.Errorf("%s does not wait for %s in any channel: %s", r.FullVersion, a.Topic, r.phases())
	}
	return r.checkApprover(asking, a)
}

// checkApprover returns an error for a person who may not approve the topic in any channel. The releaser may reject the release.
func (r *Release) checkApprover(asking []asks, a entities.Approval) error {
	var list []string
	own := false
	for _, ask := range asking {
		by := ask.condition
		by.NotReleaser = by.NotReleaser && !a.Reject
		if r.mayApprove(by, a.Who) {
			return nil
		}
		own = own || by.NotReleaser && a.Who.Same(r.releaser())
		list = append(list, by.Approvers...)
	}
	if own {
		return fmt.Errorf("%s released %s and may not approve %s", a.Who.Name, r.FullVersion, a.Topic)
	}
	return fmt.Errorf("%s may not approve %s; allowed: %s%s", a.Who.Name, a.Topic, entities.Everybody(list), a.Who.Uncounted())
}

// counts reports whether an approval is valid in all channels that the release has not entered.
func (s *State) counts(r *Release, a *entities.Approval) bool {
	return !slices.ContainsFunc(s.asking(a.Topic), func(ask asks) bool {
		_, withdrawn := a.Withdrawn[ask.channel]
		p := r.in(ask.channel)
		return withdrawn && p != nil && p.Phase == maestro.Pending
	})
}

// reject ends the release in the channels of the topic that it has not entered.
func (s *State) reject(r *Release, a entities.Approval) string {
	var ended []string
	for _, ask := range s.asking(a.Topic) {
		if p := r.Phases[ask.channel]; p != nil && p.Phase == maestro.Pending {
			r.cancel(ask.channel, a.Rejection(), a.At)
			ended = append(ended, ask.channel)
		}
	}
	s.noteApproval(r, a, "", "rejected "+a.Topic)
	return fmt.Sprintf("%s rejected by %s in %s", r.FullVersion, a.Who.Name, strings.Join(ended, ", "))
}

func (s *State) noteApproval(r *Release, a entities.Approval, channel, text string) {
	s.Record(a.At, channel, fmt.Sprintf("%s %s by %s%s", r.FullVersion, text, a.Who.Name, entities.Because(a.Comment)))
	s.note(entities.AuditLine{
		At: a.At, Kind: entities.EventApproval, Who: &a.Who, Channel: channel, Release: r.ID, Version: r.FullVersion,
		Text: text, Reason: a.Comment,
	})
}

// progress formats the number of approvals of a topic if more than one is required.
func (s *State) progress(r *Release, topic string) string {
	most := ""
	for _, ask := range s.asking(topic) {
		if ask.condition.MinApprovers > 1 {
			most = ": " + s.TallyText(r, ask.channel, ask.condition)
		}
		if !r.Tally(ask.channel, ask.condition).Given() {
			break
		}
	}
	return most
}

// asks is a channel that requires the approval of a topic.
type asks struct {
	channel   string
	condition entities.Condition
}

func (s *State) asking(topic string) []asks {
	var out []asks
	for n := range s.Spec.Channels {
		for _, c := range s.Spec.Channels[n].Approvals() {
			if c.Topic == topic {
				out = append(out, asks{s.Spec.Channels[n].Name, c})
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
		if len(s.approvedApplies(c.Name)) > 0 {
			out = append(out, ApplyTopic+c.Name)
		}
	}
	return out
}

// TopicChannels are the channels that an approval of a topic opens.
func (s *State) TopicChannels(topic string) []string {
	var out []string
	for n := range s.Spec.Channels {
		c := &s.Spec.Channels[n]
		opens := topic == ApplyTopic+c.Name && len(s.approvedApplies(c.Name)) > 0
		for _, condition := range c.Approvals() {
			opens = opens || condition.Topic == topic
		}
		if opens {
			out = append(out, c.Name)
		}
	}
	return out
}

// approvedApplies are the instances of a channel whose runtimes require an approval of every apply.
func (s *State) approvedApplies(channel string) []*Instance {
	return slices.DeleteFunc(s.In(channel), func(i *Instance) bool {
		_, rt := s.Runtime(i.ID)
		return !rt.ApproveApplies
	})
}

// applyAsked describes the applies of a release that an approval is for.
type applyAsked struct {
	pending bool               // the release has not entered the channel yet
	there   bool               // it is the target of some instance
	to      []*Instance        // instances with an apply that waits for the approval, or will come
	given   *entities.Approval // the approval that was given already
}

func (s *State) applyAsked(r *Release, channel string) applyAsked {
	p := r.Phases[channel]
	asked := applyAsked{pending: p != nil && p.Phase == maestro.Pending}
	for _, i := range s.approvedApplies(channel) {
		at := i.present() == r.FullIn(i.ID)
		asked.there = asked.there || at
		switch {
		case i.ApprovesEntry(r), !asked.pending && i.Approves(r.FullIn(i.ID)):
			asked.given = i.Approval.Of(r.FullIn(i.ID))
		case asked.pending || at && !i.Approval.Asked.IsZero():
			asked.to = append(asked.to, i)
		}
	}
	return asked
}

// approveApply approves the next apply of a release in a channel: of the instances where one waits, or of those with which the release
// will enter. The approval is used up when that apply starts.
func (s *State) approveApply(r *Release, channel string, a entities.Approval) (Effect, error) {
	switch asked := s.applyAsked(r, channel); {
	case !asked.pending && !asked.there:
		return nil, fmt.Errorf("no apply of %s is expected in %s: %s", r.FullVersion, channel, r.phases())
	case !asked.pending && a.Reject:
		return nil, fmt.Errorf("%s is already the target of %s; roll it back with: converge rollback", r.FullVersion, channel)
	case len(asked.to) == 0 && asked.given != nil && !a.Reject:
		return nil, fmt.Errorf("the apply of %s in %s is already approved, by %s", r.FullVersion, channel, asked.given.Who.Name)
	case len(asked.to) == 0 && !a.Reject:
		return nil, fmt.Errorf("no apply of %s waits for approval in %s", r.FullVersion, channel)
	case a.Reject:
		return func() string {
			r.cancel(channel, a.Rejection(), a.At)
			s.noteApproval(r, a, channel, "rejected "+a.Topic)
			return fmt.Sprintf("%s rejected by %s in %s", r.FullVersion, a.Who.Name, channel)
		}, nil
	default:
		return func() string {
			a.Release = r.ID
			for _, i := range asked.to {
				given := a
				given.Version = r.FullIn(i.ID)
				i.Approval.give(&given)
			}
			s.noteApproval(r, a, channel, "approved "+a.Topic)
			return fmt.Sprintf("the apply of %s in %s is approved by %s", r.FullVersion, channel, a.Who.Name)
		}, nil
	}
}

// Approves reports whether the next apply of a version is approved here.
func (i *Instance) Approves(version string) bool {
	return i.Approval.Of(version) != nil
}

// ApprovesEntry reports whether the apply with which a release enters is approved here. The approval is for this release only: another
// release of the same version needs its own.
func (i *Instance) ApprovesEntry(r *Release) bool {
	given := i.Approval.Of(r.FullIn(i.ID))
	return given != nil && (given.Release == "" || given.Release == r.ID)
}

// Of is the approval of the next apply of a version, or nil.
func (a *ApplyApproval) Of(version string) *entities.Approval {
	if a.Given != nil && a.Given.Version == version {
		return a.Given
	}
	for _, also := range a.Also {
		if also.Version == version {
			return also
		}
	}
	return nil
}

// give adds an approval. It replaces one of the same version.
func (a *ApplyApproval) give(given *entities.Approval) {
	a.drop(func(old *entities.Approval) bool { return old.Version == given.Version })
	if a.Given != nil {
		a.Also = append(slices.Clone(a.Also), a.Given) // the slice may be shared
	}
	a.Given, a.Asked = given, time.Time{}
}

// drop removes approvals.
func (a *ApplyApproval) drop(of func(*entities.Approval) bool) {
	if a.Given != nil && of(a.Given) {
		a.Given = nil
	}
	if slices.ContainsFunc(a.Also, of) {
		a.Also = slices.DeleteFunc(slices.Clone(a.Also), of)
	}
}

// ForgetApprovals drops the approvals of applies in a channel that will not come any more. For a degraded instance a repair may come.
func (s *State) ForgetApprovals(spec *entities.ChannelSpec, degraded func(entities.InstanceID) bool) {
	for _, inst := range spec.Instances {
		i := s.Instances[spec.ID(inst)]
		if i == nil || i.Approval.Given == nil && len(i.Approval.Also) == 0 {
			continue
		}
		broken := degraded(i.ID)
		i.Approval.drop(func(given *entities.Approval) bool { return !s.applyComes(i, given.Version, broken) })
	}
}

// applyComes reports whether the approved apply may still come.
func (s *State) applyComes(i *Instance, version string, degraded bool) bool {
	if i.present() == version && (!i.Delivery.Converged || degraded) {
		return true
	}
	return slices.ContainsFunc(s.Releases, func(r *Release) bool {
		p := r.Phases[i.ID.Channel]
		return r.FullIn(i.ID) == version && p != nil && p.Phase == maestro.Pending && i.ApprovesEntry(r)
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
		s.Record(b.At, b.Channel, text)
		s.note(entities.AuditLine{
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
	case s.Spec.MayBypass(b.Condition, b.Who) != nil:
		return s.Spec.MayBypass(b.Condition, b.Who)
	case r.Phases[b.Channel] == nil:
		return fmt.Errorf("%s is not released to %s", r.FullVersion, b.Channel)
	case r.Phases[b.Channel].Phase.Over() && !(b.Condition == entities.NoRollbackBelow && s.KeptByFloor(b.Channel, r)):
		return fmt.Errorf("%s is over in %s: %s", r.FullVersion, b.Channel, r.Phases[b.Channel].Phase)
	}
	return nil
}
