package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/runtimes"
)

// views are the watched objects of one cluster: one watch per kind, restricted to objects with our labels. A watch covers all
// namespaces if the server allows that, otherwise one namespace.
type views struct {
	mu     sync.Mutex
	all    map[viewKey]*view
	scopes map[schema.GroupVersionResource]*scope
	hints  hints
}

// viewKey identifies a view. An empty namespace means all namespaces, or a kind without namespaces.
type viewKey struct {
	schema.GroupVersionResource
	namespace string
}

// view is the cache of one watched kind.
type view struct {
	resource  resource
	namespace string
	store     *store
	stop      context.CancelFunc
	ended     <-chan struct{} // closed by stop

	mu       sync.Mutex
	lastRead time.Time // time of the last read
	listed   bool
	// The error of the last list and of the last watch; nil on success.
	listErr, watchErr error
	reported          bool          // a caller got the error
	kindGone          bool          // the kind is no longer served; the next caller starts a new view
	failedAt          time.Time     // the time when kindGone was set
	changed           chan struct{} // closed and replaced when one of the above changes
}

var errEnded = errors.New("the watch was ended")

const (
	// goneRetryInterval is how long the cache answers for a kind that is not served, before the next request to the server.
	goneRetryInterval = 2 * time.Second
	// unreadTimeout is how long an unread view is kept: no service uses its namespace or kind any more.
	unreadTimeout = time.Hour
)

// view starts a watch of a resource if there is none, and waits for its first list. The error is a *entities.ReadingError, also if
// the watch of a listed resource fails later: the cache is then outdated, so the state is unknown. The exception is a cancelled ctx.
func (c *cluster) view(ctx context.Context, r resource, namespace string) (*view, error) {
	if !r.namespaced {
		namespace = ""
	} else if wide, err := c.watchesAllNamespaces(ctx, r); err != nil {
		return nil, readingError("check the permission to list "+r.GroupResource().String(), err)
	} else if wide {
		namespace = ""
	}
	v, err := c.getOrStartView(viewKey{r.GroupVersionResource, namespace}, r)
	if err == nil {
		err = v.await(ctx)
	}
	if errors.Is(err, errEnded) && c.ctx.Err() == nil {
		return c.view(ctx, r, namespace) // another view replaced it: its scope changed
	}
	if err != nil {
		err = readingError("list "+viewName(r, namespace), err)
		if hasCode(err, runtimes.CodeForbidden) {
			c.recheckScope(r)
		}
		return nil, err
	}
	return v, nil
}

// viewName returns the name of a view in messages: "deployments.apps in shop".
func viewName(r resource, namespace string) string {
	switch {
	case namespace != "":
		return fmt.Sprintf("%s in %s", r.GroupResource(), namespace)
	case r.namespaced:
		return r.GroupResource().String() + " in all namespaces"
	}
	return r.GroupResource().String()
}

// getOrStartView returns the view of a viewKey. It makes a new one if there is none, or if the kind was gone.
func (c *cluster) getOrStartView(key viewKey, r resource) (v *view, err error) {
	c.views.mu.Lock()
	var unread []*view
	defer func() {
		c.views.mu.Unlock()
		c.views.hintEnded(unread)
	}()
	if c.ctx.Err() != nil {
		return nil, errClosed
	}
	if current := c.views.all[key]; current != nil && !current.expired() {
		return current, nil
	}
	unread = c.views.stopUnread()
	ctx, stop := context.WithCancel(c.ctx)
	v = &view{resource: r, namespace: key.namespace, lastRead: time.Now(), stop: stop, ended: ctx.Done(), changed: make(chan struct{})}
	v.store = newStore(c.views.hints.notify, v.onListed(c.views))
	if c.views.all == nil {
		c.views.all = map[viewKey]*view{}
	}
	c.views.all[key] = v
	go c.runReflector(ctx, v)
	return v, nil
}

// stopUnread removes unread views and returns them; the lock is held.
func (v *views) stopUnread() (ended []*view) {
	for at, known := range v.all {
		known.mu.Lock()
		unwanted := time.Since(known.lastRead) > unreadTimeout
		known.mu.Unlock()
		if unwanted {
			known.stop()
			delete(v.all, at)
			ended = append(ended, known)
		}
	}
	return ended
}

// hintEnded sends a hint for every instance in the ended views: their objects are no longer watched. A caller that still wants to know
// of changes reads, and reading starts new views.
func (v *views) hintEnded(ended []*view) {
	for _, one := range ended {
		one.hintAll(v)
	}
}

// expired reports whether a view ended because its kind is not served, and long enough ago.
func (v *view) expired() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.kindGone && time.Since(v.failedAt) > goneRetryInterval
}

// await waits until the view is complete, or until the error is known.
func (v *view) await(ctx context.Context) error {
	for {
		v.mu.Lock()
		err, listed, changed := v.listErr, v.listed, v.changed
		if err == nil {
			err = v.watchErr
		}
		v.reported = v.reported || err != nil
		v.lastRead = time.Now()
		v.mu.Unlock()
		if err != nil || listed {
			return err
		}
		select {
		case <-changed:
		case <-v.ended:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("no answer yet: %w", ctx.Err())
		}
	}
}

// update changes the state of a view and wakes the waiting callers. It returns whether the view became complete after a caller had got
// an error.
func (v *view) update(change func()) (recovered bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
	if v.reported && v.listErr == nil && v.watchErr == nil {
		v.reported, recovered = false, true
	}
	close(v.changed)
	v.changed = make(chan struct{})
	return recovered
}

// onListed is the callback for a complete list in the store.
func (v *view) onListed(all *views) func() {
	return func() {
		if v.update(func() { v.listed, v.listErr = true, nil }) { // callers that read the broken view got an error
			v.hintAll(all)
		}
	}
}

