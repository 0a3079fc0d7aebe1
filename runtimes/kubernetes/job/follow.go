package job

import (
	"context"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// follower watches one Job, its pods and the events about it.
type follower struct {
	jobs, pods, events cache.SharedIndexInformer
	changed            chan struct{} // holds one: what changed since is looked at at once
	refused            chan error    // holds one: watching is not allowed
	stop               context.CancelFunc
	all                sync.WaitGroup
}

// follow begins to watch. stop is to be called.
func follow(ctx context.Context, client clientset.Interface, job *batchv1.Job) (*follower, error) {
	ctx, stop := context.WithCancel(ctx)
	f := &follower{changed: make(chan struct{}, 1), refused: make(chan error, 1), stop: stop}
	named := fields.OneTermEqualSelector("metadata.name", job.Name)
	about := fields.OneTermEqualSelector("involvedObject.uid", string(job.UID))
	owned := labels.SelectorFromSet(labels.Set{batchv1.ControllerUidLabel: string(job.UID)})
	f.jobs = informer(client.BatchV1().RESTClient(), "jobs", &batchv1.Job{}, place{job.Namespace, named, nil})
	f.pods = informer(client.CoreV1().RESTClient(), "pods", &corev1.Pod{}, place{job.Namespace, nil, owned})
	f.events = informer(client.CoreV1().RESTClient(), "events", &corev1.Event{}, place{job.Namespace, about, nil})
	needed := []cache.InformerSynced{f.jobs.HasSynced, f.pods.HasSynced}
	for _, informer := range []cache.SharedIndexInformer{f.jobs, f.pods, f.events} {
		if err := f.start(ctx, informer, informer != f.events); err != nil {
			f.stop()
			return nil, err
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), needed...) {
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

// start runs one informer. Events are a comfort: without the right to see them we wait longer, that
// is all. Anything else that may not be watched ends the following.
func (f *follower) start(ctx context.Context, informer cache.SharedIndexInformer, needed bool) error {
	tell := func(any) {
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: tell, UpdateFunc: func(_, o any) { tell(o) }, DeleteFunc: tell,
	}); err != nil {
		return err
	}
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if needed && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) {
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

// end stops watching and waits until nothing of it runs.
func (f *follower) end() {
	f.stop()
	f.all.Wait()
}

// seen is what is known now of the Job with this identity.
func (f *follower) seen(job *batchv1.Job) seen {
	var s seen
	for _, o := range f.jobs.GetStore().List() {
		if j, ok := o.(*batchv1.Job); ok && j.UID == job.UID {
			s.job = j
		}
	}
	for _, o := range f.pods.GetStore().List() {
		if p, ok := o.(*corev1.Pod); ok {
			s.pods = append(s.pods, p)
		}
	}
	for _, o := range f.events.GetStore().List() {
		if e, ok := o.(*corev1.Event); ok {
			s.events = append(s.events, e)
		}
	}
	return s
}

// until waits until done says so. It is asked at every change, and when it wants to be asked again.
func (f *follower) until(ctx context.Context, done func() (bool, time.Time)) error {
	for {
		ok, at := done()
		if ok {
			return nil
		}
		var later <-chan time.Time
		timer := time.NewTimer(time.Until(at))
		if !at.IsZero() {
			later = timer.C
		}
		select {
		case <-f.changed:
		case <-later:
		case err := <-f.refused:
			timer.Stop()
			return err
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		timer.Stop()
	}
}

// place selects what is watched.
type place struct {
	namespace string
	fields    fields.Selector
	labels    labels.Selector
}

func informer(client rest.Interface, resource string, of runtime.Object, at place) cache.SharedIndexInformer {
	watch := cache.NewFilteredListWatchFromClient(client, resource, at.namespace, func(o *metav1.ListOptions) {
		if at.fields != nil {
			o.FieldSelector = at.fields.String()
		}
		if at.labels != nil {
			o.LabelSelector = at.labels.String()
		}
	})
	return cache.NewSharedIndexInformer(watch, of, 0, cache.Indexers{})
}
