package kubernetes

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/converge-engine/converge/runtimes"
)

// store holds what a view has read, by name and by owner. It is filled by a reflector of client-go,
// from one goroutine, and read from any.
type store struct {
	// changed is called with the owner of what came, changed or went after the first list.
	changed func(runtimes.Owner)
	// listed is called when the store holds a whole list.
	listed func()

	mu      sync.RWMutex
	filled  bool
	objects map[types.NamespacedName]*unstructured.Unstructured
	owned   map[runtimes.Owner][]*unstructured.Unstructured // few each: what one instance has of one kind
}

var _ cache.ReflectorStore = (*store)(nil)

func newStore(changed func(runtimes.Owner), listed func()) *store {
	return &store{
		changed: changed, listed: listed,
		objects: map[types.NamespacedName]*unstructured.Unstructured{},
		owned:   map[runtimes.Owner][]*unstructured.Unstructured{},
	}
}

func nameOf(o *unstructured.Unstructured) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Add implements cache.ReflectorStore.
func (s *store) Add(object any) error {
	o, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil // the reflector passes on only what it was made to take
	}
	o = slim(o)
	s.mu.Lock()
	old := s.put(o)
	s.mu.Unlock()
	s.notify(old, o)
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(object any) error {
	o, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	s.mu.Lock()
	old := s.drop(nameOf(o))
	s.mu.Unlock()
	s.notify(old, nil)
	return nil
}

// Replace implements cache.ReflectorStore: it is a list as a whole, and what of it differs from
// what was known changed while nobody watched.
func (s *store) Replace(list []any, _ string) error {
	type change struct{ old, now *unstructured.Unstructured }
	var changes []change
	there := make(map[types.NamespacedName]bool, len(list))
	s.mu.Lock()
	first := !s.filled
	for _, object := range list {
		o, ok := object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		o = slim(o)
		there[nameOf(o)] = true
		changes = append(changes, change{s.put(o), o})
	}
	for name := range s.objects {
		if !there[name] {
			changes = append(changes, change{s.drop(name), nil})
		}
	}
	s.filled = true
	s.mu.Unlock()
	s.listed()
	if first {
		return nil // what was there when the watch began is no change
	}
	for _, c := range changes {
		s.notify(c.old, c.now)
	}
	return nil
}

// Resync implements cache.ReflectorStore. Nothing is hinted at again by the clock.
func (s *store) Resync() error { return nil }

// put and drop return what was there before; the lock is held.
func (s *store) put(o *unstructured.Unstructured) (old *unstructured.Unstructured) {
	old = s.drop(nameOf(o))
	s.objects[nameOf(o)] = o
	if owner, ours := ownerOf(o.GetLabels()); ours {
		if before := s.owned[owner]; len(before) > 0 {
			share(o, before[len(before)-1])
		}
		s.owned[owner] = append(s.owned[owner], o)
	}
	return old
}

func (s *store) drop(name types.NamespacedName) (old *unstructured.Unstructured) {
	old = s.objects[name]
	if old == nil {
		return nil
	}
	delete(s.objects, name)
	owner, ours := ownerOf(old.GetLabels())
	if !ours {
		return old
	}
	s.owned[owner] = slices.DeleteFunc(s.owned[owner], func(o *unstructured.Unstructured) bool { return o == old })
	if len(s.owned[owner]) == 0 {
		delete(s.owned, owner)
	}
	return old
}

// notify hints at an object that came, changed or went: at both owners, if it passed from one to
// another.
func (s *store) notify(old, now *unstructured.Unstructured) {
	if old != nil && now != nil && old.GetResourceVersion() == now.GetResourceVersion() {
		return
	}
	var before runtimes.Owner
	if old != nil {
		if owner, ours := ownerOf(old.GetLabels()); ours {
			before = owner
			s.changed(owner)
		}
	}
	if now != nil {
		if owner, ours := ownerOf(now.GetLabels()); ours && owner != before {
			s.changed(owner)
		}
	}
}

func (s *store) get(name types.NamespacedName) *unstructured.Unstructured {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[name]
}

// of lists what an owner has, by namespace and name.
func (s *store) of(owner runtimes.Owner) []*unstructured.Unstructured {
	s.mu.RLock()
	owned := slices.Clone(s.owned[owner])
	s.mu.RUnlock()
	slices.SortFunc(owned, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return owned
}

func (s *store) owners() []runtimes.Owner {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(s.owned))
}

const (
	// listTimeout bounds one list, so that a server that accepts and never answers shows.
	listTimeout = time.Minute
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
	short    atomic.Bool // lasting.go
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
// the store. While the server is away it waits.
func (l *listWatch) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.ResourceVersion = "" // any other may be older than what an earlier worker has seen, or another server's
	o.LabelSelector = LabelApplication
	for {
		list, err := l.list(ctx, o)
		if err == nil {
			return list, nil
		}
		l.failed(ctx, err, func() { l.view.listErr = err })
		if !l.cluster.outlasts(ctx) {
			return nil, err
		}
	}
}

func (l *listWatch) list(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	done, err := l.cluster.starting(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	clients, err := l.cluster.connect(ctx)
	if err != nil {
		return nil, err
	}
	l.listedBy = clients.wire.current().print
	return clients.at(l.view.resource, l.view.namespace).List(ctx, o)
}

// moved reports that the kubeconfig says something else since the list, so that this may be another
// server: what was listed says nothing of it.
func (l *listWatch) moved(clients *clients) bool { return l.listedBy != clients.wire.current().print }

func errMoved() error {
	return apierrors.NewResourceExpired("the connection has changed since the list")
}

// WatchWithContext implements cache.ListerWatcherWithContext. While the server is away it waits, and goes on where the last
// watch was: an error would have the reflector list anew.
func (l *listWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.LabelSelector = LabelApplication
	for {
		w, err := l.watch(ctx, o)
		if err == nil {
			if l.view.set(func() { l.view.watchErr = nil }) {
				l.view.hintAll(l.cluster.views)
			}
			return newLasting(w, &l.short), nil
		}
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) { // it was unavailable for long: a list follows at once
			l.failed(ctx, err, func() { l.view.watchErr = err })
		}
		if !l.cluster.outlasts(ctx) {
			return nil, err
		}
	}
}

func (l *listWatch) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	done, err := l.cluster.starting(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	clients, err := l.cluster.connect(ctx)
	if err != nil {
		return nil, err
	}
	if l.moved(clients) { // asked for what it has not come to yet, a server would keep the watch waiting
		return nil, errMoved()
	}
	w, err := clients.at(l.view.resource, l.view.namespace).Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	err = clients.away()
	if err == nil && l.moved(clients) { // while it was sent
		err = errMoved()
	}
	if err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
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
		l.view.hintAll(l.cluster.views)
	}
}
