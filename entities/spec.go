package entities

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Spec is the part of the configuration that the decision needs: channels in order, conditions, policies, deadlines. A Service workflow
// reads it once per changed digest. At most 32 KiB as JSON.
type Spec struct {
	Application string `json:"application"`
	// Service is the first name of the service. Workflows, the store and runtimes use it. Name is the current name, if it differs
	// (renamedFrom).
	Service   string `json:"service"`
	Name      string `json:"name,omitempty"`
	ServiceID string `json:"serviceId"` // PVN_SERVICE_ID: stable over the service's life (C7)
	// Others are the first names of renamed services that this one waits for, by their current names.
	Others map[string]string `json:"others,omitempty"`
	// Incarnation and Hash name the snapshot that this spec was first published with. The publisher sets them. They are not part of the spec's
	// digest.
	Incarnation int64  `json:"incarnation,omitempty"`
	Hash        string `json:"hash,omitempty"`
	// RulesOf is the number of the newest incarnation if the service is pinned to an older one: its rules apply too. A published spec does not
	// contain this field.
	RulesOf     int64         `json:"rulesOf,omitempty"`
	Description string        `json:"description,omitempty"`
	Channels    []ChannelSpec `json:"channels"` // in an order that respects conditions
	Parameters  []ParamSpec   `json:"parameters,omitempty"`
	// Version makes the file the owner of the version. InitialVersion is used once, before the first release. DeclaredAt
	// ("hello.converge.yaml:12") is the position of either.
	Version          string                  `json:"version,omitempty"`
	InitialVersion   string                  `json:"initialVersion,omitempty"`
	DeclaredAt       string                  `json:"declaredAt,omitempty"`
	ConfigChanges    ConfigChanges           `json:"configChanges"`
	Runtimes         map[string]*RuntimeSpec `json:"runtimes"`
	ProgressDeadline time.Duration           `json:"progressDeadline"`
	// Permissions, identity of callers, and notifications.
	Grants        []Grant        `json:"grants,omitempty"`
	Identity      *Identity      `json:"identity,omitempty"`
	Notifications []Notification `json:"notifications,omitempty"`
	// Remove: if the service is no longer declared, its objects are removed instead of left in place (A24).
	Remove bool `json:"remove,omitempty"`
	// Board is the address of the board. A published spec does not contain this field.
	Board string `json:"board,omitempty"`
	// Baseline: the spec includes the baseline of the installation. A published spec does not contain this field.
	Baseline *AppliedBaseline `json:"baseline,omitempty"`
	// GatedRollback: a manual rollback passes all gates, as a release does (G2).
	GatedRollback bool `json:"askGates,omitempty"`
	// NoRollbackBelow: from this version or a later one, there is no rollback to an earlier one, even after a failure.
	NoRollbackBelow string  `json:"noRollbackBelow,omitempty"`
	Maestro         Maestro `json:"maestro,omitzero"`
	// Aspects whose parameters have their own releases, by name (B5).
	Aspects []Aspect `json:"aspects,omitempty"`
}

// Maestro says how releases in flight follow each other (B3).
type Maestro struct {
	// Strategy is latest, train or immediate.
	Strategy string `json:"strategy,omitempty"`
	// HoldUntil says how long a channel is reserved for its release: HoldPromoted, or empty.
	HoldUntil string `json:"holdUntil,omitempty"`
}

// HoldPromoted reserves a channel for its release until the release was promoted into every later channel.
const HoldPromoted = "promoted"

// ConfigChanges is the policy for configuration-only changes.
type ConfigChanges string

// The policies for configuration-only changes.
const (
	ConfigRelease ConfigChanges = "release" // opens a config release
	ConfigHold    ConfigChanges = "hold"    // waits for the next release
)

// Drift is the policy for manual changes (A12).
type Drift string

// The drift policies.
const (
	DriftEnforce Drift = "enforce"
	DriftObserve Drift = "observe"
)

// ChannelSpec is one release channel of this service: its instances, and the rules for entering it.
type ChannelSpec struct {
	Name string `json:"name"`
	// Key is the first name of the channel if it was renamed. Runtimes and commands use it (renamedFrom).
	Key              string            `json:"key,omitempty"`
	Labels           map[string]string `json:"labels,omitempty"`
	Instances        []InstanceSpec    `json:"instances"`            // names unique, in display order
	Conditions       []Condition       `json:"conditions,omitempty"` // preconditions, in file order
	Checks           []Check           `json:"checks,omitempty"`     // protections and conditions on other services, in file order
	Extensions       []Extension       `json:"extensions,omitempty"` // sorted so that each comes after the extensions in its After
	Drift            Drift             `json:"drift"`
	ProgressDeadline time.Duration     `json:"progressDeadline"`
	// NoRollback turns automatic rollback off (A22).
	NoRollback bool `json:"noRollback,omitempty"`
	// OnDelete says what happens to the objects once they are no longer declared; empty: as the service says.
	OnDelete OnDelete `json:"onDelete,omitempty"`
	// Report: nothing is applied here, and pending changes are shown (A25). It is the drift policy that would apply. Empty: the channel is
	// enforced.
	Report Drift `json:"report,omitempty"`
	// Rollout is the policy by which a release reaches the instances (D24).
	Rollout *Rollout `json:"rollout,omitempty"`
}

