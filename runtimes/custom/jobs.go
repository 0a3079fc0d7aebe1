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

// jobRunner runs commands as Kubernetes Jobs, under the same contract as local ones (C2, C3, C6, C7). An apply has one Job per instance
// at a time, for all workers together; each fetch has its own.
type jobRunner struct {
	def      entities.RuntimeDefinition
	clusters Clusters
}

func (j *jobRunner) run(ctx context.Context, res *result, w command) {
	settings := j.def.Custom.Job
	cluster := entities.RuntimeDefinition{Name: j.def.Name, Dir: j.def.Dir, Kubernetes: &settings.Cluster}
	client, err := j.clusters.Client(ctx, cluster)
	if ctx.Err() != nil {
		res.setInterrupted(ctx)
		return
	}
	if err != nil {
		res.setError(runtimes.CodeFetchFailed, err)
		return
	}
	started := time.Now()
	jobResult, err := job.Run(ctx, client, j.request(res, w))
	res.storeRemoteOutput(jobResult, started)
	switch {
	case err == nil:
		res.setRemoteResult(jobResult, "image "+settings.Image)
	case ctx.Err() != nil:
		res.setInterrupted(ctx)
	default:
		res.setError(jobCode(err), err)
	}
}

func (j *jobRunner) request(res *result, w command) job.Request {
	settings, owner := j.def.Custom.Job, w.labels.owner
	env := w.filePaths(job.MountPath)
	maps.Copy(env, w.env)
	instanceName, labels := owner.ID.Channel, map[string]string{
		"converge/job-application": owner.Application, "converge/job-service": owner.Service,
		"converge/job-channel": owner.ID.Channel, "converge/job-runtime": w.labels.runtime,
	}
	if owner.ID.Name != "" {
		instanceName, labels["converge/job-instance"] = owner.ID.String(), owner.ID.Name
	}
	return job.Request{
		Namespace: settings.Namespace, Purpose: w.labels.purpose, One: w.exclusiveKey, Key: w.key,
		Prefix: fmt.Sprintf("converge-%s-%s-%s", owner.Service, instanceName, w.labels.purpose),
		Labels: mergeLabels(settings.Labels, labels), Annotations: settings.Annotations, Image: settings.Image, ServiceAccount: settings.ServiceAccount, Wrapper: settings.Wrapper,
		Command: res.argv, Env: env, Secrets: w.secrets, Files: w.files, FilesVariable: filesVariable,
		Resources:    corev1.ResourceRequirements{Requests: quantities(settings.Requests), Limits: quantities(settings.Limits)},
		NodeSelector: settings.NodeSelector, Tolerations: tolerations(settings.Tolerations),
		PullSecrets: settings.PullSecrets, PriorityClass: settings.PriorityClass,
		PodSecurity: podSecurity(settings.PodSecurity), Security: containerSecurity(settings.Security),
		Timeout: res.timeout, Limit: MaxDocument, StopAtLimit: res.needsOutput,
	}
}

// quantities are those of a definition. It drops invalid ones: the compiler has refused them.
func quantities(values map[string]string) corev1.ResourceList {
	var out corev1.ResourceList
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if q, err := resource.ParseQuantity(values[name]); err == nil {
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[corev1.ResourceName(name)] = q
		}
	}
	return out
}

func tolerations(specs []entities.Toleration) []corev1.Toleration {
	var out []corev1.Toleration
	for _, t := range specs {
		out = append(out, corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOperator(t.Operator), Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return out
}

// storeRemoteOutput stores the output of a Job or a task without secrets, also after a failure.
func (res *result) storeRemoteOutput(remote job.Result, started time.Time) {
	c := res.capture(func() {})
	c.storeStreams(res.redact, remote.Stdout, remote.StdoutTruncated, remote.Stderr, remote.StderrTruncated)
	if remote.Merged {
		res.out.Remark = mergedRemark
	}
	if remote.Started.IsZero() {
		remote.Started, remote.Duration = started, time.Since(started)
	}
	res.storeOutput(c, remote.Started, remote.Duration)
	res.merged = remote.Merged
}

// mergedRemark explains why stderr is empty, and why stdout may be wrong.
const mergedRemark = "(stdout and stderr are merged in the log: no converge-wrapper reported)\n"

// setRemoteResult classifies the end of a remote command, or the failure of its wrapper to run it.
func (res *result) setRemoteResult(remote job.Result, image string) {
	res.out.ExitCode, res.signal = remote.ExitCode, remote.Signal
	switch {
	case res.needsOutput && (remote.StdoutTruncated || len(remote.Stdout) > MaxDocument):
		res.setTooLarge()
	case remote.TimedOut:
		res.setTimedOut()
	case remote.Problem != "" && (remote.ExitCode == 126 || remote.ExitCode == 127):
		res.setError(runtimes.CodeCommandNotFound, fmt.Errorf("in %s: %s", image, remote.Problem))
	case remote.Problem != "":
		res.setError(runtimes.CodeFetchFailed, errors.New(remote.Problem))
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
