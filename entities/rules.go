package entities

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// This file holds the rules of a channel that stand between a release and its target: what a Spec
// says of checks, extensions and notifications (A19–A21).

// Stage is a stage in the life of one release in one channel:
// preApproval → approval → postApproval → deployment → postDeployment.
type Stage string

// The stages at which checks and extensions may stand.
const (
	PreApproval    Stage = "preApproval"
	PostApproval   Stage = "postApproval"
	Deployment     Stage = "deployment"
	PostDeployment Stage = "postDeployment"
	// Postcondition is the last of postDeployment: what must hold for the release to have succeeded. It is no stage of an extension.
	Postcondition Stage = "postcondition"
	// OnRollback is no stage of a release that goes on: it was taken back, and what was good before is there. Repeated is where an
	// extension runs again that has an interval. Nothing waits for either.
	OnRollback Stage = "rollback"
	Repeated   Stage = "repeated"
)

// Before tells whether what runs at a stage runs before the release enters.
func (s Stage) Before() bool { return s == PreApproval || s == PostApproval || s == Deployment }

// Check is a condition that something outside the workflow judges: a protection (A19, A20) or a
// condition on another service (D20–D22). How it is judged lies in the store as a CheckDefinition.
type Check struct {
	ID         string        `json:"id"` // unique in its channel; what `explain` shows and `bypass` names
	Kind       CheckKind     `json:"kind"`
	Definition string        `json:"definition"` // digest in the store
	At         []CheckAt     `json:"at"`         // at least one
	Repairs    bool          `json:"repairs,omitempty"`
	Interval   time.Duration `json:"interval"`         // between evaluations while a release waits for it
	Remote     bool          `json:"remote,omitempty"` // evaluated by the worker of the channel's runtime
}

// Needs is the service that a condition on another one waits for, as rules name it; "": it waits for none.
func (c *Check) Needs() string {
	if c.Kind != CheckServiceStable && c.Kind != CheckVersionOrder && c.Kind != CheckStaticOrder {
		return ""
	}
	_, on, _ := strings.Cut(c.ID, "/")
	on, _, _ = strings.Cut(on, "@")
	return on
}

// CheckAt says when in a release's life a check is asked.
type CheckAt struct {
	Stage Stage `json:"stage"`
	// Fails: at deployment, a verdict that is not PASS fails the release while it is deploying;
	// otherwise the check only holds it before.
	Fails bool `json:"fails,omitempty"`
	// Delay and For: at postDeployment, the window begins so long after the objects became stable,
	// and lasts so long. Any verdict in it that is neither PASS nor ERROR fails the channel.
	// For, of a postcondition: how long it may WAIT once all windows have ended.
	Delay time.Duration `json:"delay,omitempty"`
	For   time.Duration `json:"for,omitempty"`
}

// CheckKind names a way to judge a check; each is one file in activities/checks.
type CheckKind string

// The kinds of check.
const (
	CheckAllowedTimes   CheckKind = "allowedTimes"
	CheckDeniedVersions CheckKind = "deniedVersions"
	CheckDeniedCommits  CheckKind = "deniedCommits"
	CheckPrometheus     CheckKind = "prometheus"
	CheckAlertmanager   CheckKind = "alertmanager"
	CheckHTTP           CheckKind = "http"
	CheckCommand        CheckKind = "command"
	CheckJob            CheckKind = "job"
	CheckTask           CheckKind = "task"
	CheckCapacity       CheckKind = "capacity"
	CheckCEL            CheckKind = "cel"
	CheckCompare        CheckKind = "compare"
	CheckAlways         CheckKind = "always"
	// CheckSelection is no gate, and asked at no stage: a command says which instances a release goes to next (D24).
	CheckSelection CheckKind = "selection"
	// On other services, observed from their workflows (D20–D22).
	CheckServiceStable CheckKind = "serviceStable"
	CheckVersionOrder  CheckKind = "versionOrder"
	CheckStaticOrder   CheckKind = "staticOrder"
	CheckCapacityOrder CheckKind = "capacityOrder"
	// CheckConfigRollout is judged by what all services of the application say.
	CheckConfigRollout CheckKind = "configRollout"
	// CheckPlan is judged by the plan that deploys the service (E1).
	CheckPlan CheckKind = "plan"
)

// SelectionID is the id of the check of kind selection: no name that an application gives has a slash.
const SelectionID = "rollout/command"

// OnOthers tells whether a kind is judged by what another service says.
func (k CheckKind) OnOthers() bool {
	return k == CheckServiceStable || k == CheckVersionOrder || k == CheckStaticOrder || k == CheckCapacityOrder
}