// SetRollout sets the rollout policy of the channel. It also adds a condition of a new kind. A version that does not know the kind lets no
// release in.
func (c *ChannelSpec) SetRollout(r Rollout) {
	c.Rollout = &r
	c.Conditions = append(slices.Clip(c.Conditions), Condition{ID: string(RolloutMarker), Kind: RolloutMarker})
	if r.ByCommand() { // a version that only knows steps would see no policy
		c.Conditions = append(c.Conditions, Condition{ID: string(SelectionMarker), Kind: SelectionMarker})
	}
}

// Selection returns the check that runs the policy's command, or nil.
func (c *ChannelSpec) Selection() *Check {
	for n := range c.Checks {
		if c.Checks[n].Kind == CheckSelection {
			return &c.Checks[n]
		}
	}
	return nil
}

// MarkAspects marks the channel as one of a service with aspects, by a condition of a new kind for versions that do not know aspects.
func (c *ChannelSpec) MarkAspects() {
	c.Conditions = append(slices.Clip(c.Conditions), Condition{ID: string(AspectsMarker), Kind: AspectsMarker})
}

// SetReportOnly makes a channel report-only: it applies nothing (A25). A version that does not know that finds a condition of an unknown kind,
// which lets no release in, and a drift policy without repair.
func (c *ChannelSpec) SetReportOnly() {
	c.Report, c.Drift = cmp.Or(c.Drift, DriftEnforce), DriftObserve
	c.Conditions = append(slices.Clip(c.Conditions), Condition{ID: string(ReportOnlyMarker), Kind: ReportOnlyMarker})
}

// Enforce makes a report-only channel one that is enforced, because the service was adopted there.
func (c *ChannelSpec) Enforce() {
	c.Drift, c.Report = c.Report, ""
	c.Conditions = slices.DeleteFunc(slices.Clone(c.Conditions), func(cond Condition) bool { return cond.Kind == ReportOnlyMarker })
}

// Repairs reports whether drift is repaired here, or would be.
func (c *ChannelSpec) Repairs() bool {
	return c.Drift != DriftObserve || c.Report != "" && c.Report != DriftObserve
}

// OnDelete says what happens to objects that are no longer declared.
type OnDelete string

// Objects that are no longer declared are left in place, or removed (A24).
const (
	DeleteOrphans OnDelete = "orphan"
	DeleteRemoves OnDelete = "remove"
)

// InstanceSpec is one instance of the service in a channel.
type InstanceSpec struct {
	Name    string `json:"name"`
	Runtime string `json:"runtime"` // key of Spec.Runtimes
	// Template is the digest of the payload before a version and release parameters are filled in. An unchanged template means that a change
	// of configuration did not affect this instance.
	Template string `json:"template"`
	// MovedFrom says that the instance was on another runtime before.
	MovedFrom *MovedFrom `json:"movedFrom,omitempty"`
}

// MovedFrom is the previous runtime of an instance, and whether its leftovers there are removed.
type MovedFrom struct {
	Runtime string `json:"runtime"`
	Remove  bool   `json:"remove,omitempty"`
}

