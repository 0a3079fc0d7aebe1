package entities

import "time"

// Spec is what of the configuration the decision needs: channels in order, conditions, policies,
// deadlines. A Service workflow reads it once per changed digest (DESIGN section 3). At most 32 KiB
// as JSON.
type Spec struct {
	Application string `json:"application"`
	Service     string `json:"service"`
	ServiceID   string `json:"serviceId"` // PVN_SERVICE_ID: stable over the service's life (C7)
	// Incarnation and Hash name the snapshot this spec was first published with; they are set by
	// whoever publishes and are not part of the spec's digest.
	Incarnation int64         `json:"incarnation,omitempty"`
	Hash        string        `json:"hash,omitempty"`
	Description string        `json:"description,omitempty"`
	Channels    []ChannelSpec `json:"channels"` // in an order that respects conditions
	Parameters  []ParamSpec   `json:"parameters,omitempty"`
	// Version makes the file the owner of the version; InitialVersion is used once, when nothing
	// was released. DeclaredAt ("hello.converge.yaml:12") says where either stands.
	Version          string                 `json:"version,omitempty"`
	InitialVersion   string                 `json:"initialVersion,omitempty"`
	DeclaredAt       string                 `json:"declaredAt,omitempty"`
	ConfigChanges    ConfigChanges          `json:"configChanges"`
	Runtimes         map[string]RuntimeSpec `json:"runtimes"`
	ProgressDeadline time.Duration          `json:"progressDeadline"`
	// Who may do what, how callers prove who they are, and who is told.
	Grants        []Grant        `json:"grants,omitempty"`
	Identity      *Identity      `json:"identity,omitempty"`
	Notifications []Notification `json:"notifications,omitempty"`
	// Remove: when the service is no longer declared, its objects are removed instead of left (A24).
	Remove bool `json:"remove,omitempty"`
}

// ConfigChanges says what a configuration-only change does.
type ConfigChanges string

// The policies for configuration-only changes (INTERFACE section 1).
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

// ChannelSpec is one release channel as this service sees it: the instance that lives there and
// the rules for entering it.
type ChannelSpec struct {
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels,omitempty"`
	Runtime string            `json:"runtime"` // key of Spec.Runtimes
	// Template is the digest of the payload before a version and release parameters are filled
	// in: equal templates mean that a change of configuration did not touch this channel.
	Template         string        `json:"template"`
	Conditions       []Condition   `json:"conditions,omitempty"` // preconditions, in file order
	Checks           []Check       `json:"checks,omitempty"`     // protections and conditions on other services, in file order
	Extensions       []Extension   `json:"extensions,omitempty"` // so that each comes after those it names
	Drift            Drift         `json:"drift"`
	ProgressDeadline time.Duration `json:"progressDeadline"`
	// NoRollback turns automatic rollback off (A22).
	NoRollback bool `json:"noRollback,omitempty"`
}

// RuntimeSpec is the part of a runtime that the decision needs.
type RuntimeSpec struct {
	Kind   RuntimeKind   `json:"kind"`
	Digest string        `json:"digest"` // of the definition in the store
	Mode   FetchMode     `json:"mode,omitempty"`
	Looks  bool          `json:"looks"` // it can be observed at all (C1: without fetch it cannot)
	Remote bool          `json:"remote,omitempty"`
	Timing RuntimeTiming `json:"timing"`
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
	// Channels: for channel-stable, the channels a release must have succeeded in; selectors are
	// resolved when compiling.
	Channels []string `json:"channels,omitempty"`
	// Topic, MinApprovers and Approvers: for approval. No approvers: anybody.
	Topic        string   `json:"topic,omitempty"`
	MinApprovers int      `json:"minApprovers,omitempty"`
	Approvers    []string `json:"approvers,omitempty"` // "alice", "group:sre"
}

// ConditionKind names a way to judge a condition.
type ConditionKind string

// The kinds of condition that the state itself answers: the release has succeeded in the named
// channels (A8), and people have approved it (A14; the id is "approval/" and the topic).
const (
	ChannelStable  ConditionKind = "channel-stable"
	ManualApproval ConditionKind = "approval"
)

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
	for _, c := range s.Channels {
		if c.Name == name {
			return c, true
		}
	}
	return ChannelSpec{}, false
}
