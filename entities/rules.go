package entities

import "time"

// This file holds the rules of a channel that stand between a release and its target: what a Spec
// says of checks, extensions, people and who is told (A14, A19–A21; DESIGN section 4).

// Stage is a stage in the life of one release in one channel:
// preApproval → approval → postApproval → deployment → postDeployment.
type Stage string

// The stages at which checks and extensions may stand.
const (
	PreApproval    Stage = "preApproval"
	PostApproval   Stage = "postApproval"
	Deployment     Stage = "deployment"
	PostDeployment Stage = "postDeployment"
)

// Check is a condition that something outside the workflow judges: a protection (A19, A20) or a
// condition on another service (D20–D22). How it is judged lies in the store as a CheckDefinition.
type Check struct {
	ID         string        `json:"id"` // unique in its channel; what `explain` shows and `bypass` names
	Kind       CheckKind     `json:"kind"`
	Definition string        `json:"definition"` // digest in the store
	At         []CheckAt     `json:"at"`         // at least one
	Repairs    bool          `json:"repairs,omitempty"`
	Interval   time.Duration `json:"interval"` // between looks while a release waits for it
}

// CheckAt says when in a release's life a check is asked.
type CheckAt struct {
	Stage Stage `json:"stage"`
	// Fails: at deployment, a verdict that is not PASS fails the release while it is deploying;
	// otherwise the check only holds it before.
	Fails bool `json:"fails,omitempty"`
	// Delay and For: at postDeployment, the window begins so long after the objects became stable,
	// and lasts so long. Any verdict in it that is neither PASS nor ERROR fails the channel.
	Delay time.Duration `json:"delay,omitempty"`
	For   time.Duration `json:"for,omitempty"`
}

// CheckKind names a way to judge a check; each is one file in activities/checks.
type CheckKind string

// The kinds of check.
const (
	CheckAllowedTimes   CheckKind = "allowedTimes"
	CheckDeniedVersions CheckKind = "deniedVersions"
	CheckPrometheus     CheckKind = "prometheus"
	CheckAlertmanager   CheckKind = "alertmanager"
	CheckHTTP           CheckKind = "http"
	CheckCommand        CheckKind = "command"
	CheckJob            CheckKind = "job"
	CheckCapacity       CheckKind = "capacity"
	CheckAlways         CheckKind = "always"
	// On other services, observed from their workflows (D20–D22).
	CheckServiceStable CheckKind = "serviceStable"
	CheckVersionOrder  CheckKind = "versionOrder"
	CheckStaticOrder   CheckKind = "staticOrder"
	CheckCapacityOrder CheckKind = "capacityOrder"
)

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
	Timeout      time.Duration `json:"timeout"`
	MaxAttempts  int           `json:"maxAttempts"`
	RetryBackoff time.Duration `json:"retryBackoff"` // doubles up to RetryMax
	RetryMax     time.Duration `json:"retryMax"`
	Remote       bool          `json:"remote,omitempty"`
}

// Grant says who may do what (authorization of the application). Verbs and channels that are not
// named are not granted. Who nobody granted anything about a verb may do it: a verb is guarded from
// the first grant that names it.
type Grant struct {
	Verbs    []string `json:"verbs"`              // "release", "approve"… or "*"
	Channels []string `json:"channels,omitempty"` // empty: all
	To       []string `json:"to"`                 // "alice@shop.dev", "group:sre"
}

// Identity is how callers prove who they are: an OIDC ID token in the payload.
type Identity struct {
	Issuer   string `json:"issuer"`
	Audience string `json:"audience"`
	// KeysURL: where the keys are, when the issuer's discovery document cannot be reached from workers.
	KeysURL     string `json:"keysUrl,omitempty"`
	UserClaim   string `json:"userClaim,omitempty"`   // default "email", then "sub"
	GroupsClaim string `json:"groupsClaim,omitempty"` // default "groups"
	// Required: verbs that are refused without proof; "*" is every verb that changes something.
	Required []string `json:"required,omitempty"`
}

