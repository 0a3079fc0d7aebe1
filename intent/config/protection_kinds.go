package config

import (
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// This file contains the kinds of protections.

// ProtectionKind is the evaluation of a protection. Exactly one field is set.
type ProtectionKind struct {
	// Passes within time windows, outside of holidays and freezes.
	AllowedTimes *AllowedTimes `json:"allowedTimes,omitempty"`
	// Rejects versions.
	DeniedVersions *DeniedVersions `json:"deniedVersions,omitempty"`
	// Rejects releases that contain new commits from a list.
	DeniedCommits *DeniedCommits `json:"deniedCommits,omitempty"`
	// Passes while the samples of a Prometheus query are within bounds.
	Prometheus *PrometheusProtection `json:"prometheus,omitempty"`
	// Passes while no alert is active that is neither silenced nor inhibited.
	Alertmanager *AlertmanagerProtection `json:"alertmanager,omitempty"`
	// Passes while a GET request returns an accepted status.
	HTTP *HTTPProtection `json:"http,omitempty"`
	// Runs a command on the worker: exit code 0 passes, 1 and 3 fail, 2 waits, any other code is an error. The last line of its output
	// is the reason.
	Command *CommandProtection `json:"command,omitempty"`
	// Runs a command as a Kubernetes Job, with the same exit codes.
	Job *JobProtection `json:"job,omitempty"`
	// Runs a command as an Amazon ECS task, with the same exit codes.
	Task *TaskProtection `json:"task,omitempty"`
	// Passes while the new capacity is at least the recent maximum use.
	Capacity *CapacityProtection `json:"capacity,omitempty"`
	// Passes while an expression on the release, its phases and the objects in the channel is true.
	CEL *CELProtection `json:"cel,omitempty"`
	// Passes after a comparison shows that the release is not worse than a control group. Only for postconditions.
	Compare *CompareProtection `json:"compare,omitempty"`
	// Returns a fixed verdict, for tests.
	Always *AlwaysProtection `json:"always,omitempty"`
}

// AllowedTimes passes within its windows, outside of holidays and freezes.
type AllowedTimes struct {
	// The name of a time zone, such as Europe/Paris.
	TimeZone string `json:"timeZone"`
	// When it is open; by default always.
	Windows []TimeWindow `json:"windows,omitempty"`
	// Countries with public holidays on which it is closed: FR, US, DE-BY.
	HolidayCountries []string `json:"holidayCountries,omitempty"`
	// More days on which it is closed: "2026-12-24".
	Holidays []string `json:"holidays,omitempty"`
	// Periods in which it is closed.
	Freezes []Freeze `json:"freezes,omitempty"`
}

// TimeWindow is open on some days of the week, between two times of the day.
type TimeWindow struct {
	// Days of the week: Mon-Thu, or Sat,Sun; by default every day.
	Days string `json:"days,omitempty"`
	// Times of the day: "09:00-16:00", or over midnight "22:00-06:00"; by default all day.
	Hours string `json:"hours,omitempty"`
}

// Freeze is a closed period.
type Freeze struct {
	// Its first day "2026-12-20", a local time "2026-12-20T18:00", or a time with its zone.
	From string `json:"from"`
	// Its last day (inclusive), or the time at which it ends.
	To string `json:"to"`
	// The reason to show.
	Reason string `json:"reason,omitempty"`
}

// DeniedVersions rejects versions.
type DeniedVersions struct {
	// Versions or patterns: v1.2.*
	Versions []string `json:"versions"`
	// The reason to show.
	Reason string `json:"reason,omitempty"`
}

// DeniedCommits rejects releases with commits that the channel does not have yet.
type DeniedCommits struct {
	// Commits of the configuration's repository, in hex, with at least 7 digits.
	Commits []string `json:"commits"`
	// The reason to show.
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
	// The meaning of a result without samples: an error, or passing.
	Empty EmptyResult `json:"empty,omitempty" jsonschema:"default=error"`
	// A bearer token for the request.
	Token *EnvValue `json:"token,omitempty"`
}

// EmptyResult is error or pass.
type EmptyResult string

// Values lists the allowed values.
func (EmptyResult) Values() []string { return []string{"error", "pass"} }

// AlertmanagerProtection passes while no matching alert is active.
type AlertmanagerProtection struct {
	// The address of the server: http://alertmanager:9093
	URL string `json:"url"`
	// Labels that an alert must have to match.
	Matchers map[string]string `json:"matchers"`
	// A bearer token for the request.
	Token *EnvValue `json:"token,omitempty"`
}

// HTTPProtection passes while a GET request returns one of the statuses.
type HTTPProtection struct {
	// The address.
	URL string `json:"url"`
	// Headers of the request.
	Headers map[string]EnvValue `json:"headers,omitempty"`
	// Statuses that pass; by default 200 to 299.
	Statuses []int `json:"statuses,omitempty"`
	// The timeout.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=10s"`
}

// CommandProtection runs a command that starts in the directory of this file, without a shell.
type CommandProtection struct {
	// The program and its arguments.
	Command []string `json:"command"`
	// Environment variables for it.
	Env map[EnvName]EnvValue `json:"env,omitempty"`
	// The timeout.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=30s"`
}

// JobProtection runs a command as a Kubernetes Job.
type JobProtection struct {
	// The program and its arguments.
	Command []string `json:"command"`
	// Environment variables for it.
	Env map[EnvName]EnvValue `json:"env,omitempty"`
	// The timeout.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=5m"`
	CommandJob
}

// TaskProtection runs a command as an Amazon ECS task.
type TaskProtection struct {
	// The program and its arguments.
	Command []string `json:"command"`
	// Environment variables for it. They must not contain secrets, because everybody who may describe the task can read them.
	Env map[EnvName]EnvValue `json:"env,omitempty"`
	// The timeout.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=5m"`
	CommandTask
}

// CapacityProtection passes while the new capacity is at least the recent maximum use.
type CapacityProtection struct {
	// The address of a Prometheus server.
	URL string `json:"url"`
	// A query of the current use. Its recent maximum counts.
	Use string `json:"use"`
	// The time range of the maximum.
	Over Duration `json:"over,omitempty" jsonschema:"default=24h"`
	// A query of the new capacity. Exactly one of this, parameter and object is set.
	Capacity string `json:"capacity,omitempty"`
	// The service's parameter with the new capacity.
	Parameter ParameterName `json:"parameter,omitempty"`
	// The object in the channel whose available replicas, as the runtime reports them, are the capacity: for autoscaled workloads.
	Object string `json:"object,omitempty"`
	// The capacity of one unit of the parameter, or of one replica.
	Per *Number `json:"per,omitempty" jsonschema:"default=1"`
	// A bearer token for the request.
	Token *EnvValue `json:"token,omitempty"`
}

// CELProtection passes while an expression is true.
type CELProtection struct {
	// The CEL expression, whose result is a boolean: objects.all(o, o.status == "SUCCEEDED")
	Expression string `json:"expression"`
	// The message to show when the expression is false.
	Message string `json:"message,omitempty"`
	// The meaning of false: waiting, or failing.
	OnFalse FalseMeaning `json:"onFalse,omitempty" jsonschema:"default=wait"`
}

// FalseMeaning is wait or fail.
type FalseMeaning string

// Values lists the allowed values.
func (FalseMeaning) Values() []string { return []string{"wait", "fail"} }

// CompareProtection compares a release with a control group by a statistical test.
type CompareProtection struct {
	// The source and the query of the samples of the release.
	Prometheus ComparedQuery `json:"prometheus"`
	// The control group: query or offset.
	Control ControlGroup `json:"control"`
	// The direction of a change for the worse.
	Direction ChangeDirection `json:"direction,omitempty" jsonschema:"default=increase"`
	// The maximum probability that a release without a change is found worse in the channel; by default 0.01. All comparisons in the
	// channel share it.
	Alpha *Number `json:"alpha,omitempty"`
	// The number of evaluations that also share alpha, such as those in several channels.
	Looks int `json:"looks,omitempty" jsonschema:"default=1"`
	// The minimum change that counts, relative to the control group; by default 0.1, which is 10 %.
	Tolerance *Number `json:"tolerance,omitempty"`
	// The minimum number of samples per group, or of requests if requests are counted; by default 20 samples or 200 requests.
	MinSamples int `json:"minSamples,omitempty"`
	// The handling of samples that are not finite numbers: an error, or ignored.
	NaNStrategy NaNStrategy `json:"nanStrategy,omitempty" jsonschema:"default=error"`
	// The meaning of a result without samples: an error, or passing.
	Empty EmptyResult `json:"empty,omitempty" jsonschema:"default=error"`
	// How long samples are collected after the objects are stable. Then the comparison is evaluated.
	For Duration `json:"for"`
	// The time of a second evaluation if there were too few samples, measured like for; by default twice for.
	Deadline Duration `json:"deadline,omitempty"`
	// The time between samples; by default such that there are one and a half times minSamples, and at least 15s.
	Step Duration `json:"step,omitempty"`
	// The result if there are too few samples at the deadline.
	Inconclusive InconclusiveMeaning `json:"inconclusive,omitempty" jsonschema:"default=fail"`
}

// ComparedQuery is the source of the samples of a release.
type ComparedQuery struct {
	// The address of the server: http://prometheus:9090
	URL string `json:"url"`
	// A PromQL query of one series; with total, of a number in the $__range.
	Query string `json:"query"`
	// A query of the total of which query counts a part: the shares are compared, such as that of errors in requests.
	Total string `json:"total,omitempty"`
	// A bearer token for the request.
	Token *EnvValue `json:"token,omitempty"`
}

// ControlGroup is the source of the samples of the control group.
type ControlGroup struct {
	// Like the query of the release.
	Query string `json:"query,omitempty"`
	// Like the total of the release.
	Total string `json:"total,omitempty"`
	// The same queries at this time before: weaker, because other things change, too.
	Offset Duration `json:"offset,omitempty"`
}

// ChangeDirection is increase, decrease or either.
type ChangeDirection string

// Values lists the allowed values.
func (ChangeDirection) Values() []string { return []string{"increase", "decrease", "either"} }

// NaNStrategy is error or drop.
type NaNStrategy string

// Values lists the allowed values.
func (NaNStrategy) Values() []string { return []string{"error", "drop"} }

// InconclusiveMeaning is fail or pass.
type InconclusiveMeaning string

// Values lists the allowed values.
func (InconclusiveMeaning) Values() []string { return []string{"fail", "pass"} }

// AlwaysProtection returns a fixed verdict, for tests.
type AlwaysProtection struct {
	// The verdict.
	Verdict FixedVerdict `json:"verdict"`
	// The reason to show.
	Reason string `json:"reason,omitempty"`
}

// FixedVerdict is a verdict as explain shows it.
type FixedVerdict string

// Values lists the allowed values.
func (FixedVerdict) Values() []string { return []string{"PASS", "WAIT", "FAIL", "ERROR"} }

// kindName is a kind of protection and whether it is set.
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

// Kinds lists the kinds that are set; exactly one is valid.
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

// Stages lists the stages that are set in an item of a lifecycle; exactly one is valid.
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
