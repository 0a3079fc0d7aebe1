// Package agent plays the nodes of a cluster: it binds pods, reports how their containers fare, and runs the commands of
// some as processes of this machine. Nothing is pulled and nothing is isolated.
//
// What a container does is said by the tag of its image and by annotations of its pod (script.go). Pods of a Job, and
// those annotated so, run their commands as processes, with the environment and the volumes that they declare
// (process.go, volumes.go).
package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
)

// Options say for which cluster, and where files lie.
type Options struct {
	// Kubeconfig is of a user who may do everything.
	Kubeconfig string
	// Dir takes the volumes and logs of pods.
	Dir string
	// Nodes is how many to play: node-0, node-1 and so on.
	Nodes int
	// Errors takes what could not be reported through the API, a line each.
	Errors io.Writer
}

// Run plays until ctx ends, and returns when all processes have ended.
func Run(ctx context.Context, options Options) error {
	config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 1000, 2000
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.UserAgent = "kubelet"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return err
	}
	a := &agent{client: client, dir: options.Dir, errors: options.Errors, runs: map[types.UID]*handle{}}
	stopEvents := a.startEvents()
	defer stopEvents()
	port, err := a.serveLogs(ctx)
	if err != nil {
		return fmt.Errorf("serve logs: %w", err)
	}
	for i := range options.Nodes {
		if err := a.registerSurely(ctx, fmt.Sprintf("node-%d", i), port); err != nil {
			return fmt.Errorf("register a node: %w", err)
		}
	}
	if err := a.watch(ctx, options.Nodes); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	<-ctx.Done()
	a.endAll()
	return nil
}

type agent struct {
	client    kubernetes.Interface
	dir       string
	errors    io.Writer
	nodes     corelisters.NodeLister
	kubelet   record.EventRecorder
	scheduler record.EventRecorder

	bound     atomic.Int64 // pods bound so far, to deal them out
	addresses atomic.Int64 // pods played so far

	mu   sync.Mutex
	runs map[types.UID]*handle
}

// handle is a pod being played.
type handle struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (a *agent) startEvents() (stop func()) {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: a.client.CoreV1().Events("")})
	a.kubelet = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet"})
	a.scheduler = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "default-scheduler"})
	return broadcaster.Shutdown
}

// watch begins once so many nodes are known to be ready: a pod that no node fits is not tried again.
func (a *agent) watch(ctx context.Context, ready int) error {
	factory := informers.NewSharedInformerFactory(a.client, 0)
	nodes := factory.Core().V1().Nodes()
	a.nodes = nodes.Lister()
	synced := nodes.Informer().HasSynced
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced, func() bool { return a.readyNodes() >= ready }) {
		return ctx.Err()
	}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { a.see(ctx, object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { a.see(ctx, object.(*corev1.Pod)) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			a.forget(object.(*corev1.Pod).UID)
		},
	})
	if err != nil {
		return err
	}
	if err := a.playAround(ctx, factory); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	return nil
}

// see gets each change of a pod, in order.
func (a *agent) see(ctx context.Context, pod *corev1.Pod) {
	switch {
	case pod.DeletionTimestamp != nil && pod.Spec.NodeName != "":
		go a.remove(ctx, pod)
	case pod.DeletionTimestamp != nil:
	case pod.Spec.NodeName == "":
		a.bind(ctx, pod)
	case pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed:
		a.begin(ctx, pod)
	}
}

func (a *agent) begin(ctx context.Context, pod *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs[pod.UID] != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	h := &handle{cancel: cancel, done: make(chan struct{})}
	a.runs[pod.UID] = h
	number := a.addresses.Add(1)
	go func() {
		defer close(h.done)
		a.newRun(pod.DeepCopy(), number).play(ctx)
	}()
}

// remove ends a pod and then takes its object away, as the node of a deleted pod does.
func (a *agent) remove(ctx context.Context, pod *corev1.Pod) {
	if h := a.handle(pod.UID); h != nil {
		h.cancel()
		<-h.done
	}
	pause(ctx, duration(pod, StopIn, 0))
	err := a.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	a.complain("delete", pod, err)
}

func (a *agent) forget(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h := a.runs[uid]; h != nil {
		h.cancel()
		delete(a.runs, uid)
	}
}

func (a *agent) handle(uid types.UID) *handle {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runs[uid]
}

// endAll waits for what ctx's end has stopped.
func (a *agent) endAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.runs {
		<-h.done
	}
}
