package entities

import "time"

// This file holds the definitions of checks and extensions. Both are in the store, named by their digest. The decision never reads them.

// CheckDefinition says how a check is evaluated. It is in the store under its digest. Text in it may contain ${{ version }} and
// ${{ fullVersion }}, which are filled in at the evaluation. Exactly the field of its kind is set. A definition of the baseline belongs to
// no application: the evaluation adds the application, the service and the channel, and also fills in ${{ application }}, ${{ service }}
// and ${{ channel }}.
type CheckDefinition struct {
	Application string    `json:"application"`
	Service     string    `json:"service"`
	Channel     string    `json:"channel"`
	ID          string    `json:"id"`
	Kind        CheckKind `json:"kind"`
	// Dir is the directory of relative commands, relative to the application's directory. Earlier versions wrote an absolute path.
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
	// RuntimeLabels are, for the kind selection, the labels of the channel's runtimes, by runtime name.
	RuntimeLabels map[string]map[string]string `json:"runtimeLabels,omitempty"`
	ConfigRollout *ConfigRollout               `json:"configRollout,omitempty"`
	Plan          *PlanCheck                   `json:"plan,omitempty"`
}

// PlanCheck passes once the plan that deploys the service lets it enter. Versions are the versions in the configuration itself: they are
// part of its change, not manual releases.
type PlanCheck struct {
	Versions []string `json:"versions,omitempty"`
}

