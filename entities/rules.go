package entities

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// This file holds the rules of a channel for a release: the checks, extensions and notifications of a Spec (A19–A21).

// Stage is a stage in the life of one release in one channel: preApproval → approval → postApproval → deployment → postDeployment.
type Stage string

// The stages of checks and extensions.
const (
	PreApproval    Stage = "preApproval"
	PostApproval   Stage = "postApproval"
	Deployment     Stage = "deployment"
	PostDeployment Stage = "postDeployment"
	// Postcondition is the end of postDeployment: it must hold for the release to succeed. Extensions do not have this stage.
	Postcondition Stage = "postcondition"
	// OnRollback is not a stage of a release in progress: the release was rolled back, and the previous good version runs. At Repeated an
	// extension with an interval runs again. Nothing waits for either.
	OnRollback Stage = "rollback"
	Repeated   Stage = "repeated"
)

// BeforeEntry reports whether a stage is before the release enters.
func (s Stage) BeforeEntry() bool { return s == PreApproval || s == PostApproval || s == Deployment }

// PinnedSuffix ends the id of a protection of the pinned incarnation, where the newest has another one of the same name. No configuration may
// declare such a name.
const PinnedSuffix = "-pinned"

// Check is a condition that is evaluated outside of the workflow: a protection (A19, A20) or a condition on another service (D20–D22). Its
// CheckDefinition is in the store.
type Check struct {
	ID         string        `json:"id"` // unique in its channel; `explain` shows it and `bypass` names it
	Kind       CheckKind     `json:"kind"`
	Definition string        `json:"definition"` // digest in the store
	At         []CheckAt     `json:"at"`         // at least one
	Repairs    bool          `json:"repairs,omitempty"`
	Interval   time.Duration `json:"interval"`         // between evaluations while a release waits for it
	Remote     bool          `json:"remote,omitempty"` // evaluated by the worker of the channel's runtime
}

// RequiredService returns the service that a condition waits for, as the rules name it, or "".
func (c *Check) RequiredService() string {
	if c.Kind != CheckServiceStable && c.Kind != CheckVersionOrder && c.Kind != CheckStaticOrder {
		return ""
	}
	_, on, _ := strings.Cut(c.ID, "/")
	on, _, _ = strings.Cut(on, "@")
	return on
}

// CheckAt says when in a release's life a check runs.
type CheckAt struct {
	Stage Stage `json:"stage"`
	// Fails: at deployment, a verdict other than PASS fails the release while it is deploying. Otherwise the check only holds the release
	// before.
	Fails bool `json:"fails,omitempty"`
	// Delay and For: at postDeployment, the window begins Delay after the objects became stable, and lasts For. Any verdict in it other than
	// PASS and ERROR fails the channel. For a postcondition, For is how long it may WAIT after the end of all windows.
	Delay time.Duration `json:"delay,omitempty"`
	For   time.Duration `json:"for,omitempty"`
}

// CheckKind names a kind of check. Each has one file in activities/checks.
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
	// CheckSelection is no gate, and has no stage: a command selects the next instances of a release (D24).
	CheckSelection CheckKind = "selection"
	// On other services, observed from their workflows (D20–D22).
	CheckServiceStable CheckKind = "serviceStable"
	CheckVersionOrder  CheckKind = "versionOrder"
	CheckStaticOrder   CheckKind = "staticOrder"
	CheckCapacityOrder CheckKind = "capacityOrder"
	// CheckConfigRollout depends on the reports of all services of the application.
	CheckConfigRollout CheckKind = "configRollout"
	// CheckPlan depends on the plan that deploys the service (E1).
	CheckPlan CheckKind = "plan"
)

// SelectionID is the id of the check of kind selection. Names in an application contain no slash.
const SelectionID = "rollout/command"

// OnOthers reports whether a kind depends on the report of another service.
func (k CheckKind) OnOthers() bool {
	return k == CheckServiceStable || k == CheckVersionOrder || k == CheckStaticOrder || k == CheckCapacityOrder
}

