package entities

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Spec is what of the configuration the decision needs: channels in order, conditions, policies,
// deadlines. A Service workflow reads it once per changed digest. At most 32 KiB as JSON.
type Spec struct {
	Application string `json:"application"`
	// Service is what the service was called first: workflows, the store and runtimes know it by that. Name is what people call
	// it, where that is another name by now (renamedFrom).
	Service   string `json:"service"`
	Name      string `json:"name,omitempty"`
	ServiceID string `json:"serviceId"` // PVN_SERVICE_ID: stable over the service's life (C7)
	// Others are, by what people call them, what the services were called first that are called otherwise by now, where this one
	// waits for others.
	Others map[string]string `json:"others,omitempty"`
	// Incarnation and Hash name the snapshot this spec was first published with; they are set by
	// whoever publishes and are not part of the spec's digest.
	Incarnation int64         `json:"incarnation,omitempty"`
	Hash        string        `json:"hash,omitempty"`
	Description string        `json:"description,omitempty"`
	Channels    []ChannelSpec `json:"channels"` // in an order that respects conditions
	Parameters  []ParamSpec   `json:"parameters,omitempty"`
	// Version makes the file the owner of the version; InitialVersion is used once, when nothing
	// was released. DeclaredAt ("hello.converge.yaml:12") says where either stands.
	Version          string                  `json:"version,omitempty"`
	InitialVersion   string                  `json:"initialVersion,omitempty"`
	DeclaredAt       string                  `json:"declaredAt,omitempty"`
	ConfigChanges    ConfigChanges           `json:"configChanges"`
	Runtimes         map[string]*RuntimeSpec `json:"runtimes"`
	ProgressDeadline time.Duration           `json:"progressDeadline"`
	// Who may do what, how callers prove who they are, and who is told.
	Grants        []Grant        `json:"grants,omitempty"`
	Identity      *Identity      `json:"identity,omitempty"`
	Notifications []Notification `json:"notifications,omitempty"`
	// Remove: when the service is no longer declared, its objects are removed instead of left (A24).
	Remove bool `json:"remove,omitempty"`
	// Baseline: what the installation demands is part of it. Nothing that is published says so.
	Baseline *Baselined `json:"baseline,omitempty"`
	// AskGates: a rollback by hand passes all gates, as a release does (G2).
	AskGates bool `json:"askGates,omitempty"`
	// NoRollbackBelow: from this version or a later one nothing goes back to an earlier one, whatever failed.
	NoRollbackBelow string  `json:"noRollbackBelow,omitempty"`
	Maestro         Maestro `json:"maestro,omitzero"`
	// Aspects whose parameters go out by releases of their own, by name (B5).
	Aspects []Aspect `json:"aspects,omitempty"`
}

// Maestro says how releases in flight follow each other (B3).
type Maestro struct {
	// Strategy is latest, train or immediate.
	Strategy string `json:"strategy,omitempty"`
	// HoldUntil is what a channel is kept for its release for: HoldPromoted, or nothing.
	HoldUntil string `json:"holdUntil,omitempty"`
}

// HoldPromoted keeps a channel for its release until that was promoted into every channel that comes after it.
const HoldPromoted = "promoted"

// ConfigChanges says what a configuration-only change does.
type ConfigChanges string

// The policies for configuration-only changes.
const (
	ConfigRelease ConfigChanges = "release" // opens a config release
	ConfigHold    ConfigChanges = "hold"    // waits for the next release
)

// Drift says what happens when something was changed by hand (A12).
type Drift string

// The drift policies.
const (
	DriftEnforce Drift = "enforce"
	DriftObserve Drift = "observe"
)