// Who is a caller: proven by a token, or stated and shown as such.
type Who struct {
	Name   string   `json:"name"`
	Groups []string `json:"groups,omitempty"`
	Proven bool     `json:"proven,omitempty"`
}

// Notification tells somewhere outside of chosen events (at least once).
type Notification struct {
	Name   string   `json:"name"`
	URL    Value    `json:"url"`              // a literal, or a variable of the worker's environment
	Format string   `json:"format,omitempty"` // "json" (default) or "slack"
	Events []string `json:"events"`           // kinds of AuditLine
}

// CheckDefinition is how a check is judged; it lies in the store under its digest. Text in it may
// leave ${{ version }} and ${{ fullVersion }} open; they are filled in when it is judged. Exactly the
// field of its kind is set.
type CheckDefinition struct {
	Application string    `json:"application"`
	Service     string    `json:"service"`
	Channel     string    `json:"channel"`
	ID          string    `json:"id"`
	Kind        CheckKind `json:"kind"`
	Dir         string    `json:"dir,omitempty"` // absolute; relative commands start here

	AllowedTimes   *AllowedTimes    `json:"allowedTimes,omitempty"`
	DeniedVersions *DeniedVersions  `json:"deniedVersions,omitempty"`
	Prometheus     *PrometheusQuery `json:"prometheus,omitempty"`
	Alertmanager   *Alerts          `json:"alertmanager,omitempty"`
	HTTP           *HTTPCheck       `json:"http,omitempty"`
	Command        *CheckRun        `json:"command,omitempty"` // also of kind job
	Capacity       *CapacityCheck   `json:"capacity,omitempty"`
	Always         *AlwaysCheck     `json:"always,omitempty"`
	Dependency     *Dependency      `json:"dependency,omitempty"` // of the kinds on other services
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

// CheckRun is a command, on the worker's machine or as a Job: 0 passes, 2 waits, 3 fails, anything
// else is an ERROR. The last line of stdout is the reason.
type CheckRun struct {
	Command Command          `json:"command"`
	Env     map[string]Value `json:"env,omitempty"`
	Job     *CommandJob      `json:"job,omitempty"`
}

// CapacityCheck passes while what will serve is at least the recent maximum use (D19), both by
// Prometheus queries; equality passes.
type CapacityCheck struct {
	URL string `json:"url"`
	// Use is a query of the present use; its maximum over Over (default 24 h) counts.
	Use  string        `json:"use"`
	Over time.Duration `json:"over,omitempty"`
	// Capacity is a query of what would serve, or Parameter names the parameter that says it.
	Capacity  string  `json:"capacity,omitempty"`
	Parameter string  `json:"parameter,omitempty"`
	Per       float64 `json:"per,omitempty"` // of one unit of the parameter; default 1
	Token     *Value  `json:"token,omitempty"`
}

// AlwaysCheck gives a fixed verdict, for trying out.
type AlwaysCheck struct {
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"`
}

// Dependency is a condition on another service of the application.
type Dependency struct {
	Service string `json:"service"`
	Channel string `json:"channel,omitempty"` // empty: the same
	// Capacity is the parameter that says a service's capacity, of this one and of the other
	// (capacityOrder).
	Parameter      string `json:"parameter,omitempty"`
	OtherParameter string `json:"otherParameter,omitempty"`
	// First: this service goes "growing" or "shrinking" before the other (capacityOrder).
	First string `json:"first,omitempty"`
}

// ExtensionDefinition is what an extension runs; it lies in the store under its digest. Text in it
// may leave ${{ version }} and ${{ fullVersion }} open.
type ExtensionDefinition struct {
	Application string           `json:"application"`
	Service     string           `json:"service"`
	ServiceID   string           `json:"serviceId"`
	Channel     string           `json:"channel"` // of the first that needs it
	Name        string           `json:"name"`
	Dir         string           `json:"dir,omitempty"`
	Command     Command          `json:"command"`
	Env         map[string]Value `json:"env,omitempty"`
	Job         *CommandJob      `json:"job,omitempty"` // nil: a process on the worker's machine
}