// Offline reports whether a kind depends only on its definition, the version and the time. It is evaluated at once, without any request.
func (k CheckKind) Offline() bool {
	return k == CheckAllowedTimes || k == CheckDeniedVersions || k == CheckAlways
}

// Extension is a user's command that runs once per release at a stage (A21). Its ExtensionDefinition is in the store.
type Extension struct {
	Name       string   `json:"name"` // unique in its channel
	Stage      Stage    `json:"stage"`
	Definition string   `json:"definition"` // digest in the store
	After      []string `json:"after,omitempty"`
	// Key: extensions with the same name, stage and key run once for all channels that share it. The default is the channel's name.
	Key          string        `json:"key"`
	Every        time.Duration `json:"every,omitempty"` // runs again this long after it ended, while the release stays; 0: once
	Timeout      time.Duration `json:"timeout"`
	MaxAttempts  int           `json:"maxAttempts"`
	RetryBackoff time.Duration `json:"retryBackoff"` // doubles up to RetryMax
	RetryMax     time.Duration `json:"retryMax"`
	Remote       bool          `json:"remote,omitempty"`
	Place        string        `json:"place,omitempty"` // where it runs, for people; empty: not shown
}

// Notification sends chosen events to an external address (at least once).
type Notification struct {
	Name   string   `json:"name"`
	URL    Value    `json:"url"`              // a literal, or a variable of the worker's environment
	Format string   `json:"format,omitempty"` // "json" (default) or "slack"
	Events []string `json:"events"`           // kinds of AuditEntry
}

// Undelivered is a notification that did not take its next entry, after several attempts. It is sent again until it is delivered.
type Undelivered struct {
	Notification string    `json:"notification"` // its name
	Since        time.Time `json:"since"`        // the time of the next entry
	Entries      int       `json:"entries"`      // that wait for it
	Error        string    `json:"error"`        // of the last attempts
}

// Text describes it for people.
func (u Undelivered) Text() string {
	return fmt.Sprintf("notification %s has taken nothing since %s (%d waiting): %s", u.Notification, u.Since.UTC().Format("2006-01-02 15:04 UTC"), u.Entries, u.Error)
}

// FirstGateStage returns the first stage at which a check holds a release back, or "".
func (c *Check) FirstGateStage() Stage {
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

// AtStage returns when a check runs at a stage, or nil.
func (c *Check) AtStage(stage Stage) *CheckAt {
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

// Repeating returns the extension for its repeated runs, while its release stays. Their key differs from that of the run that the release
// waited for.
func (e Extension) Repeating() Extension {
	e.Stage = Repeated
	return e
}

// ExtensionName returns the name of the extension in a run key.
func ExtensionName(runKey string) string {
	_, name, _ := strings.Cut(runKey, "/")
	name, _, _ = strings.Cut(name, "@")
	return name
}

// Window is one post-deployment check of a channel, and the time in which its verdict counts.
type Window struct {
	Check      *Check
	Key        string // unique among the windows of the channel
	Begin, End time.Time
	// Until is the deadline of a postcondition, which may WAIT until then. Its window has no length, and begins when the objects became
	// stable. Zero: it is no postcondition.
	Until time.Time
}

// Windows returns the windows of a channel whose objects became stable at a time.
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
		if at := c.Checks[n].AtStage(Postcondition); at != nil {
			out = append(out, Window{Check: &c.Checks[n], Key: c.Checks[n].ID, Begin: stable, End: stable, Until: ended.Add(at.For)})
		}
	}
	return out
}

// RunsAfterDeployment reports whether a check runs after the objects are stable.
func (c *Check) RunsAfterDeployment() bool {
	return c.AtStage(PostDeployment) != nil || c.AtStage(Postcondition) != nil
}

// HasSoak reports whether any check runs between stable objects and success.
func (c *ChannelSpec) HasSoak() bool {
	for n := range c.Checks {
		if c.Checks[n].RunsAfterDeployment() {
			return true
		}
	}
	return slices.ContainsFunc(c.Extensions, func(e Extension) bool { return e.Stage == PostDeployment })
}