// ChannelSpec is one release channel as this service sees it: the instances that live there and
// the rules for entering it.
type ChannelSpec struct {
	Name string `json:"name"`
	// Key is the name under which the channel first was one, where people call it otherwise by now: runtimes and commands
	// know it by that (renamedFrom).
	Key              string            `json:"key,omitempty"`
	Labels           map[string]string `json:"labels,omitempty"`
	Instances        []InstanceSpec    `json:"instances"`            // names unique, in the order in which they are shown
	Conditions       []Condition       `json:"conditions,omitempty"` // preconditions, in file order
	Checks           []Check           `json:"checks,omitempty"`     // protections and conditions on other services, in file order
	Extensions       []Extension       `json:"extensions,omitempty"` // so that each comes after those it names
	Drift            Drift             `json:"drift"`
	ProgressDeadline time.Duration     `json:"progressDeadline"`
	// NoRollback turns automatic rollback off (A22).
	NoRollback bool `json:"noRollback,omitempty"`
	// OnDelete says what becomes of what runs here once it is no longer declared; empty: what the service says.
	OnDelete OnDelete `json:"onDelete,omitempty"`
	// Report: nothing is written here, and what would be is shown (A25). It is the drift policy that would hold; empty: the
	// channel is enforced.
	Report Drift `json:"report,omitempty"`
	// Rollout is the policy by which a release goes through the instances (D24).
	Rollout *Rollout `json:"rollout,omitempty"`
}

// RollOut has releases go through the channel by a policy. A version that does not know that finds a condition of a kind that it
// does not know, which lets no release in.
func (c *ChannelSpec) RollOut(r Rollout) {
	c.Rollout = &r
	c.Conditions = append(slices.Clip(c.Conditions), Condition{ID: string(InSteps), Kind: InSteps})
	if r.ByCommand() { // to whoever knows steps alone it would be no policy
		c.Conditions = append(c.Conditions, Condition{ID: string(BySelection), Kind: BySelection})
	}
}

// Selection is the check by which the policy's command is asked, or nil.
func (c *ChannelSpec) Selection() *Check {
	for n := range c.Checks {
		if c.Checks[n].Kind == CheckSelection {
			return &c.Checks[n]
		}
	}
	return nil
}

// ByAspects has the channel be one of a service that has aspects. A version that does not know them finds a condition of a kind that
// it does not know.
func (c *ChannelSpec) ByAspects() {
	c.Conditions = append(slices.Clip(c.Conditions), Condition{ID: string(ByAspects), Kind: ByAspects})
}

// ReportOnly has a channel report and write nothing (A25). A version that does not know that finds a condition of a kind that it
// does not know, which lets no release in, and a drift policy by which it repairs nothing.
func (c *ChannelSpec) ReportOnly() {
	c.Report, c.Drift = cmp.Or(c.Drift, DriftEnforce), DriftObserve
	c.Conditions = append(slices.Clip(c.Conditions), Condition{ID: string(OnlyReported), Kind: OnlyReported})
}

// Repairs tells whether drift is repaired here, or would be.
func (c *ChannelSpec) Repairs() bool {
	return c.Drift != DriftObserve || c.Report != "" && c.Report != DriftObserve
}

// OnDelete says what becomes of what is no longer declared.
type OnDelete string

// What is no longer declared is left in place, or taken down (A24).
const (
	DeleteOrphans OnDelete = "orphan"
	DeleteRemoves OnDelete = "remove"
)

// InstanceSpec is one instance of the service in a channel.
type InstanceSpec struct {
	Name    string `json:"name"`
	Runtime string `json:"runtime"` // key of Spec.Runtimes
	// Template is the digest of the payload before a version and release parameters are filled
	// in: equal templates mean that a change of configuration did not touch this instance.
	Template string `json:"template"`
	// MovedFrom says that the instance was on another runtime before.
	MovedFrom *MovedFrom `json:"movedFrom,omitempty"`
}

// MovedFrom is the runtime that an instance was on before, and whether what it leaves there is taken down.
type MovedFrom struct {
	Runtime string `json:"runtime"`
	Remove  bool   `json:"remove,omitempty"`
}

// RuntimeSpec is the part of a runtime that the decision needs.
type RuntimeSpec struct {
	Kind   RuntimeKind `json:"kind"`
	Digest string      `json:"digest"` // of the definition in the store
	Mode   FetchMode   `json:"mode,omitempty"`
	// Observable: it can be observed at all (C1: without fetch it cannot).
	Observable bool          `json:"observable"`
	Remote     bool          `json:"remote,omitempty"`
	Timing     RuntimeTiming `json:"timing"`
	// MaxApplies bounds the applies that run at once on the runtime, over all services; zero is no
	// bound. ApproveApplies: a person approves every apply, repairs and retries included (C10).
	MaxApplies     int  `json:"maxApplies,omitempty"`
	ApproveApplies bool `json:"approveApplies,omitempty"`
	// CanRemove: what it runs can be taken down (A24).
	CanRemove bool `json:"canRemove,omitempty"`
}

