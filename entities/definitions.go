package entities

import "time"

// This file holds what a check is evaluated by and what an extension runs. Both lie in the store, named by
// their digest; the decision never reads them.

// CheckDefinition is how a check is judged; it lies in the store under its digest. Text in it may
// leave ${{ version }} and ${{ fullVersion }} open; they are filled in when it is judged. Exactly the
// field of its kind is set. One of the baseline is of no application: where it is judged says of which, and fills in
// ${{ application }}, ${{ service }} and ${{ channel }} too.
type CheckDefinition struct {
	Application string    `json:"application"`
	Service     string    `json:"service"`
	Channel     string    `json:"channel"`
	ID          string    `json:"id"`
	Kind        CheckKind `json:"kind"`
	// Dir is where relative commands start: relative to the application's directory; absolute, as versions before wrote it.
	Dir string `json:"dir,omitempty"`

	AllowedTimes   *AllowedTimes    `json:"allowedTimes,omitempty"`
	DeniedVersions *DeniedVersions  `json:"deniedVersions,omitempty"`
	DeniedCommits  *DeniedCommits   `json:"deniedCommits,omitempty"`
	Prometheus     *PrometheusQuery `json:"prometheus,omitempty"`
	Alertmanager   *Alerts          `json:"alertmanager,omitempty"`
	HTTP           *HTTPCheck       `json:"http,omitempty"`
	Command        *CheckRun        `json:"command,omitempty"` // also of kinds job, task and selection
	Capacity       *CapacityCheck   `json:"capacity,omitempty"`
	CEL            *CELCheck        `json:"cel,omitempty"`
	Compare        *CompareCheck    `json:"compare,omitempty"`
	Always         *AlwaysCheck     `json:"always,omitempty"`
	Dependency     *Dependency      `json:"dependency,omitempty"` // of the kinds on other services
	// RuntimeLabels are, for the kind selection, those of the runtimes of the channel, by the runtimes' names.
	RuntimeLabels map[string]map[string]string `json:"runtimeLabels,omitempty"`
	ConfigRollout *ConfigRollout               `json:"configRollout,omitempty"`
	Plan          *PlanCheck                   `json:"plan,omitempty"`
}

// PlanCheck passes once the plan that deploys the service lets it enter. Versions are those that the configuration itself names: they
// are its change, and nobody's release by hand.
type PlanCheck struct {
	Versions []string `json:"versions,omitempty"`
}

// Of is the definition of one channel: one of the baseline is the same for all.
func (d CheckDefinition) Of(application, service, channel string) CheckDefinition {
	if d.Application == "" {
		d.Application, d.Service, d.Channel = application, service, channel
	}
	return d
}

// AllowedTimes passes within its windows and outside of holidays and freezes, in a time zone.
type AllowedTimes struct {
	TimeZone string       `json:"timeZone"` // IANA name
	Windows  []TimeWindow `json:"windows,omitempty"`
	// HolidayCountries ("FR", "DE-BY", "US") and dates ("2026-12-24") on which nothing opens.
	HolidayCountries []string `json:"holidayCountries,omitempty"`
	Holidays         []string `json:"holidays,omitempty"`
	Freezes          []Freeze `json:"freezes,omitempty"`
}

// TimeWindow is open on some days of the week between two times of the day.
type TimeWindow struct {
	Days  string `json:"days,omitempty"`  // "Mon-Thu", "Sat,Sun"; empty: every day
	Hours string `json:"hours,omitempty"` // "09:00-16:00", over midnight "22:00-06:00"; empty: all day
}

// Freeze is a span in which nothing opens. From and To are dates ("2026-12-20") or local times
// ("2026-12-20T18:00"), or RFC 3339; a To that is a date includes that day.
type Freeze struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason,omitempty"`
}

// DeniedVersions FAILs versions that match a glob ("v1.2.*"), with the reason.
type DeniedVersions struct {
	Versions []string `json:"versions"`
	Reason   string   `json:"reason,omitempty"`
}

// DeniedCommits FAILs what brings a commit to the channel, with the reason. It is an ERROR while it is not known which commits that brings.
type DeniedCommits struct {
	Commits []string `json:"commits"` // in hex, of at least 7 digits
	Reason  string   `json:"reason,omitempty"`
}

// PrometheusQuery passes while every sample of an instant query is within its bounds. No sample is an
// ERROR unless Empty says "pass".
type PrometheusQuery struct {
	URL         string   `json:"url"`
	Query       string   `json:"query"`
	LessThan    *float64 `json:"lessThan,omitempty"`
	GreaterThan *float64 `json:"greaterThan,omitempty"`
	Empty       string   `json:"empty,omitempty"` // "error" (default) or "pass"
	Token       *Value   `json:"token,omitempty"` // bearer
}

// Alerts passes while no alert that matches is active, neither silenced nor inhibited.
type Alerts struct {
	URL      string            `json:"url"`
	Matchers map[string]string `json:"matchers"` // label → value
	Token    *Value            `json:"token,omitempty"`
}

// HTTPCheck passes while a GET answers with a status listed (default 200–299).
type HTTPCheck struct {
	URL      string           `json:"url"`
	Headers  map[string]Value `json:"headers,omitempty"`
	Statuses []int            `json:"statuses,omitempty"`
	Timeout  time.Duration    `json:"timeout,omitempty"`
}

