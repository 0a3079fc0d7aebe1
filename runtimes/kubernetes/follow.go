package kubernetes

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// listTimeout bounds one list, so that a server that accepts and never answers shows.
	listTimeout = time.Minute
	// After a failure the next attempt comes after firstRetry, doubled up to lastRetry, each up to
	// twice as long by chance. It is shorter than client-go's own (30 s): a cluster that is back is
	// seen soon, and there are a few dozen watches per cluster, whatever the number of services.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// follow lists and watches a view until ctx ends or its kind is gone. A reflector of client-go does
// it, without the informer around it: the store is then a whole list or nothing, hints come as soon
// as it changed, and there is one copy of each object.
func (c *cluster) follow(ctx context.Context, v *view) {
	silent := klog.Logger{} // what fails is in the reading: a log would say it once more for every attempt
	reflector := cache.NewReflectorWithOptions(&listWatch{cluster: c, view: v}, &unstructured.Unstructured{}, v.store, cache.ReflectorOptions{
		Logger: &silent, Name: "converge", TypeDescription: what(v.resource, v.namespace),
		Backoff: &wait.Backoff{Duration: firstRetry, Cap: lastRetry, Steps: 100, Factor: 2, Jitter: 1},
	})
	reflector.RunWithContext(klog.NewContext(ctx, silent))
}

// listWatch are the calls of a reflector, whose outcomes the view has to know.
type listWatch struct {
	cluster *cluster
	view    *view
	// listedBy is the description of the connection when the last list began. Only the reflector's
	// goroutine touches it.
	listedBy string
}

var (
	_ cache.ListerWatcher            = (*listWatch)(nil)
	_ cache.ListerWatcherWithContext = (*listWatch)(nil)
)

// IsWatchListSemanticsUnSupported keeps the reflector to a list and then a watch: two calls with an
// outcome each.
func (l *listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (l *listWatch) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(l.cluster.ctx, o)
}

// Watch implements cache.ListerWatcher.
func (l *listWatch) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(l.cluster.ctx, o)
}

// ListWithContext implements cache.ListerWatcherWithContext. Its success shows when the list is in
// the store.
func (l *listWatch) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	bounded, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	o.ResourceVersion = "" // any other may be older than what an earlier worker has seen, or another server's
	clients, err := l.cluster.connect(bounded)
	if err == nil {
		l.listedBy = clients.wire.current().print
		o.LabelSelector = LabelApplication
		var list *unstructured.UnstructuredList
		if list, err = clients.at(l.view.resource, l.view.namespace).List(bounded, o); err == nil {
			return list, nil
		}
	}
	l.failed(ctx, err, func() { l.view.listErr = err })
	return nil, err
}

// moved tells that the kubeconfig says something else since the list, so that this may be another
// server: what was listed says nothing of it.
func (l *listWatch) moved(clients *clients) bool { return l.listedBy != clients.wire.current().print }

func errMoved() error {
	return apierrors.NewResourceExpired("the connection has changed since the list")
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (l *listWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	clients, err := l.cluster.connect(ctx)
	if err == nil {
		if l.moved(clients) { // asked for what it has not come to yet, a server would keep the watch waiting
			return nil, errMoved()
		}
		o.LabelSelector = LabelApplication
		var w watch.Interface
		w, err = clients.at(l.view.resource, l.view.namespace).Watch(ctx, o)
		if err == nil && l.moved(clients) { // while it was sent
			w.Stop()
			return nil, errMoved()
		}
		if err == nil {
			if l.view.set(func() { l.view.watchErr = nil }) {
				l.view.hintAll(l.cluster.views)
			}
			return w, nil
		}
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) { // it was away for long: a list follows at once
		l.failed(ctx, err, func() { l.view.watchErr = err })
	}
	return nil, err
}

// failed records the outcome of a call. A kind that is no longer served (its
// CustomResourceDefinition was removed) ends the view: who asks next begins anew.
func (l *listWatch) failed(ctx context.Context, err error, record func()) {
	if ctx.Err() != nil {
		return // ended by us
	}
	gone := apierrors.IsNotFound(err)
	l.view.set(func() {
		record()
		if gone {
			l.view.gone, l.view.failedAt = true, time.Now()
		}
	})
	if gone {
		l.view.stop()
	}
}