// Condition is one precondition, named uniquely in its channel ("channel-stable/staging").
type Condition struct {
	ID   string        `json:"id"`
	Kind ConditionKind `json:"kind"`
	// Channels: the channels a release must have succeeded in; selectors are resolved when compiling.
	Channels []string `json:"channels,omitempty"`
	// For: how long ago it must have succeeded in each.
	For time.Duration `json:"for,omitempty"`
	// Topic, MinApprovers and Approvers: for approval. No approvers: anybody.
	Topic        string   `json:"topic,omitempty"`
	MinApprovers int      `json:"minApprovers,omitempty"`
	Approvers    []string `json:"approvers,omitempty"` // "alice", "group:sre"
	NotReleaser  bool     `json:"notReleaser,omitempty"`
}

// ConditionKind names a way to judge a condition.
type ConditionKind string

// The kinds of condition that the state itself answers: the release has succeeded in the named channels (A8), so long ago
// (For), and those are healthy now, whatever runs there; the id of each is "channel-stable/" and the channel. And people have
// approved it (A14; the id is "approval/" and the topic). A version that does not know a kind says ERROR of it, never PASS.
const (
	ChannelStable    ConditionKind = "channel-stable"
	ChannelStableFor ConditionKind = "channel-stable-for"
	ChannelHealthy   ConditionKind = "channel-healthy" // For is none, or as above
	ManualApproval   ConditionKind = "approval"
)

// What is no gate, and stands among the conditions for versions that do not know what it is: a channel that only reports, one
// that releases go through in steps, one where a command selects them, and one of a service that has aspects.
const (
	OnlyReported ConditionKind = "report"
	InSteps      ConditionKind = "rollout"
	BySelection  ConditionKind = "rollout-command"
	ByAspects    ConditionKind = "aspects"
)

// NoGate tells whether a condition of the kind says nothing of a release.
func (k ConditionKind) NoGate() bool {
	return k == OnlyReported || k == InSteps || k == BySelection || k == ByAspects
}

// OnChannels tells whether a condition of the kind is about other channels.
func (k ConditionKind) OnChannels() bool {
	return k == ChannelStable || k == ChannelStableFor || k == ChannelHealthy
}

// ParamSpec declares one parameter of a service.
type ParamSpec struct {
	Name     string    `json:"name"`
	Type     ParamType `json:"type"`
	Required bool      `json:"required,omitempty"` // some channel has no value unless a release gives one
}

// ParamType is the type of a parameter's value.
type ParamType string

// The parameter types.
const (
	ParamString ParamType = "string"
	ParamInt    ParamType = "int"
	ParamFloat  ParamType = "float"
	ParamBool   ParamType = "bool"
	ParamSecret ParamType = "secretRef"
)

// Channel returns the channel of that name. No spec has no channels.
func (s *Spec) Channel(name string) (ChannelSpec, bool) {
	if s == nil {
		return ChannelSpec{}, false
	}
	for n := range s.Channels { // by index: a channel is too large to copy for each comparison
		if s.Channels[n].Name == name {
			return s.Channels[n], true
		}
	}
	return ChannelSpec{}, false
}

// noRuntime is what is known of a runtime that is not declared.
var noRuntime RuntimeSpec

// Runtime is a declared runtime, or one that can do nothing. It is only read.
func (s *Spec) Runtime(name string) *RuntimeSpec {
	if s != nil && s.Runtimes[name] != nil {
		return s.Runtimes[name]
	}
	return &noRuntime
}

// Instance returns the instance of that id. No spec has no instances.
func (s *Spec) Instance(id InstanceID) (InstanceSpec, bool) {
	c, _ := s.Channel(id.Channel)
	for _, i := range c.Instances {
		if i.Name == id.Name {
			return i, true
		}
	}
	return InstanceSpec{}, false
}

// ID is the id of an instance of the channel.
func (c *ChannelSpec) ID(i InstanceSpec) InstanceID { return InstanceID{Channel: c.Name, Name: i.Name} }

// IDs are the declared instances, channel by channel in the spec's order.
func (s *Spec) IDs() []InstanceID {
	var out []InstanceID
	if s == nil {
		return nil
	}
	for n := range s.Channels {
		for _, i := range s.Channels[n].Instances {
			out = append(out, s.Channels[n].ID(i))
		}
	}
	return out
}