// CheckRun is a command, on the worker's machine, as a Job or as a task: 0 passes, 1 and 3 fail, 2 waits, anything
// else is an ERROR. The last line of stdout is the reason.
type CheckRun struct {
	Command Command          `json:"command"`
	Env     map[string]Value `json:"env,omitempty"`
	Job     *CommandJob      `json:"job,omitempty"`
	Task    *CommandTask     `json:"task,omitempty"`
}

// CapacityCheck passes while what will serve is at least the recent maximum use (D19), both by
// Prometheus queries; equality passes.
type CapacityCheck struct {
	URL string `json:"url"`
	// Use is a query of the present use; its maximum over Over (default 24 h) counts.
	Use  string        `json:"use"`
	Over time.Duration `json:"over,omitempty"`
	// Capacity is a query of what would serve, or Parameter names the parameter that says it, or Object the object that the
	// runtime reports in the channel whose available replicas say it.
	Capacity  string  `json:"capacity,omitempty"`
	Parameter string  `json:"parameter,omitempty"`
	Object    string  `json:"object,omitempty"`
	Per       float64 `json:"per,omitempty"` // of one unit of the parameter, or one replica; default 1
	Token     *Value  `json:"token,omitempty"`
}

// CELCheck passes while an expression in CEL about a CheckInput is true.
type CELCheck struct {
	Expression string `json:"expression"`
	Message    string `json:"message,omitempty"` // what it says when it is false
	Fails      bool   `json:"fails,omitempty"`   // false is FAIL; otherwise it is WAIT
}

// CompareCheck passes once what was released was seen to be no worse than a control group (D26): by one look, For after the
// objects became stable, at all since then. Where that has too few samples it looks once more, at the Deadline.
type CompareCheck struct {
	URL   string `json:"url"`
	Token *Value `json:"token,omitempty"` // bearer
	// Query gives samples of what was released; with Total, how many of so many there were in the $__range.
	Query string `json:"query"`
	Total string `json:"total,omitempty"`
	// Control and ControlTotal are those of the control group; without them it is the same so long before (Offset).
	Control      string        `json:"control,omitempty"`
	ControlTotal string        `json:"controlTotal,omitempty"`
	Offset       time.Duration `json:"offset,omitempty"`

	Direction   string        `json:"direction"` // increase, decrease or either is for the worse
	Alpha       float64       `json:"alpha"`
	Comparisons int           `json:"comparisons"` // that share alpha: those of the channel times looks
	Tolerance   float64       `json:"tolerance"`   // relative
	MinSamples  int           `json:"minSamples"`  // of each group
	DropNaN     bool          `json:"dropNaN,omitempty"`
	For         time.Duration `json:"for"`
	Step        time.Duration `json:"step"` // between samples
	Deadline    time.Duration `json:"deadline"`
	// InconclusivePasses: too few samples at the deadline are PASS; otherwise they are FAIL.
	InconclusivePasses bool `json:"inconclusivePasses,omitempty"`
	// EmptyPasses: no samples at all are PASS; otherwise they are an ERROR.
	EmptyPasses bool `json:"emptyPasses,omitempty"`
}

// DefaultComparison is a comparison of whatever is released on a runtime. Texts may leave open of which service and channel
// that is.
type DefaultComparison struct {
	Name string       `json:"name"` // of errors, latency or restarts
	How  CompareCheck `json:"how"`
}

// ID of the comparison in a channel: no name that an application gives has a slash.
func (c DefaultComparison) ID() string { return "default/" + c.Name }

// SaidOnce tells whether what would serve is said in exactly one way.
func (c *CapacityCheck) SaidOnce() bool {
	said := 0
	for _, by := range []string{c.Capacity, c.Parameter, c.Object} {
		if by != "" {
			said++
		}
	}
	return said == 1
}

// AlwaysCheck gives a fixed verdict, for trying out.
type AlwaysCheck struct {
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"`
}

// Dependency is a condition on another service.
type Dependency struct {
	Service string `json:"service"`           // of the same application, or APPLICATION/SERVICE
	Channel string `json:"channel,omitempty"` // empty: the same
	// Capacity is the parameter that says a service's capacity, of this one and of the other
	// (capacityOrder).
	Parameter      string `json:"parameter,omitempty"`
	OtherParameter string `json:"otherParameter,omitempty"`
	// First: this service goes "growing" or "shrinking" before the other (capacityOrder).
	First string `json:"first,omitempty"`
}

// ExtensionDefinition is what an extension runs; it lies in the store under its digest. Text in it
// may leave ${{ version }} and ${{ fullVersion }} open, and what others report.
type ExtensionDefinition struct {
	Application string           `json:"application"`
	Service     string           `json:"service"`
	ServiceID   string           `json:"serviceId"`
	Channel     string           `json:"channel"` // of the first that needs it
	Name        string           `json:"name"`
	Dir         string           `json:"dir,omitempty"` // as of a check
	Command     Command          `json:"command"`
	Env         map[string]Value `json:"env,omitempty"`
	Job         *CommandJob      `json:"job,omitempty"` // nil, and no task: a process on the worker's machine
	Task        *CommandTask     `json:"task,omitempty"`
	// Outputs are the names of what it reports, Addresses the targets of a plan whose addresses it reports.
	Outputs   []string `json:"outputs,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
}

// Reports tells whether it reports anything.
func (d ExtensionDefinition) Reports() bool { return len(d.Outputs)+len(d.Addresses) > 0 }