// ForChannel returns the definition for one channel. A definition of the baseline is shared by all channels.
func (d CheckDefinition) ForChannel(application, service, channel string) CheckDefinition {
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

// Freeze is a span in which nothing opens. From and To are dates ("2026-12-20") or local times ("2026-12-20T18:00"), or RFC 3339. If To is
// a date, it includes that day.
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

// DeniedCommits FAILs releases that bring one of the commits to the channel, with the reason. It is an ERROR while the commits of the
// release are unknown.
type DeniedCommits struct {
	Commits []string `json:"commits"` // in hex, of at least 7 digits
	Reason  string   `json:"reason,omitempty"`
}

// PrometheusQuery passes while every sample of an instant query is within its bounds. No sample is an ERROR unless Empty is "pass".
type PrometheusQuery struct {
	URL         string   `json:"url"`
	Query       string   `json:"query"`
	LessThan    *float64 `json:"lessThan,omitempty"`
	GreaterThan *float64 `json:"greaterThan,omitempty"`
	Empty       string   `json:"empty,omitempty"` // "error" (default) or "pass"
	Token       *Value   `json:"token,omitempty"` // bearer
}

// Alerts passes while no matching alert is active, neither silenced nor inhibited.
type Alerts struct {
	URL      string            `json:"url"`
	Matchers map[string]string `json:"matchers"` // label → value
	Token    *Value            `json:"token,omitempty"`
}

// HTTPCheck passes while a GET returns a listed status (default 200–299).
type HTTPCheck struct {
	URL      string           `json:"url"`
	Headers  map[string]Value `json:"headers,omitempty"`
	Statuses []int            `json:"statuses,omitempty"`
	Timeout  time.Duration    `json:"timeout,omitempty"`
}

// CheckRun is a command, on the worker's machine, as a Job or as a task: 0 passes, 1 and 3 fail, 2 waits, anything else is an ERROR. The
// last line of stdout is the reason.
type CheckRun struct {
	Command Command          `json:"command"`
	Env     map[string]Value `json:"env,omitempty"`
	Job     *CommandJob      `json:"job,omitempty"`
	Task    *CommandTask     `json:"task,omitempty"`
}

// CapacityCheck passes while the capacity is at least the recent maximum use (D19). Both come from Prometheus queries. Equality passes.
type CapacityCheck struct {
	URL string `json:"url"`
	// Use is a query of the present use. Its maximum over Over (default 24 h) counts.
	Use  string        `json:"use"`
	Over time.Duration `json:"over,omitempty"`
	// Capacity is a query of the future capacity. Or Parameter names the parameter with the capacity. Or Object names the reported object in
	// the channel whose available replicas are the capacity.
	Capacity  string  `json:"capacity,omitempty"`
	Parameter string  `json:"parameter,omitempty"`
	Object    string  `json:"object,omitempty"`
	Per       float64 `json:"per,omitempty"` // capacity of one unit of the parameter, or of one replica; default 1
	Token     *Value  `json:"token,omitempty"`
}

// CELCheck passes while a CEL expression about a CheckInput is true.
type CELCheck struct {
	Expression string `json:"expression"`
	Message    string `json:"message,omitempty"` // the reason when it is false
	Fails      bool   `json:"fails,omitempty"`   // false is FAIL; otherwise it is WAIT
}

// CompareCheck passes if a release is no worse than a control group (D26). It evaluates once, For after the objects became stable, all data
// since then. With too few samples it evaluates again at the Deadline.
type CompareCheck struct {
	URL   string `json:"url"`
	Token *Value `json:"token,omitempty"` // bearer
	// Query returns samples of the release. With Total it returns a count, and Total the total count, in the $__range.
	Query string `json:"query"`
	Total string `json:"total,omitempty"`
	// Control and ControlTotal are the queries of the control group. Without them the control group is the same query, Offset earlier.
	Control      string        `json:"control,omitempty"`
	ControlTotal string        `json:"controlTotal,omitempty"`
	Offset       time.Duration `json:"offset,omitempty"`

	Direction   string        `json:"direction"` // increase, decrease or either is for the worse
	Alpha       float64       `json:"alpha"`
	Comparisons int           `json:"comparisons"` // that share alpha: the comparisons of the channel times the evaluations
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

// DefaultComparison is a comparison for every release on a runtime. Its texts may have placeholders for the service and the channel.
type DefaultComparison struct {
	Name string       `json:"name"` // of errors, latency or restarts
	How  CompareCheck `json:"how"`
}

// ID returns the id of the comparison in a channel. Names in an application contain no slash.
func (c DefaultComparison) ID() string { return "default/" + c.Name }

// HasOneSource reports whether exactly one source of the capacity is set.
func (c *CapacityCheck) HasOneSource() bool {
	count := 0
	for _, by := range []string{c.Capacity, c.Parameter, c.Object} {
		if by != "" {
			count++
		}
	}
	return count == 1
}

// AlwaysCheck returns a fixed verdict, for tests.
type AlwaysCheck struct {
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"`
}

// Dependency is a condition on another service.
type Dependency struct {
	Service string `json:"service"`           // of the same application, or APPLICATION/SERVICE
	Channel string `json:"channel,omitempty"` // empty: the same
	// Parameter and OtherParameter are the parameters with the capacity of this service and of the other (capacityOrder).
	Parameter      string `json:"parameter,omitempty"`
	OtherParameter string `json:"otherParameter,omitempty"`
	// First: this service goes "growing" or "shrinking" before the other (capacityOrder).
	First string `json:"first,omitempty"`
}

// ExtensionDefinition is the command of an extension. It is in the store under its digest. Text in it may contain ${{ version }} and
// ${{ fullVersion }}, and references to reported values.
type ExtensionDefinition struct {
	Application string           `json:"application"`
	Service     string           `json:"service"`
	ServiceID   string           `json:"serviceId"`
	Channel     string           `json:"channel"` // of the first channel that needs it
	Name        string           `json:"name"`
	Dir         string           `json:"dir,omitempty"` // as of a check
	Command     Command          `json:"command"`
	Env         map[string]Value `json:"env,omitempty"`
	Job         *CommandJob      `json:"job,omitempty"` // nil, and no task: a process on the worker's machine
	Task        *CommandTask     `json:"task,omitempty"`
	// Outputs are the names of the reported values. Addresses are the targets of a plan whose addresses it reports.
	Outputs   []string `json:"outputs,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
}

// Reports reports whether the extension reports any values.
func (d ExtensionDefinition) Reports() bool { return len(d.Outputs)+len(d.Addresses) > 0 }
