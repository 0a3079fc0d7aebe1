package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// nodeAddress is where the nodes are reached.
const nodeAddress = "127.0.0.1"

// What the addresses of pods begin with, in their status and on this machine (newRun).
const (
	podNetwork      = "10.244."
	loopbackNetwork = "127.244."
)

// run plays one pod. Its containers change their slots, each its own, and one goroutine writes the pod's status.
type run struct {
	*agent
	pod      *corev1.Pod // as it was bound
	dir      string
	address  string
	loopback string

	mu      sync.Mutex
	inits   []*slot
	mains   []*slot
	changed chan struct{} // holds at most one
}

// slot is a container's place in the status.
type slot struct {
	spec   *corev1.Container
	init   bool
	status corev1.ContainerStatus
	over   bool // it has ended and will not be started again
}

// newRun gives the pod addresses after its number. 10.244.x.y is in its status, where loopback addresses are refused
// for endpoints; a process listens on 127.244.x.y, which needs no interface, so that pods with one port do not clash.
func (a *agent) newRun(pod *corev1.Pod, number int64) *run {
	high, low := number>>8&0xff, number&0xff
	r := &run{
		agent: a, pod: pod,
		dir:      filepath.Join(a.dir, pod.Namespace, pod.Name),
		address:  fmt.Sprint(podNetwork, high, ".", low),
		loopback: fmt.Sprint(loopbackNetwork, high, ".", low),
		changed:  make(chan struct{}, 1),
	}
	first := "ContainerCreating"
	if len(pod.Spec.InitContainers) > 0 {
		first = "PodInitializing"
	}
	for i := range pod.Spec.InitContainers {
		r.inits = append(r.inits, newSlot(&pod.Spec.InitContainers[i], "PodInitializing"))
		r.inits[i].init = true
	}
	for i := range pod.Spec.Containers {
		r.mains = append(r.mains, newSlot(&pod.Spec.Containers[i], first))
	}
	return r
}

func newSlot(spec *corev1.Container, reason string) *slot {
	return &slot{spec: spec, status: corev1.ContainerStatus{
		Name: spec.Name, Image: spec.Image, Started: new(bool),
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
	}}
}

// play returns when the pod has ended, with its last status written, or when ctx has, with its processes gone.
func (r *run) play(ctx context.Context) {
	if err := os.RemoveAll(r.dir); err != nil {
		r.complain("clear the folder of", r.pod, err)
		return
	}
	var writing, containers sync.WaitGroup
	writingEnds, endWriting := context.WithCancel(ctx)
	writing.Go(func() { r.writeStatus(ctx, writingEnds) })
	r.change(func() {})
	if r.mount(ctx) && r.initialize(ctx, &containers) {
		for _, s := range r.mains {
			containers.Go(func() { r.live(ctx, s) })
		}
	}
	containers.Wait()
	endWriting()
	writing.Wait()
}

// initialize runs the init containers in turn, and starts those that stay beside the others. It reports whether the
// pod may go on.
func (r *run) initialize(ctx context.Context, staying *sync.WaitGroup) bool {
	for _, s := range r.inits {
		if !stays(s.spec) {
			if r.live(ctx, s); ctx.Err() != nil || s.status.State.Terminated == nil || s.status.State.Terminated.ExitCode != 0 {
				return false
			}
			continue
		}
		started := make(chan struct{})
		staying.Go(func() { r.liveFrom(ctx, s, func() { close(started) }) })
		select {
		case <-started:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// stays reports whether an init container is a sidecar: one that is restarted always.
func stays(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// change changes slots and has the status written.
func (r *run) change(edit func()) {
	r.mu.Lock()
	edit()
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}
