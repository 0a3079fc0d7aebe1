// Package job runs a command as a Kubernetes Job and returns what it printed: it makes the Job, waits
// for its end by watching, reads the log, and removes what it made, also when its context ends. What
// keeps a pod from starting is an error as soon as it is known.
//
// A Job that is to be the only one for something has a name made from that; so a worker that takes
// over finds what a lost one began, waits for it or takes its result, and never has two at once. It
// decides nothing about the command's result. It may import entities and runtimes.
package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/converge-engine/converge/runtimes/kubernetes/api"
)

// Labels and annotations of a Job and of what belongs to it. The labels of an instance's objects
// (converge/application and so on) are not used: those would make the Job an object of the instance.
const (
	// LabelJob says what a Job is for: Request.Purpose.
	LabelJob = "converge/job"

	annotationKey    = "converge/job-key"    // Request.Key
	annotationDigest = "converge/job-digest" // of all that Request says of the command, secrets' values left out
	annotationWaiter = "converge/job-waiter" // who removes it
)

// MountPath is where Request.Files are in the container.
const MountPath = "/converge/files"

// Request is a command to run.
type Request struct {
	Namespace string
	// Purpose is a word for what it is for: "apply".
	Purpose string
	// Prefix begins the names of what is made, for people who list Jobs.
	Prefix string
	// One, when not empty, names that of which there is one Job at a time in the namespace. Key is the
	// unit of work: a Job that is found for One is waited for, or its result taken, when Key and
	// content are equal; otherwise it is removed, and gone, before a new one begins.
	One, Key string
	Labels   map[string]string
	// Annotations are for people.
	Annotations map[string]string

	Image          string
	Command        []string
	Env            map[string]string
	Secrets        map[string]string // environment too, by a Secret that goes with the Job
	Files          map[string]string // relative path → content
	FilesVariable  string            // an environment variable that holds the files' directory, if there are files
	ServiceAccount string            // empty: the namespace's default, without a token in the pod
	Resources      corev1.ResourceRequirements
	NodeSelector   map[string]string
	Tolerations    []corev1.Toleration
	PullSecrets    []string // names of Secrets in the namespace
	PriorityClass  string
	// PodSecurity and Security replace what a pod and its container may by default, field by field.
	PodSecurity *corev1.PodSecurityContext `json:",omitempty"`
	Security    *corev1.SecurityContext    `json:",omitempty"`
	// Wrapper is the path of converge-wrapper in the image. Empty: the command is run by itself, and its
	// streams are merged.
	Wrapper string
	// Timeout is for everything, waiting for a node and for the image included.
	Timeout time.Duration
	// StopAtLimit ends a command that prints more than Limit bytes to stdout; this and Limit need the
	// wrapper.
	Limit       int
	StopAtLimit bool
}

// Result is how a command went.
type Result struct {
	Job      string // namespace/name
	Attached bool   // it was begun by somebody else, and waited for
	ExitCode int
	Signal   string // that ended the command, with what the cluster says of it: "killed (OOMKilled)"
	TimedOut bool   // the wrapper ended it in time
	// Problem is why the wrapper could not start the command, or ended it.
	Problem string
	Stdout  []byte
	Stderr  []byte
	// StdoutTruncated, StderrTruncated: the beginning is missing.
	StdoutTruncated, StderrTruncated bool
	// Merged: there was no wrapper, so Stdout is the log with both streams in it.
	Merged   bool
	Started  time.Time
	Duration time.Duration
}

// Reason sorts what kept a command from giving a result.
type Reason string

// The reasons.
const (
	ReasonImage         Reason = "image"         // it cannot be pulled
	ReasonUnschedulable Reason = "unschedulable" // no node takes the pod
	ReasonRefused       Reason = "refused"       // the server admits no such Job or pod
	ReasonStart         Reason = "start"         // the container cannot be started
	ReasonNotFound      Reason = "not-found"     // there is no such program in the image
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

// Bounds of what a Job may leave behind when nobody is there to remove it.
const (
	keepFinished = 10 * time.Minute // then the cluster removes it; until then its result can be taken
	overtime     = time.Minute      // beyond the timeout, then the cluster ends it
	gracePeriod  = 15 * time.Second // between SIGTERM and SIGKILL of a container
	cleanup      = 30 * time.Second // for removing, when the caller's context has ended
)

// Run runs the command to its end. A command that ran is no error, however it ended. An *Error says
// why there is no result; one wrapped by runtimes.Permanent is not mended by another try; any other
// is of the API server, or of ctx. In every case what was made is removed again, within half a
// minute after ctx ended, unless another Run has taken it over. With an error the result holds what
// was printed until then, as far as it can be read.
func Run(ctx context.Context, client *api.Client, r Request) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if err := r.check(); err != nil {
		return Result{}, err
	}
	a := newAttempt(ctx, client, r)
	bounded, cancel := context.WithDeadline(ctx, a.until)
	defer cancel()
	res, err := a.run(bounded)
	var known *Error
	if err != nil && bounded.Err() != nil && ctx.Err() == nil && !errors.As(err, &known) {
		return res, failure(ReasonTimeout, "%s did not finish within %s%s", r.Command[0], r.Timeout, a.last)
	}
	return res, err
}
