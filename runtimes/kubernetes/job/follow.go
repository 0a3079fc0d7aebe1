package job

import (
	"context"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/converge-engine/converge/runtimes/kubernetes/api"
)

// follower watches one Job, its pods and the events about it.
type follower struct {
	jobs, pods, events cache.SharedIndexInformer
	changed            chan struct{} // capacity one: several changes cause one evaluation
	refused            chan error    // capacity one: watching is not allowed
	stop               context.CancelFunc
	all                sync.WaitGroup
}

// newFollower starts the watches. The caller must stop them.
func newFollower(ctx context.Context, client *api.Client, job *batchv1.Job) (*follower, error) {
	ctx, stop := context.WithCancel(ctx)
	f := &follower{changed: make(chan struct{}, 1), refused: make(chan error, 1), stop: stop}
	named := metav1.ListOptions{FieldSelector: "metadata.name=" + job.Name}
	owned := metav1.ListOptions{LabelSelector: batchv1.ControllerUidLabel + "=" + string(job.UID)}
	related := metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(job.UID)}
	informer := func(client rest.Interface, resource string, objectType runtime.Object, selected metav1.ListOptions) cache.SharedIndexInformer {
		watch := cache.NewFilteredListWatchFromClient(client, resource, job.Namespace, func(o *metav1.ListOptions) {
			o.FieldSelector, o.LabelSelector = selected.FieldSelector, selected.LabelSelector
		})
		return cache.NewSharedIndexInformer(watch, objectType, 0, cache.Indexers{})
	}
	f.jobs = informer(client.Batch, "jobs", &batchv1.Job{}, named)
	f.pods = informer(client.Core, "pods", &corev1.Pod{}, owned)
	f.events = informer(client.Core, "events", &corev1.Event{}, related)
	for _, each := range []cache.SharedIndexInformer{f.jobs, f.pods, f.events} {
		if err := f.start(ctx, each, each != f.events); err != nil {
			f.stop()
			return nil, err
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), f.jobs.HasSynced, f.pods.HasSynced) {
		f.end()
		select {
		case err := <-f.refused:
			return nil, err
		default:
			return nil, ctx.Err()
		}
	}
	return f, nil
}

// start runs one informer. Events are optional: without the right to watch them the wait only takes longer. If other objects may not
// be watched, the follower ends.
func (f *follower) start(ctx context.Context, informer cache.SharedIndexInformer, required bool) error {
	notify := func(any) {
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: notify, UpdateFunc: func(_, o any) { notify(o) }, DeleteFunc: notify,
	}); err != nil {
		return err
	}
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if required && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) {
			select {
			case f.refused <- err:
			default:
			}
			f.stop()
		}
	})
	if err != nil {
		return err
	}
	f.all.Go(func() { informer.RunWithContext(ctx) })
	return nil
}

// end stops the watches and waits until their goroutines have ended.
func (f *follower) end() {
	f.stop()
	f.all.Wait()
}

// observed is the current state of the Job with this identity.
func (f *follower) observed(job *batchv1.Job) observed {
	s := observed{pods: listStore[*corev1.Pod](f.pods), events: listStore[*corev1.Event](f.events)}
	for _, j := range listStore[*batchv1.Job](f.jobs) {
		if j.UID == job.UID {
			s.job = j
		}
	}
	return s
}

func listStore[T any](informer cache.SharedIndexInformer) (all []T) {
	for _, o := range informer.GetStore().List() {
		if t, ok := o.(T); ok {
			all = append(all, t)
		}
	}
	return all
}

// waitUntil waits until done returns true. It calls done at every change, and at the time that done returned.
func (f *follower) waitUntil(ctx context.Context, done func() (bool, time.Time)) error {
	for {
		ok, at := done()
		if ok {
			return nil
		}
		var timer <-chan time.Time
		if !at.IsZero() {
			timer = time.After(time.Until(at))
		}
		select {
		case <-f.changed:
		case <-timer:
		case err := <-f.refused:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
