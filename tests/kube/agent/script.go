package agent

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of a pod (of a workload's template) that say what its containers do. Durations are Go's: "1.5s".
const (
	// RunProcesses "true" runs the containers' commands as processes of this machine, "false" plays them. The default is "true"
	// for pods of a Job and "false" for others.
	RunProcesses = "kubelab/run"
	// PullIn is how long the image is pulled. Default 0.
	PullIn = "kubelab/pull-in"
	// ReadyIn is how long after its start a container is ready. Default 0, for the image tag "slow" 2s.
	ReadyIn = "kubelab/ready-in"
	// ExitCode makes a played container end with that code.
	ExitCode = "kubelab/exit-code"
	// ExitIn is how long after its start it does. Default 0.
	ExitIn = "kubelab/exit-in"
	// ExitMessage is then its termination message, and what it logs last.
	ExitMessage = "kubelab/exit-message"
	// StopIn is how long a deleted pod takes to be gone. Default 0; processes have what they need of their grace period,
	// two seconds at most.
	StopIn = "kubelab/stop-in"
)

// Tags of an image that say what its containers do. All other images are pulled at once and run until deleted.
const (
	tagNoPull   = "nopull"   // cannot be pulled: ErrImagePull, then ImagePullBackOff
	tagCrash    = "crash"    // ends at once with code 1: CrashLoopBackOff
	tagNotReady = "notready" // runs, and is never ready
	tagSlow     = "slow"     // is ready later
)

const slowReadyIn = 2 * time.Second

// script is what one container does.
type script struct {
	noPull     bool
	pullIn     time.Duration
	process    bool
	neverReady bool
	readyIn    time.Duration
	exits      bool
	exitCode   int32
	exitIn     time.Duration
	message    string
}

// scriptOf reads tag and annotations. Annotations about the end are for the pod's main containers: an init container
// that is played ends well at once, unless its image's tag says otherwise.
func scriptOf(pod *corev1.Pod, container *corev1.Container, init bool) script {
	tag := tagOf(container.Image)
	s := script{
		noPull:     tag == tagNoPull,
		pullIn:     duration(pod, PullIn, 0),
		process:    runsProcesses(pod) && tag != tagCrash,
		neverReady: tag == tagNotReady,
		readyIn:    duration(pod, ReadyIn, 0),
	}
	if tag == tagSlow {
		s.readyIn = duration(pod, ReadyIn, slowReadyIn)
	}
	switch {
	case tag == tagCrash:
		s.exits, s.exitCode = true, 1
	case init:
		s.exits = !stays(container) && tag != tagNotReady
	case pod.Annotations[RunProcesses] == "false" && pod.Spec.RestartPolicy != corev1.RestartPolicyAlways:
		s.exits = true // a Job's pod that did not end would be no use
	}
	if !init {
		s.endAs(pod)
	}
	if s.message == "" && s.exitCode != 0 {
		s.message = fmt.Sprintf("played: %s exits with code %d", container.Image, s.exitCode)
	}
	return s
}

// endAs takes over what annotations say of the end.
func (s *script) endAs(pod *corev1.Pod) {
	s.exitIn, s.message = duration(pod, ExitIn, 0), pod.Annotations[ExitMessage]
	if code, err := strconv.ParseInt(pod.Annotations[ExitCode], 10, 32); err == nil {
		s.process, s.exits, s.exitCode = false, true, int32(code)
	}
}

// tagOf is what follows the colon of an image's last element, without a digest: "crash" for "host:5000/shop/web:crash".
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	return tag
}

func runsProcesses(pod *corev1.Pod) bool {
	if set := pod.Annotations[RunProcesses]; set != "" {
		return set == "true"
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "Job"
}

// duration is that of an annotation; otherwise, and when it does not parse, the default.
func duration(pod *corev1.Pod, annotation string, otherwise time.Duration) time.Duration {
	if parsed, err := time.ParseDuration(pod.Annotations[annotation]); err == nil {
		return parsed
	}
	return otherwise
}

// pause waits, and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
