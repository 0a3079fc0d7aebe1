// Package job runs a command as a Kubernetes Job and returns its output. It creates the Job, watches until it ends, reads the log,
// and removes all objects that it created, also when its context ends. A pod that cannot start is an error as soon as that is known.
//
// If there must be only one Job for something, the name of the Job is derived from that. So a worker that takes over finds the Job
// of a lost worker, waits for it or uses its result, and never runs two at once. The package does not interpret the result of the
// command. It may import entities and runtimes.
package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/converge-engine/converge/runtimes/kubernetes/api"
)

// Labels and annotations of a Job and of its objects. The labels of an instance's objects (converge/application and so on) are not
// used: they would make the Job an object of the instance.
const (
	// LabelJob is the purpose of a Job: Request.Purpose.
	LabelJob = "converge/job"

	annotationKey    = "converge/job-key"    // Request.Key
	annotationDigest = "converge/job-digest" // of all fields of Request that affect the command, without the values of secrets
	annotationWaiter = "converge/job-waiter" // the attempt that removes it
)

// MountPath is the directory of Request.Files in the container.
const MountPath = "/converge/files"

// Request is a command to run.
type Request struct {
	Namespace string
	// Purpose is one word: "apply".
	Purpose string
	// Prefix begins the names of the created objects, for people who list Jobs.
	Prefix string
	// One, if not empty, limits the namespace to one Job at a time of this name. Key is the unit of work. If a Job for One exists
	// with equal key and content, Run waits for it or uses its result. Otherwise Run removes it, and waits until it is gone, before
	// it starts a new one.
	One, Key string
	Labels   map[string]string
	// Annotations are for people.
	Annotations map[string]string

	Image          string
	Command        []string
	Env            map[string]string
	Secrets        map[string]string // also environment variables, from a Secret that is removed with the Job
	Files          map[string]string // relative path → content
	FilesVariable  string            // an environment variable for the directory of the files, if there are any
	ServiceAccount string            // empty: the default of the namespace, without a token in the pod
	Resources      corev1.ResourceRequirements
	NodeSelector   map[string]string
	Tolerations    []corev1.Toleration
	PullSecrets    []string // names of Secrets in the namespace
	PriorityClass  string
	// PodSecurity and Security replace the default security contexts of the pod and its container, field by field.
	PodSecurity *corev1.PodSecurityContext `json:",omitempty"`
	Security    *corev1.SecurityContext    `json:",omitempty"`
	// Wrapper is the path of converge-wrapper in the image. If it is empty, the command runs without a wrapper, and its streams are
	// merged.
	Wrapper string
	// Timeout covers everything, including the wait for a node and for the image.
	Timeout time.Duration
	// StopAtLimit ends a command that prints more than Limit bytes to stdout; both need the wrapper.
	Limit       int
	StopAtLimit bool
}

// Result is the result of a command.
type Result struct {
	Job      string // namespace/name
	Attached bool   // another Run started it, and this one waited for it
	ExitCode int
	Signal   string // the signal that ended the command, with the cluster's reason: "killed (OOMKilled)"
	TimedOut bool   // the wrapper ended it at its timeout
	// Problem is why the wrapper could not start the command, or why it ended it.
	Problem string
	Stdout  []byte
	Stderr  []byte
	// StdoutTruncated, StderrTruncated: the beginning is missing.
	StdoutTruncated, StderrTruncated bool
	// Merged: there was no wrapper, so Stdout is the log with both streams.
	Merged   bool
	Started  time.Time
	Duration time.Duration
}

// Reason classifies why a command has no result.
type Reason string

// The reasons.
const (
	ReasonImage         Reason = "image"         // the image cannot be pulled
	ReasonUnschedulable Reason = "unschedulable" // no node takes the pod
	ReasonRefused       Reason = "refused"       // the server does not admit the Job or the pod
	ReasonStart         Reason = "start"         // the container cannot be started
	ReasonNotFound      Reason = "not-found"     // the image does not have the program
	ReasonTimeout       Reason = "timeout"
	ReasonLost          Reason = "lost" // the Job or its pod was removed or evicted
)

// Error is why there is no result.
type Error struct {
	Reason  Reason
	Message string
}

func (e *Error) Error() string { return e.Message }

func failure(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// IsReason reports whether err is of a reason.
func IsReason(err error, reason Reason) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == reason
}

// Limits for a Job that no worker removes.
const (
	keepFinished = 10 * time.Minute // then the cluster removes it; until then its result is available
	overtime     = time.Minute      // after the timeout, then the cluster ends it
	gracePeriod  = 15 * time.Second // between SIGTERM and SIGKILL of a container
	cleanup      = 30 * time.Second // for the removal, after the caller's context has ended
)

// Run runs the command until it ends. A command that ran is no error, with any exit code. An *Error says why there is no result. A
// retry does not help if runtimes.Permanent wraps it. Any other error is of the API server, or of ctx. In every case Run removes the
// created objects, within half a minute after ctx ended, unless another Run has taken them over. With an error, the result holds the
// output up to that moment, as far as it can be read.
func Run(ctx context.Context, client *api.Client, r Request) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if err := r.check(); err != nil {
		return Result{}, err
	}
	a := newAttempt(ctx, client, r)
	bounded, cancel := context.WithDeadline(ctx, a.deadline)
	defer cancel()
	res, err := a.run(bounded)
	var known *Error
	if err != nil && bounded.Err() != nil && ctx.Err() == nil && !errors.As(err, &known) {
		return res, failure(ReasonTimeout, "%s did not finish within %s%s", r.Command[0], r.Timeout, a.lastMessage)
	}
	return res, err
}