// RuntimeSpec is the part of a runtime that the decision needs.
type RuntimeSpec struct {
	Kind   RuntimeKind `json:"kind"`
	Digest string      `json:"digest"` // of the definition in the store
	Mode   FetchMode   `json:"mode,omitempty"`
	// Observable: it can be observed (C1: not without fetch).
	Observable bool          `json:"observable"`
	Remote     bool          `json:"remote,omitempty"`
	Timing     RuntimeTiming `json:"timing"`
	// MaxApplies limits the concurrent applies on the runtime, over all services; zero is no limit. ApproveApplies: every apply requires an
	// approval, including repairs and retries (C10).
	MaxApplies     int  `json:"maxApplies,omitempty"`
	ApproveApplies bool `json:"approveApplies,omitempty"`
	// CanRemove: it can remove instances (A24).
	CanRemove bool `json:"canRemove,omitempty"`
	// ReadOnly: nothing is written there (RuntimeDefinition.ReadOnly), so nothing can be adopted.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// Condition is one precondition, named uniquely in its channel ("channel-stable/staging").
type Condition struct {
	ID   string        `json:"id"`
	Kind ConditionKind `json:"kind"`
	// Channels: the channels a release must have succeeded in; selectors are resolved when compiling.
	Channels []string `json:"channels,omitempty"`
	// For: how long ago it must have succeeded in each.
	For time.Duration `json:"for,omitempty"`
	// Topic, MinApprovers and Approvers: for approval. Without approvers anyone may approve.
	Topic        string   `json:"topic,omitempty"`
	MinApprovers int      `json:"minApprovers,omitempty"`
	Approvers    []string `json:"approvers,omitempty"` // "alice", "group:sre"
	NotReleaser  bool     `json:"notReleaser,omitempty"`
}

// ConditionKind names a kind of condition.
type ConditionKind string

// The kinds of condition that depend on the state alone. ChannelStable: the release has succeeded in the named channels (A8).
// ChannelStableFor: it succeeded at least For ago. ChannelHealthy: the same, and the channels are healthy now, with any version. The id of
// each is "channel-stable/" and the channel. ManualApproval: users have approved the release (A14; the id is "approval/" and the topic). A
// version that does not know a kind reports ERROR for it, never PASS.
const (
	ChannelStable    ConditionKind = "channel-stable"
	ChannelStableFor ConditionKind = "channel-stable-for"
	ChannelHealthy   ConditionKind = "channel-healthy" // For is none, or as above
	ManualApproval   ConditionKind = "approval"
)

// These conditions are no gates. They protect features from versions that do not know them: a report-only channel, a rollout in steps, a
// rollout with a selection command, and a service with aspects.
const (
	ReportOnlyMarker ConditionKind = "report"
	RolloutMarker    ConditionKind = "rollout"
	SelectionMarker  ConditionKind = "rollout-command"
	AspectsMarker    ConditionKind = "aspects"
)

// IsMarker reports whether conditions of the kind do not depend on a release.
func (k ConditionKind) IsMarker() bool {
	return k == ReportOnlyMarker || k == RolloutMarker || k == SelectionMarker || k == AspectsMarker
}

// OnChannels reports whether conditions of the kind are about other channels.
func (k ConditionKind) OnChannels() bool {
	return k == ChannelStable || k == ChannelStableFor || k == ChannelHealthy
}

// ParamSpec declares one parameter of a service.
type ParamSpec struct {
	Name     string    `json:"name"`
	Type     ParamType `json:"type"`
	Required bool      `json:"required,omitempty"` // some channel has no value unless a release sets one
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

// Channel returns the channel with a name. A nil spec has no channels.
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

// noRuntime is used for a runtime that is not declared.
var noRuntime RuntimeSpec

// Runtime returns a declared runtime, or one without any capability. The caller must not change it.
func (s *Spec) Runtime(name string) *RuntimeSpec {
	if s != nil && s.Runtimes[name] != nil {
		return s.Runtimes[name]
	}
	return &noRuntime
}

// Instance returns the instance with an id. A nil spec has no instances.
func (s *Spec) Instance(id InstanceID) (InstanceSpec, bool) {
	c, _ := s.Channel(id.Channel)
	for _, i := range c.Instances {
		if i.Name == id.Name {
			return i, true
		}
	}
	return InstanceSpec{}, false
}

// ID returns the id of an instance of the channel.
func (c *ChannelSpec) ID(i InstanceSpec) InstanceID { return InstanceID{Channel: c.Name, Name: i.Name} }

// IDs returns the ids of the declared instances, channel by channel in the spec's order.
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

// ChannelNames returns the channels in order.
func (s *Spec) ChannelNames() []string {
	out := make([]string, 0, len(s.Channels))
	for _, c := range s.Channels {
		out = append(out, c.Name)
	}
	return out
}

// ParameterNames returns the declared parameters in order.
func (s *Spec) ParameterNames() []string {
	out := make([]string, 0, len(s.Parameters))
	for _, p := range s.Parameters {
		out = append(out, p.Name)
	}
	return out
}

// Approvals returns the approvals that a channel requires, in file order.
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

// CheckRelease returns why the declared service rejects a release of a version with values for these parameters, some of them for these
// channels only, or nil.
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
	if _, values := SplitVersion(version); len(values) > 0 || IsValuesName(version) {
		return fmt.Errorf("%s names values of an aspect, which has releases of its own: converge release %s --aspect ASPECT NAME=VALUE", version, s.fullName())
	}
	return s.checkValues(parameters, channels)
}

// CheckAspect is CheckRelease for a release of an aspect (B5).
func (s *Spec) CheckAspect(name string, parameters, channels []string) error {
	a := s.Aspect(name)
	switch {
	case len(s.Channels) == 0:
		return fmt.Errorf("%s is no longer declared", s.fullName())
	case a == nil:
		return fmt.Errorf("%s has no aspect %q%s", s.fullName(), name, Expected(s.AspectNames()))
	case len(parameters) == 0:
		return fmt.Errorf("a release of aspect %s requires values%s", name, Expected(a.Parameters))
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

// checkValues returns why a release cannot set these parameters in these channels, or nil. Parameters of an aspect are set by releases of
// the aspect.
func (s *Spec) checkValues(parameters, channels []string) error {
	for _, p := range parameters {
		if known := s.ParameterNames(); !slices.Contains(known, p) {
			return fmt.Errorf("%s has no parameter %q%s", s.fullName(), p, Expected(known))
		}
		if of := s.aspectSetting(p); of != "" {
			return fmt.Errorf("parameter %s of %s belongs to aspect %s, which has releases of its own: converge release %s --aspect %s %s=…", p, s.fullName(), of, s.fullName(), of, p)
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

// CheckVersion rejects an invalid version. A version is opaque, but it must be readable for people and easy to quote in scripts.
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