// Offline tells whether a kind is judged from its definition, the version and the time alone: at once,
// without asking anybody.
func (k CheckKind) Offline() bool {
	return k == CheckAllowedTimes || k == CheckDeniedVersions || k == CheckAlways
}

// Extension is a command of the user's that runs once per release at a stage (A21). What it runs
// lies in the store as an ExtensionDefinition.
type Extension struct {
	Name       string   `json:"name"` // unique in its channel
	Stage      Stage    `json:"stage"`
	Definition string   `json:"definition"` // digest in the store
	After      []string `json:"after,omitempty"`
	// Key: extensions of one name, stage and key run once for all the channels that share it. It is
	// the channel's name unless the configuration says otherwise.
	Key          string        `json:"key"`
	Every        time.Duration `json:"every,omitempty"` // runs again so long after it ended, while the release stays; 0: once
	Timeout      time.Duration `json:"timeout"`
	MaxAttempts  int           `json:"maxAttempts"`
	RetryBackoff time.Duration `json:"retryBackoff"` // doubles up to RetryMax
	RetryMax     time.Duration `json:"retryMax"`
	Remote       bool          `json:"remote,omitempty"`
	Place        string        `json:"place,omitempty"` // where it runs, for people; empty: nothing is said of it
}

// Notification tells somewhere outside of chosen events (at least once).
type Notification struct {
	Name   string   `json:"name"`
	URL    Value    `json:"url"`              // a literal, or a variable of the worker's environment
	Format string   `json:"format,omitempty"` // "json" (default) or "slack"
	Events []string `json:"events"`           // kinds of AuditLine
}

// Before is the first stage at which a check holds a release back, or "".
func (c *Check) Before() Stage {
	first := Stage("")
	for _, at := range c.At {
		switch {
		case at.Stage == PreApproval:
			return PreApproval
		case at.Stage == PostApproval, at.Stage == Deployment && first == "":
			first = at.Stage
		}
	}
	return first
}

// Asked is when a check is asked at a stage, or nil.
func (c *Check) Asked(stage Stage) *CheckAt {
	for i := range c.At {
		if c.At[i].Stage == stage {
			return &c.At[i]
		}
	}
	return nil
}

// RunKey names one run of an extension among those of a release.
func (e Extension) RunKey() string { return string(e.Stage) + "/" + e.Name + "@" + e.Key }

// ExtensionRun names the run of an extension for a release.
func ExtensionRun(release, runKey string) string { return "extension/" + release + "/" + runKey }

// Again is the extension as it runs again, while its release stays: apart from the run that the release waited for.
func (e Extension) Again() Extension {
	e.Stage = Repeated
	return e
}

// ExtensionName is the name of the extension that a run's key is of.
func ExtensionName(runKey string) string {
	_, name, _ := strings.Cut(runKey, "/")
	name, _, _ = strings.Cut(name, "@")
	return name
}

// Window is one post-deployment check of a channel, from when to when its verdict counts.
type Window struct {
	Check      *Check
	Key        string // names it among the windows of the channel
	Begin, End time.Time
	// Until is when a postcondition must have passed, at the latest: it may WAIT. Its window has no length, and begins
	// when the objects became stable. Zero: it is none.
	Until time.Time
}

// Windows of a channel whose objects are stable since then.
func (c *ChannelSpec) Windows(stable time.Time) []Window {
	var out []Window
	for n := range c.Checks {
		check := &c.Checks[n]
		for _, at := range check.At {
			if at.Stage == PostDeployment {
				begin := stable.Add(at.Delay)
				out = append(out, Window{Check: check, Key: fmt.Sprintf("%s+%s", check.ID, at.Delay+at.For), Begin: begin, End: begin.Add(at.For)})
			}
		}
	}
	ended := stable
	for _, w := range out {
		if w.End.After(ended) {
			ended = w.End
		}
	}
	for n := range c.Checks {
		if at := c.Checks[n].Asked(Postcondition); at != nil {
			out = append(out, Window{Check: &c.Checks[n], Key: c.Checks[n].ID, Begin: stable, End: stable, Until: ended.Add(at.For)})
		}
	}
	return out
}

// After tells whether a check is asked once the objects are stable.
func (c *Check) After() bool { return c.Asked(PostDeployment) != nil || c.Asked(Postcondition) != nil }

// Soaks tells whether anything comes between stable objects and success.
func (c *ChannelSpec) Soaks() bool {
	for n := range c.Checks {
		if c.Checks[n].After() {
			return true
		}
	}
	return slices.ContainsFunc(c.Extensions, func(e Extension) bool { return e.Stage == PostDeployment })
}
