package custom

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/kubernetes/api"
	"github.com/converge-engine/converge/runtimes/kubernetes/job"
)

// Clusters are the connections that a worker's runtimes share.
type Clusters interface {
	// Client returns a client for the cluster that def.Kubernetes names. An error may be gone at the next call.
	Client(ctx context.Context, def entities.RuntimeDefinition) (*api.Client, error)
}

// jobs runs commands as Kubernetes Jobs, under the same contract as local ones (C2, C3, C6, C7). An apply has one Job per instance
// at a time, for all workers together; each fetch has its own.
type jobs struct {
	def      entities.RuntimeDefinition
	clusters Clusters
}

func (j *jobs) run(ctx context.Context, res *result, w work) {
	settings := j.def.Custom.Job
	cluster := entities.RuntimeDefinition{Name: j.def.Name, Dir: j.def.Dir, Kubernetes: &settings.Cluster}
	client, err := j.clusters.Client(ctx, cluster)
	if ctx.Err() != nil {
		res.interrupted(ctx)
		return
	}
	if err != nil {
		res.end(runtimes.CodeFetchFailed, err)
		return
	}
	started := time.Now()
	got, err := job.Run(ctx, client, j.request(res, w))
	res.remote(got, started)
	switch {
	case err == nil:
		res.endedRemotely(got, "image "+settings.Image)
	case ctx.Err() != nil:
		res.interrupted(ctx)
	default:
		res.end(jobCode(err), err)
	}
}

func (j *jobs) request(res *result, w work) job.Request {
	settings, owner := j.def.Custom.Job, w.labels.owner
	env := w.paths(job.MountPath)
	maps.Copy(env, w.env)
	shown, labels := owner.ID.Channel, map[string]string{
		"converge/job-application": owner.Application, "converge/job-service": owner.Service,
		"converge/job-channel": owner.ID.Channel, "converge/job-runtime": w.labels.runtime,
	}
	if owner.ID.Name != "" {
		shown, labels["converge/job-instance"] = owner.ID.String(), owner.ID.Name
	}
	return job.Request{
		Namespace: settings.Namespace, Purpose: w.labels.purpose, One: w.one, Key: w.key,
		Prefix: fmt.Sprintf("converge-%s-%s-%s", owner.Service, shown, w.labels.purpose),
		Labels: withOurs(settings.Labels, labels), Annotations: settings.Annotations, Image: settings.Image, ServiceAccount: settings.ServiceAccount, Wrapper: settings.Wrapper,
		Command: res.argv, Env: env, Secrets: w.secrets, Files: w.files, FilesVariable: filesVariable,
		Resources:    corev1.ResourceRequirements{Requests: quantities(settings.Requests), Limits: quantities(settings.Limits)},
		NodeSelector: settings.NodeSelector, Tolerations: tolerations(settings.Tolerations),
		PullSecrets: settings.PullSecrets, PriorityClass: settings.PriorityClass,
		PodSecurity: podSecurity(settings.PodSecurity), Security: containerSecurity(settings.Security),
		Timeout: res.timeout, Limit: MaxDocument, StopAtLimit: res.answers,
	}
}

// quantities are those of a definition. It drops invalid ones: the compiler has refused them.
func quantities(of map[string]string) corev1.ResourceList {
	var out corev1.ResourceList
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if q, err := resource.ParseQuantity(of[name]); err == nil {
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[corev1.ResourceName(name)] = q
		}
	}
	return out
}

func tolerations(of []entities.Toleration) []corev1.Toleration {
	var out []corev1.Toleration
	for _, t := range of {
		out = append(out, corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOperator(t.Operator), Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return out
}

// remote stores the output of a Job or a task without secrets, also after a failure.
func (res *result) remote(got job.Result, started time.Time) {
	c := res.capture(func() {})
	c.put(res.redact, got.Stdout, got.StdoutTruncated, got.Stderr, got.StderrTruncated)
	if got.Merged {
		res.out.Remark = merged
	}
	if got.Started.IsZero() {
		got.Started, got.Duration = started, time.Since(started)
	}
	res.keep(c, got.Started, got.Duration)
	res.merged = got.Merged
}

// merged explains why stderr is empty, and why stdout may be wrong.
const merged = "(stdout and stderr are merged in the log: no converge-wrapper reported)\n"

// endedRemotely classifies the end of a remote command, or the failure of its wrapper to run it.
func (res *result) endedRemotely(got job.Result, where string) {
	res.out.ExitCode, res.signal = got.ExitCode, got.Signal
	switch {
	case res.answers && (got.StdoutTruncated || len(got.Stdout) > MaxDocument):
		res.tooLarge()
	case got.TimedOut:
		res.timedOut()
	case got.Problem != "" && (got.ExitCode == 126 || got.ExitCode == 127):
		res.end(runtimes.CodeCommandNotFound, fmt.Errorf("in %s: %s", where, got.Problem))
	case got.Problem != "":
		res.end(runtimes.CodeFetchFailed, errors.New(got.Problem))
	}
}

func jobCode(err error) string {
	switch {
	case job.IsReason(err, job.ReasonTimeout):
		return runtimes.CodeTimeout
	case job.IsReason(err, job.ReasonNotFound):
		return runtimes.CodeCommandNotFound
	}
	return runtimes.CodeFetchFailed
}