// hintAll sends a hint for every instance in the view.
func (v *view) hintAll(all *views) {
	for _, owner := range v.store.owners() {
		all.hints.notify(owner)
	}
}

// hintEverything sends a hint for every instance in all views.
func (v *views) hintEverything() {
	v.mu.Lock()
	all := slices.Collect(maps.Values(v.all))
	v.mu.Unlock()
	v.hintEnded(all)
}

// get returns an object of ours, nil if there is none. It is shared: do not change it. It has no managedFields.
func (v *view) get(namespace, name string) *unstructured.Unstructured {
	return v.store.get(types.NamespacedName{Namespace: namespace, Name: name})
}

// byOwner lists the objects of an instance, by namespace and name. They are shared: do not change them.
func (v *view) byOwner(owner runtimes.Owner) []*unstructured.Unstructured {
	return v.store.byOwner(owner)
}

// controlledBy lists the objects that a controller made for an object, by name. Their labels may name an earlier owner (marks.go). They
// are shared: do not change them.
func (v *view) controlledBy(o *unstructured.Unstructured) []*unstructured.Unstructured {
	return v.store.controlledBy(o.GetUID())
}

// scope is whether a kind may be listed and watched over all namespaces.
type scope struct {
	sem           chan struct{} // holds one token during the request
	allNamespaces bool
	checkedAt     time.Time // zero: not requested yet, or to be requested again
	deniedAt      time.Time // time of the last forbidden list
}

const (
	scopeRecheckInterval  = 5 * time.Minute  // a missing permission is checked again after this time
	deniedRecheckInterval = 10 * time.Second // but not for every forbidden list
)

// watchesAllNamespaces reports whether a kind is watched over all namespaces, so that one watch serves all services. It asks the
// server once per kind. While the answer is no, it asks again after some minutes, and after a forbidden list.
func (c *cluster) watchesAllNamespaces(ctx context.Context, r resource) (bool, error) {
	s := c.views.scope(r.GroupVersionResource)
	select {
	case s.sem <- struct{}{}:
		defer func() { <-s.sem }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if !s.checkedAt.IsZero() && (s.allNamespaces || time.Since(s.checkedAt) < scopeRecheckInterval) {
		return s.allNamespaces, nil
	}
	wide, err := c.allowedEverywhere(ctx, r)
	if err != nil {
		return false, err
	}
	if wide != s.allNamespaces {
		c.views.stopKind(r.GroupVersionResource) // each instance reads, which starts its new view
	}
	s.allNamespaces, s.checkedAt = wide, time.Now()
	return wide, nil
}

// recheckScope requests a new check of the scope of a kind, after a list was forbidden.
func (c *cluster) recheckScope(r resource) {
	if !r.namespaced {
		return
	}
	s := c.views.scope(r.GroupVersionResource)
	select {
	case s.sem <- struct{}{}:
		defer func() { <-s.sem }()
	default:
		return // a request is under way
	}
	if time.Since(s.deniedAt) > deniedRecheckInterval {
		s.deniedAt, s.checkedAt = time.Now(), time.Time{}
	}
}

func (v *views) scope(kind schema.GroupVersionResource) *scope {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.scopes == nil {
		v.scopes = map[schema.GroupVersionResource]*scope{}
	}
	if v.scopes[kind] == nil {
		v.scopes[kind] = &scope{sem: make(chan struct{}, 1)}
	}
	return v.scopes[kind]
}

// stopKind stops every view of a kind.
func (v *views) stopKind(kind schema.GroupVersionResource) {
	var ended []*view
	v.mu.Lock()
	for at, known := range v.all {
		if at.GroupVersionResource == kind {
			known.stop()
			delete(v.all, at)
			ended = append(ended, known)
		}
	}
	v.mu.Unlock()
	v.hintEnded(ended)
}

// allowedEverywhere asks the server whether this worker may list and watch a kind in all namespaces. If the server refuses the
// question, the answer is no.
func (c *cluster) allowedEverywhere(ctx context.Context, r resource) (bool, error) {
	clients, err := c.connect(ctx)
	if err != nil {
		return false, err
	}
	for _, verb := range []string{"list", "watch"} {
		review := &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorization.ResourceAttributes{Group: r.Group, Version: r.Version, Resource: r.Resource, Verb: verb},
		}}
		answer, err := clients.typed.Review(ctx, review)
		switch {
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, err
		case !answer.Status.Allowed:
			return false, nil
		}
	}
	return true, nil
}

// hints are the listeners for changes. The zero value is ready.
type hints struct {
	mu  sync.Mutex
	all []*listener // never changed in place
}

type listener struct{ hint func(runtimes.Owner) }

// notify passes a hint to all listeners. A listener that was just stopped may get one more.
func (h *hints) notify(owner runtimes.Owner) {
	h.mu.Lock()
	all := h.all
	h.mu.Unlock()
	for _, l := range all {
		l.hint(owner)
	}
}

func (h *hints) add(hint func(runtimes.Owner)) (stop func()) {
	added := &listener{hint}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(slices.Clip(h.all), added)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = slices.DeleteFunc(slices.Clone(h.all), func(l *listener) bool { return l == added })
	}
}

// Watch implements runtimes.Watcher on the watches that observations started. The pods and ReplicaSets of a workload carry our
// labels too, so a rollout causes hints until it ends. Services on one cluster share its watches. Runtimes that name a cluster in
// the same way share them too, and each of them gets all hints.
func (r *Runtime) Watch(hint func(runtimes.Owner)) (stop func()) {
	return r.cluster.views.hints.add(hint)
}

// Mirrors implements runtimes.Mirror.
func (*Runtime) Mirrors() {}
