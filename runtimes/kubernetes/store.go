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

// store holds the objects of a view, by name and by owner. One goroutine, a reflector of client-go, fills it; any goroutine may read
// it.
type store struct {
	// changed is called with the owner of each object that was added, changed or deleted after the first list.
	changed func(runtimes.Owner)
	// listed is called when the store holds a complete list.
	listed func()

	mu      sync.RWMutex
	filled  bool
	objects map[types.NamespacedName]*unstructured.Unstructured
	owned   map[runtimes.Owner][]*unstructured.Unstructured // few each: the objects of one kind of one instance
	made    map[types.UID][]*unstructured.Unstructured      // by the object for which a controller made them
}

var _ cache.ReflectorStore = (*store)(nil)

func newStore(changed func(runtimes.Owner), listed func()) *store {
	return &store{
		changed: changed, listed: listed,
		objects: map[types.NamespacedName]*unstructured.Unstructured{},
		owned:   map[runtimes.Owner][]*unstructured.Unstructured{},
		made:    map[types.UID][]*unstructured.Unstructured{},
	}
}

func nameOf(o *unstructured.Unstructured) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Add implements cache.ReflectorStore.
func (s *store) Add(object any) error {
	o, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil // the reflector passes on only the type that it was made for
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

// Replace implements cache.ReflectorStore for a complete list. Its differences from the store are changes that happened without a
// watch.
func (s *store) Replace(list []any, _ string) error {
	type change struct{ old, now *unstructured.Unstructured }
	var changes []change
	present := make(map[types.NamespacedName]bool, len(list))
	s.mu.Lock()
	first := !s.filled
	for _, object := range list {
		o, ok := object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		o = slim(o)
		present[nameOf(o)] = true
		changes = append(changes, change{s.put(o), o})
	}
	for name := range s.objects {
		if !present[name] {
			changes = append(changes, change{s.drop(name), nil})
		}
	}
	s.filled = true
	s.mu.Unlock()
	s.listed()
	if first {
		return nil // objects of the first list are no change
	}
	for _, c := range changes {
		s.notify(c.old, c.now)
	}
	return nil
}

// Resync implements cache.ReflectorStore. A periodic resync sends no hints.
func (s *store) Resync() error { return nil }

// put and drop return the earlier object; the lock is held.
func (s *store) put(o *unstructured.Unstructured) (old *unstructured.Unstructured) {
	old = s.drop(nameOf(o))
	s.objects[nameOf(o)] = o
	if owner, ours := ownerOf(o.GetLabels()); ours {
		if before := s.owned[owner]; len(before) > 0 {
			shareMetadata(o, before[len(before)-1])
		}
		s.owned[owner] = append(s.owned[owner], o)
	}
	if by := metav1.GetControllerOfNoCopy(o); by != nil {
		s.made[by.UID] = append(s.made[by.UID], o)
	}
	return old
}

func (s *store) drop(name types.NamespacedName) (old *unstructured.Unstructured) {
	old = s.objects[name]
	if old == nil {
		return nil
	}
	delete(s.objects, name)
	if by := metav1.GetControllerOfNoCopy(old); by != nil {
		removeFrom(s.made, by.UID, old)
	}
	if owner, ours := ownerOf(old.GetLabels()); ours {
		removeFrom(s.owned, owner, old)
	}
	return old
}

// removeFrom removes an object from an index.
func removeFrom[K comparable](index map[K][]*unstructured.Unstructured, key K, old *unstructured.Unstructured) {
	index[key] = slices.DeleteFunc(index[key], func(o *unstructured.Unstructured) bool { return o == old })
	if len(index[key]) == 0 {
		delete(index, key)
	}
}

// notify sends a hint for an object that was added, changed or deleted: to both owners, if it passed from one to another.
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

// byOwner lists the objects of an owner, by namespace and name.
func (s *store) byOwner(owner runtimes.Owner) []*unstructured.Unstructured {
	s.mu.RLock()
	owned := slices.Clone(s.owned[owner])
	s.mu.RUnlock()
	slices.SortFunc(owned, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return owned
}

// controlledBy lists the objects that a controller made for an object, by namespace and name.
func (s *store) controlledBy(uid types.UID) []*unstructured.Unstructured {
	s.mu.RLock()
	made := slices.Clone(s.made[uid])
	s.mu.RUnlock()
	slices.SortFunc(made, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return made
}

func (s *store) owners() []runtimes.Owner {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(s.owned))
}

const (
	// listTimeout limits one list, so that a server that accepts and never answers is detected.
	listTimeout = time.Minute
)

// runReflector lists and watches a view until ctx ends or its kind is gone. It uses a reflector of client-go without the informer around
// it: the store then holds a complete list or nothing, hints come at once after a change, and there is one copy of each object.
func (c *cluster) runReflector(ctx context.Context, v *view) {
	silentLogger := klog.Logger{} // a reading reports the failures: a log would repeat them for every attempt
	reflector := cache.NewReflectorWithOptions(&listWatch{cluster: c, view: v}, &unstructured.Unstructured{}, v.store, cache.ReflectorOptions{
		Logger: &silentLogger, Name: "converge", TypeDescription: viewName(v.resource, v.namespace),
		Backoff: &wait.Backoff{Duration: firstRetry, Cap: lastRetry, Steps: 100, Factor: 2, Jitter: 1},
	})
	reflector.RunWithContext(klog.NewContext(ctx, silentLogger))
}

// listWatch are the calls of a reflector. They report their outcomes to the view.
type listWatch struct {
	cluster *cluster
	view    *view
	// listedFingerprint is the fingerprint of the connection when the last list began. Only the goroutine of the reflector uses it.
	listedFingerprint string
	short             atomic.Bool // min_watch.go
}

var (
	_ cache.ListerWatcher            = (*listWatch)(nil)
	_ cache.ListerWatcherWithContext = (*listWatch)(nil)
)

// IsWatchListSemanticsUnSupported makes the reflector list and then watch: two calls with one outcome each.
func (l *listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (l *listWatch) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(l.cluster.ctx, o)
}

// Watch implements cache.ListerWatcher.
func (l *listWatch) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(l.cluster.ctx, o)
}

// ListWithContext implements cache.ListerWatcherWithContext. Its success becomes visible when the list is in the store. During an
// outage of the server it waits.
func (l *listWatch) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.ResourceVersion = "" // any other may be older than one that an earlier worker read, or be of another server
	o.LabelSelector = LabelApplication
	for {
		list, err := l.list(ctx, o)
		if err == nil {
			return list, nil
		}
		l.recordFailure(ctx, err, func() { l.view.listErr = err })
		if !l.cluster.waitForRecovery(ctx) {
			return nil, err
		}
	}
}