// ChannelNames are the channels in order.
func (s *Spec) ChannelNames() []string {
	out := make([]string, 0, len(s.Channels))
	for _, c := range s.Channels {
		out = append(out, c.Name)
	}
	return out
}

// ParameterNames are the declared parameters in order.
func (s *Spec) ParameterNames() []string {
	out := make([]string, 0, len(s.Parameters))
	for _, p := range s.Parameters {
		out = append(out, p.Name)
	}
	return out
}

// Approvals are the approvals that a channel asks for, in file order.
func (c *ChannelSpec) Approvals() []Condition {
	var out []Condition
	for _, cond := range c.Conditions {
		if cond.Kind == ManualApproval {
			out = append(out, cond)
		}
	}
	return out
}

// The scopes of a pause that is wider than the service (A16).
const (
	ScopeApplication  = "application"
	ScopeRuntime      = "runtime/"     // and the runtime's name
	ScopeInstallation = "installation" // everything
)

// CheckRelease says why a service that is declared so does not take a release, or nil: of a version, with values
// for these parameters, some of them for these channels alone.
func (s *Spec) CheckRelease(version string, parameters, channels []string) error {
	switch {
	case len(s.Channels) == 0:
		return fmt.Errorf("%s is no longer declared", s.fullName())
	case s.Version != "":
		return fmt.Errorf("the version of %s is set to %s in %s; change it there", s.fullName(), s.Version, s.DeclaredAt)
	}
	if err := CheckVersion(version); err != nil {
		return err
	}
	if _, values := SplitVersion(version); len(values) > 0 || NamesValues(version) {
		return fmt.Errorf("%s names values of an aspect, which is released by itself: converge release %s --aspect ASPECT NAME=VALUE", version, s.fullName())
	}
	return s.checkValues(parameters, channels)
}

// CheckAspect says the same of a release of an aspect (B5).
func (s *Spec) CheckAspect(name string, parameters, channels []string) error {
	a := s.Aspect(name)
	switch {
	case len(s.Channels) == 0:
		return fmt.Errorf("%s is no longer declared", s.fullName())
	case a == nil:
		return fmt.Errorf("%s has no aspect %q%s", s.fullName(), name, Expected(s.AspectNames()))
	case len(parameters) == 0:
		return fmt.Errorf("a release of aspect %s gives values%s", name, Expected(a.Parameters))
	}
	for _, p := range parameters {
		if !slices.Contains(a.Parameters, p) {
			return fmt.Errorf("aspect %s of %s has no parameter %q%s", name, s.fullName(), p, Expected(a.Parameters))
		}
	}
	without := *s
	without.Aspects = nil
	return without.checkValues(parameters, channels)
}

// checkValues says why a release cannot give values to parameters in channels, or nil. Those of aspects are given by releases of these.
func (s *Spec) checkValues(parameters, channels []string) error {
	for _, p := range parameters {
		if known := s.ParameterNames(); !slices.Contains(known, p) {
			return fmt.Errorf("%s has no parameter %q%s", s.fullName(), p, Expected(known))
		}
		if of := s.aspectSetting(p); of != "" {
			return fmt.Errorf("parameter %s of %s is of aspect %s, which is released by itself: converge release %s --aspect %s %s=…", p, s.fullName(), of, s.fullName(), of, p)
		}
	}
	for _, c := range channels {
		if _, ok := s.Channel(c); !ok {
			return fmt.Errorf("%s has no release channel %q%s", s.fullName(), c, Expected(s.ChannelNames()))
		}
	}
	return nil
}

func (s *Spec) fullName() string { return s.Application + "/" + s.Title() }

// CheckVersion refuses what is no version. It is opaque, but it must be a name that a person can read and a script
// can quote.
func CheckVersion(v string) error {
	if v == "" {
		return fmt.Errorf("no version given")
	}
	if len(v) > 128 {
		return fmt.Errorf("the version is %d bytes long; at most 128", len(v))
	}
	for n, r := range v {
		word := r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !word && (n == 0 || !strings.ContainsRune("._+-:@~=", r)) {
			return fmt.Errorf("version %q: expected letters, digits and . _ + - : @ ~ =, beginning with a letter or digit", v)
		}
	}
	return nil
}
