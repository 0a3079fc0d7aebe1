package config

import (
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// This file has what a protection can ask.

// ProtectionKind is how a protection is evaluated. Exactly one field is given.
type ProtectionKind struct {
	// Passes within windows of time, outside of holidays and freezes.
	AllowedTimes *AllowedTimes `json:"allowedTimes,omitempty"`
	// Refuses versions.
	DeniedVersions *DeniedVersions `json:"deniedVersions,omitempty"`
	// Refuses what brings commits.
	DeniedCommits *DeniedCommits `json:"deniedCommits,omitempty"`
	// Passes while the samples of a Prometheus query are within bounds.
	Prometheus *PrometheusProtection `json:"prometheus,omitempty"`
	// Passes while no alert is active that is neither silenced nor inhibited.
	Alertmanager *AlertmanagerProtection `json:"alertmanager,omitempty"`
	// Passes while an address answers well.
	HTTP *HTTPProtection `json:"http,omitempty"`
	// Asks a command, run by the worker: exit code 0 passes, 1 and 3 fail, 2 waits, anything else is
	// an error. The last line of its output is the reason.
	Command *CommandProtection `json:"command,omitempty"`
	// Asks a command, run as a Kubernetes Job, which answers in the same way.
	Job *JobProtection `json:"job,omitempty"`
	// Asks a command, run as a task of Amazon ECS, which answers in the same way.
	Task *TaskProtection `json:"task,omitempty"`
	// Passes while what will serve is at least the recent maximum use.
	Capacity *CapacityProtection `json:"capacity,omitempty"`
	// Passes while an expression about the release, its phases and the objects in the channel is true.
	CEL *CELProtection `json:"cel,omitempty"`
	// Passes once what was released was seen to be no worse than a control group. Of a postcondition only.
	Compare *CompareProtection `json:"compare,omitempty"`
	// Gives a fixed verdict, for trying out.
	Always *AlwaysProtection `json:"always,omitempty"`
}

// AllowedTimes passes within its windows, outside of holidays and freezes.
type AllowedTimes struct {
	// The name of a time zone, such as Europe/Paris.
	TimeZone string `json:"timeZone"`
	// When it is open; always when not given.
	Windows []TimeWindow `json:"windows,omitempty"`
	// Countries on whose public holidays it is closed: FR, US, DE-BY.
	HolidayCountries []string `json:"holidayCountries,omitempty"`
	// Further days on which it is closed: "2026-12-24".
	Holidays []string `json:"holidays,omitempty"`
	// Spans in which it is closed.
	Freezes []Freeze `json:"freezes,omitempty"`
}

// TimeWindow is open on some days of the week, between two times of the day.
type TimeWindow struct {
	// Days of the week: Mon-Thu, or Sat,Sun; every day when not given.
	Days string `json:"days,omitempty"`
	// Times of the day: "09:00-16:00", or over midnight "22:00-06:00"; all day when not given.
	Hours string `json:"hours,omitempty"`
}

// Freeze is a span in which nothing opens.
type Freeze struct {
	// Its first day "2026-12-20", a local time "2026-12-20T18:00", or a time with its zone.
	From string `json:"from"`
	// Its last day, which belongs to it, or the time at which it ends.
	To string `json:"to"`
	// Why, for people.
	Reason string `json:"reason,omitempty"`
}

// DeniedVersions refuses versions.
type DeniedVersions struct {
	// Versions, or patterns of them: v1.2.*
	Versions []string `json:"versions"`
	// Why, for people.
	Reason string `json:"reason,omitempty"`
}

// DeniedCommits refuses what brings commits that the channel does not have.
type DeniedCommits struct {
	// Commits of the repository that the configuration comes from, in hex, of at least 7 digits.
	Commits []string `json:"commits"`
	// Why, for people.
	Reason string `json:"reason,omitempty"`
}

// PrometheusProtection passes while every sample of an instant query is within bounds.
type PrometheusProtection struct {
	// The address of the server: http://prometheus:9090
	URL string `json:"url"`
	// The query, in PromQL.
	Query string `json:"query"`
	// Every sample must be less than this.
	LessThan *Number `json:"lessThan,omitempty"`
	// Every sample must be greater than this.
	GreaterThan *Number `json:"greaterThan,omitempty"`
	// What no sample at all means: an error, or passing.
	Empty EmptyResult `json:"empty,omitempty" jsonschema:"default=error"`
	// A token to send along.
	Token *EnvValue `json:"token,omitempty"`
}

// EmptyResult is error or pass.
type EmptyResult string

// Values lists what may stand in the file.
func (EmptyResult) Values() []string { return []string{"error", "pass"} }

// AlertmanagerProtection passes while no alert that matches is active.
type AlertmanagerProtection struct {
	// The address of the server: http://alertmanager:9093
	URL string `json:"url"`
	// Labels that an alert must all have to count.
	Matchers map[string]string `json:"matchers"`
	// A token to send along.
	Token *EnvValue `json:"token,omitempty"`
}

// HTTPProtection passes while a GET answers with one of the statuses.
type HTTPProtection struct {
	// The address.
	URL string `json:"url"`
	// Headers to send along.
	Headers map[string]EnvValue `json:"headers,omitempty"`
	// Statuses that pass; 200 to 299 when not given.
	Statuses []int `json:"statuses,omitempty"`
	// How long it may take.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=10s"`
}

// CommandProtection asks a command that starts in the directory of this file, without a shell.
type CommandProtection struct {
	// The program and its arguments.
	Command []string `json:"command"`
	// Environment variables for it.
	Env map[EnvName]EnvValue `json:"env,omitempty"`
	// How long it may take.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=30s"`
}

// JobProtection asks a command that runs as a Kubernetes Job.
type JobProtection struct {
	// The program and its arguments.
	Command []string `json:"command"`
	// Environment variables for it.
	Env map[EnvName]EnvValue `json:"env,omitempty"`
	// How long it may take.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=5m"`
	CommandJob
}

// TaskProtection asks a command that runs as a task of Amazon ECS.
type TaskProtection struct {
	// The program and its arguments.
	Command []string `json:"command"`
	// Environment variables for it. No secrets: who may describe the task reads them.
	Env map[EnvName]EnvValue `json:"env,omitempty"`
	// How long it may take.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=5m"`
	CommandTask
}

// CapacityProtection passes while what will serve is at least the recent maximum use.
type CapacityProtection struct {
	// The address of a Prometheus server.
	URL string `json:"url"`
	// A query of the present use, whose recent maximum counts.
	Use string `json:"use"`
	// How far back the maximum is searched.
	Over Duration `json:"over,omitempty" jsonschema:"default=24h"`
	// A query of what would serve. One of this, parameter and object is given.
	Capacity string `json:"capacity,omitempty"`
	// The parameter of the service that says what would serve.
	Parameter ParameterName `json:"parameter,omitempty"`
	// The object in the channel whose available replicas say what serves, as the runtime reports it: where an autoscaler decides.
	Object string `json:"object,omitempty"`
	// What one unit of the parameter, or one replica, serves.
	Per *Number `json:"per,omitempty" jsonschema:"default=1"`
	// A token to send along.
	Token *EnvValue `json:"token,omitempty"`
}

// CELProtection passes while an expression is true.
type CELProtection struct {
	// The expression, in CEL, which yields true or false: objects.all(o, o.status == "SUCCEEDED")
	Expression string `json:"expression"`
	// What it says when the expression is false, for people.
	Message string `json:"message,omitempty"`
	// What false means: waiting, or failing.
	OnFalse FalseMeaning `json:"onFalse,omitempty" jsonschema:"default=wait"`
}

// FalseMeaning is wait or fail.
type FalseMeaning string

// Values lists what may stand in the file.
func (FalseMeaning) Values() []string { return []string{"wait", "fail"} }

// CompareProtection compares what was released with a control group, by a statistical test.
type CompareProtection struct {
	// Where samples come from, and those of what was released.
	Prometheus ComparedQuery `json:"prometheus"`
	// What it is compared with: query or offset.
	Control ControlGroup `json:"control"`
	// What is for the worse.
	Direction ChangeDirection `json:"direction,omitempty" jsonschema:"default=increase"`
	// How often, at most, a release that changes nothing is taken for worse in the channel; 0.01 when not given. All comparisons there share it.
	Alpha *Number `json:"alpha,omitempty"`
	// How many looks share alpha too, such as those in several channels.
	Looks int `json:"looks,omitempty" jsonschema:"default=1"`
	// The least change that counts, relative to the control group: 0.1, which is 10 %, when not given.
	Tolerance *Number `json:"tolerance,omitempty"`
	// How many samples each group must have, or requests, where these are counted: 20 samples or 200 requests when not given.
	MinSamples int `json:"minSamples,omitempty"`
	// What samples mean that are no finite number: an error, or nothing.
	NaNStrategy NaNStrategy `json:"nanStrategy,omitempty" jsonschema:"default=error"`
	// What no samples at all mean: an error, or passing.
	Empty EmptyResult `json:"empty,omitempty" jsonschema:"default=error"`
	// How long samples are taken, from when the objects became stable. Then it looks.
	For Duration `json:"for"`
	// When it looks once more, counted as for is, if there were too few samples; twice for when not given.
	Deadline Duration `json:"deadline,omitempty"`
	// The time between samples; so that there are half as many again as minSamples when not given, and 15s at least.
	Step Duration `json:"step,omitempty"`
	// What too few samples mean at the deadline.
	Inconclusive InconclusiveMeaning `json:"inconclusive,omitempty" jsonschema:"default=fail"`
}

// ComparedQuery is where samples of what was released come from.
type ComparedQuery struct {
	// The address of the server: http://prometheus:9090
	URL string `json:"url"`
	// A query of one series, in PromQL; with total, of a number in the $__range.
	Query string `json:"query"`
	// A query of the number of which query is a part: shares are compared, such as that of errors in requests.
	Total string `json:"total,omitempty"`
	// A token to send along.
	Token *EnvValue `json:"token,omitempty"`
}

// ControlGroup is where samples of the control group come from.
type ControlGroup struct {
	// As of what was released.
	Query string `json:"query,omitempty"`
	// As of what was released.
	Total string `json:"total,omitempty"`
	// The same queries, so long before: weaker, since other things change too.
	Offset Duration `json:"offset,omitempty"`
}

// ChangeDirection is increase, decrease or either.
type ChangeDirection string

// Values lists what may stand in the file.
func (ChangeDirection) Values() []string { return []string{"increase", "decrease", "either"} }

// NaNStrategy is error or drop.
type NaNStrategy string

// Values lists what may stand in the file.
func (NaNStrategy) Values() []string { return []string{"error", "drop"} }

// InconclusiveMeaning is fail or pass.
type InconclusiveMeaning string

// Values lists what may stand in the file.
func (InconclusiveMeaning) Values() []string { return []string{"fail", "pass"} }

// AlwaysProtection gives a fixed verdict, for trying out.
type AlwaysProtection struct {
	// The verdict.
	Verdict FixedVerdict `json:"verdict"`
	// The reason to show with it.
	Reason string `json:"reason,omitempty"`
}

// FixedVerdict is a verdict as explain shows it.
type FixedVerdict string

// Values lists what may stand in the file.
func (FixedVerdict) Values() []string { return []string{"PASS", "WAIT", "FAIL", "ERROR"} }

// kindName is a kind of protection and whether it was given.
type kindName struct {
	kind  entities.CheckKind
	given bool
}

func (k ProtectionKind) names() []kindName {
	return []kindName{
		{entities.CheckAllowedTimes, k.AllowedTimes != nil},
		{entities.CheckDeniedVersions, k.DeniedVersions != nil},
		{entities.CheckDeniedCommits, k.DeniedCommits != nil},
		{entities.CheckPrometheus, k.Prometheus != nil},
		{entities.CheckAlertmanager, k.Alertmanager != nil},
		{entities.CheckHTTP, k.HTTP != nil},
		{entities.CheckCommand, k.Command != nil},
		{entities.CheckJob, k.Job != nil},
		{entities.CheckTask, k.Task != nil},
		{entities.CheckCapacity, k.Capacity != nil},
		{entities.CheckCEL, k.CEL != nil},
		{entities.CheckCompare, k.Compare != nil},
		{entities.CheckAlways, k.Always != nil},
	}
}

// Kinds lists the kinds that were given; one is right.
func (k ProtectionKind) Kinds() []entities.CheckKind {
	var given []entities.CheckKind
	for _, n := range k.names() {
		if n.given {
			given = append(given, n.kind)
		}
	}
	return given
}

// KindNames lists all kinds, for messages.
func KindNames() []string {
	return strict.Map(ProtectionKind{}.names(), func(n kindName) string { return string(n.kind) })
}

// Stages lists the stages that an item of a lifecycle names; one is right.
func (s ProtectionStage) Stages() []entities.CheckAt {
	var all []entities.CheckAt
	if s.PreApproval != nil {
		all = append(all, entities.CheckAt{Stage: entities.PreApproval})
	}
	if s.PostApproval != nil {
		all = append(all, entities.CheckAt{Stage: entities.PostApproval})
	}
	if s.Deployment != nil {
		all = append(all, entities.CheckAt{Stage: entities.Deployment, Fails: s.Deployment.OnFailure == "fail"})
	}
	if after := s.PostDeployment; after != nil {
		all = append(all, entities.CheckAt{Stage: entities.PostDeployment, Delay: after.Delay.Or(0), For: after.For.Or(0)})
	}
	return all
}
