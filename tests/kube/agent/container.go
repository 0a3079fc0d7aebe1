package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How long is waited between attempts: shorter than a kubelet does, for people who wait for a test. The first restart
// comes at once, as a kubelet's does.
const (
	firstBackOff   = 500 * time.Millisecond
	longestBackOff = 10 * time.Second
	retryConfig    = 200 * time.Millisecond
)

// ending is how an attempt at running a container ended.
type ending struct {
	code            int32
	reason, message string
}

func (r *run) live(ctx context.Context, s *slot) { r.liveFrom(ctx, s, func() {}) }

// liveFrom is the life of a container: pulled, started, restarted. It calls started once, and returns when the container
// is over or ctx has ended.
func (r *run) liveFrom(ctx context.Context, s *slot, started func()) {
	does := scriptOf(r.pod, s.spec, s.init)
	if !r.pull(ctx, s, does) {
		return
	}
	for attempt := 0; ; attempt++ {
		a, ok := r.prepare(ctx, s, does, attempt)
		if !ok {
			return
		}
		began := metav1.Now()
		r.change(func() {
			s.status.RestartCount = int32(attempt)
			s.status.ImageID, s.status.ContainerID = "kubelab://"+s.spec.Image, fmt.Sprintf("kubelab://%s-%s-%d", r.pod.UID, s.spec.Name, attempt)
			s.status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}}
			*s.status.Started = true
		})
		if attempt == 0 {
			started()
		}
		end := a.carryOut(ctx)
		if ctx.Err() != nil {
			return
		}
		again := r.restarts(s, end.code)
		r.change(func() { s.terminate(end, began, !again) })
		if !again || !r.backOff(ctx, s, attempt) {
			return
		}
	}
}

func (s *slot) terminate(end ending, began metav1.Time, over bool) {
	s.status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: end.code, Reason: end.reason, Message: end.message,
		StartedAt: began, FinishedAt: metav1.Now(), ContainerID: s.status.ContainerID,
	}}
	s.status.Ready = over && end.code == 0 && s.init // an init container that succeeded counts as ready
	*s.status.Started = false
	s.over = over
}

func (r *run) restarts(s *slot, code int32) bool {
	switch {
	case s.init && stays(s.spec):
		return true
	case s.init:
		return code != 0 && r.pod.Spec.RestartPolicy != corev1.RestartPolicyNever
	default:
		return r.pod.Spec.RestartPolicy == corev1.RestartPolicyAlways || code != 0 && r.pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
	}
}

// backOff waits before the next attempt and says so, except before the first restart.
func (r *run) backOff(ctx context.Context, s *slot, attempt int) bool {
	terminated := s.status.State.Terminated
	if attempt == 0 {
		r.change(func() { s.status.LastTerminationState.Terminated = terminated })
		return ctx.Err() == nil
	}
	wait := backOffAfter(attempt - 1)
	name := fmt.Sprintf("%s_%s(%s)", r.pod.Name, r.pod.Namespace, r.pod.UID)
	r.change(func() {
		s.status.LastTerminationState.Terminated = terminated
		s.status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason:  "CrashLoopBackOff",
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", wait, s.spec.Name, name),
		}}
	})
	r.warn(s, "BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s", s.spec.Name, name))
	return pause(ctx, wait)
}

func backOffAfter(failures int) time.Duration {
	return min(firstBackOff<<min(failures, 10), longestBackOff)
}

// pull waits for the image; for ever, when it cannot be pulled.
func (r *run) pull(ctx context.Context, s *slot, does script) bool {
	if !does.noPull {
		return pause(ctx, does.pullIn)
	}
	image := s.spec.Image
	failure := fmt.Sprintf("failed to pull and unpack image %q: failed to resolve reference %q: %s: not found", image, image, image)
	for attempt := 0; ; attempt++ {
		r.wait(s, "ErrImagePull", failure)
		r.warn(s, "Failed", fmt.Sprintf("Failed to pull image %q: %s", image, failure))
		r.warn(s, "Failed", "Error: ErrImagePull")
		if !pause(ctx, firstBackOff) {
			return false
		}
		r.wait(s, "ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", image, failure))
		r.event(s, corev1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", image))
		r.warn(s, "Failed", "Error: ImagePullBackOff")
		if !pause(ctx, backOffAfter(attempt+2)) {
			return false
		}
	}
}

// prepare waits until everything that the container's environment refers to is there.
func (r *run) prepare(ctx context.Context, s *slot, does script, number int) (*attempt, bool) {
	for reported := ""; ; {
		env, err := r.environ(ctx, s.spec)
		if err == nil {
			a := &attempt{run: r, slot: s, does: does, env: env, log: r.logFile(s.spec.Name, number)}
			if err := os.MkdirAll(r.containerDir(s.spec.Name), 0o700); err != nil {
				r.complain("make a folder for", r.pod, err)
				return nil, false
			}
			return a, true
		}
		if err.Error() != reported && ctx.Err() == nil {
			reported = err.Error()
			r.wait(s, "CreateContainerConfigError", reported)
			r.warn(s, "Failed", "Error: "+reported)
		}
		if !pause(ctx, retryConfig) {
			return nil, false
		}
	}
}

func (r *run) wait(s *slot, reason, message string) {
	r.change(func() {
		s.status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	})
}

func (r *run) warn(s *slot, reason, message string) {
	r.event(s, corev1.EventTypeWarning, reason, message)
}

// event is about a container of the pod, as a kubelet's are.
func (r *run) event(s *slot, kind, reason, message string) {
	list := "containers"
	if s.init {
		list = "initContainers"
	}
	r.kubelet.Event(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: r.pod.Namespace, Name: r.pod.Name, UID: r.pod.UID,
		FieldPath: fmt.Sprintf("spec.%s{%s}", list, s.spec.Name),
	}, kind, reason, message)
}