func (l *listWatch) list(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	done, err := l.cluster.acquireStartSlot(ctx)
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
	l.listedFingerprint = clients.transport.current().fingerprint
	return clients.resourceClient(l.view.resource, l.view.namespace).List(ctx, o)
}

// connectionChanged reports whether the kubeconfig has changed since the list. The server may then be another one, to which the list
// does not apply.
func (l *listWatch) connectionChanged(clients *clients) bool {
	return l.listedFingerprint != clients.transport.current().fingerprint
}

func connectionChangedError() error {
	return apierrors.NewResourceExpired("the connection has changed since the list")
}

// WatchWithContext implements cache.ListerWatcherWithContext. During an outage of the server it waits, and resumes at the position
// of the last watch: after an error the reflector would list again.
func (l *listWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.LabelSelector = LabelApplication
	for {
		w, err := l.watch(ctx, o)
		if err == nil {
			if l.view.update(func() { l.view.watchErr = nil }) {
				l.view.hintAll(l.cluster.views)
			}
			return newMinDurationWatch(w, &l.short), nil
		}
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) { // the server was unavailable for long: a list follows at once
			l.recordFailure(ctx, err, func() { l.view.watchErr = err })
		}
		if !l.cluster.waitForRecovery(ctx) {
			return nil, err
		}
	}
}

func (l *listWatch) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	done, err := l.cluster.acquireStartSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	clients, err := l.cluster.connect(ctx)
	if err != nil {
		return nil, err
	}
	if l.connectionChanged(clients) { // for a version that it has not reached yet, a server would keep the watch waiting
		return nil, connectionChangedError()
	}
	w, err := clients.resourceClient(l.view.resource, l.view.namespace).Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	err = clients.outageError()
	if err == nil && l.connectionChanged(clients) { // during the request
		err = connectionChangedError()
	}
	if err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

// recordFailure records the outcome of a call. A kind that is no longer served (its CustomResourceDefinition was removed) ends the view;
// the next caller starts a new one.
func (l *listWatch) recordFailure(ctx context.Context, err error, record func()) {
	if ctx.Err() != nil {
		return // this process ended it
	}
	kindGone := apierrors.IsNotFound(err)
	l.view.update(func() {
		record()
		if kindGone {
			l.view.kindGone, l.view.failedAt = true, time.Now()
		}
	})
	if kindGone {
		l.view.stop()
		l.view.hintAll(l.cluster.views)
	}
}
