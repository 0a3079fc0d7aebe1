package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/runtimes"
)

// views are the watched objects of one cluster: one watch per kind, restricted to objects with our
// labels, over all namespaces where the server allows it and per namespace where not.
type views struct {
	mu     sync.Mutex
	all    map[place]*view
	scopes map[schema.GroupVersionResource]*scope
	hints  hints
}

// place is what one view is of. An empty namespace is all of them, or a kind without namespaces.
type place struct {
	schema.GroupVersionResource
	namespace string
}

// view is one kind as it is watched.
type view struct {
	resource  resource
	namespace string
	store     *store
	stop      context.CancelFunc
	ended     <-chan struct{} // closed by stop

	mu     sync.Mutex
	asked  time.Time // when somebody last wanted it
	listed bool
	// Why the last list, or the last watch, failed; nil when it did not.
	listErr, watchErr error
	told              bool          // somebody was told of the error
	gone              bool          // the kind is no longer served: the next who asks begins anew
	failedAt          time.Time     // when gone
	changed           chan struct{} // closed when one of the above changes, and made anew
}

var errEnded = errors.New("the watch was ended")

const (
	// anewAfter is how long a kind that is not served is answered for without asking again.
	anewAfter = 2 * time.Second
	// unwantedAfter is how long a view is kept that nobody looks at: a namespace or a kind that no
	// service uses any more.
	unwantedAfter = time.Hour
)

// view begins to watch a resource when nobody did, and waits until it was listed. The error is a
// *entities.ReadingError, also when what was listed once can no longer be watched: what is cached
// then is old, and old is unknown. A cancelled ctx is the one exception.
func (c *cluster) view(ctx context.Context, r resource, namespace string) (*view, error) {
	if !r.namespaced {
		namespace = ""
	} else if wide, err := c.wide(ctx, r); err != nil {
		return nil, readingError("ask what may be listed of "+r.GroupResource().String(), err)
	} else if wide {
		namespace = ""
	}
	v, err := c.begin(place{r.GroupVersionResource, namespace}, r)
	if err == nil {
		err = v.await(ctx)
	}
	if errors.Is(err, errEnded) && c.ctx.Err() == nil {
		return c.view(ctx, r, namespace) // it was replaced: its scope changed
	}
	if err != nil {
		err = readingError("list "+what(r, namespace), err)
		if hasCode(err, runtimes.CodeForbidden) {
			c.narrow(r)
		}
		return nil, err
	}
	return v, nil
}

// what names a view for people: "deployments.apps in shop".
func what(r resource, namespace string) string {
	switch {
	case namespace != "":
		return fmt.Sprintf("%s in %s", r.GroupResource(), namespace)
	case r.namespaced:
		return r.GroupResource().String() + " in all namespaces"
	}
	return r.GroupResource().String()
}

// begin returns the view of a place, a new one when there is none or its kind had gone.
func (c *cluster) begin(at place, r resource) (*view, error) {
	c.views.mu.Lock()
	defer c.views.mu.Unlock()
	if c.ctx.Err() != nil {
		return nil, errClosed
	}
	if known := c.views.all[at]; known != nil && !known.over() {
		return known, nil
	}
	c.views.tidy()
	ctx, stop := context.WithCancel(c.ctx)
	v := &view{resource: r, namespace: at.namespace, asked: time.Now(), stop: stop, ended: ctx.Done(), changed: make(chan struct{})}
	v.store = newStore(c.views.hints.tell, v.whole(c.views))
	if c.views.all == nil {
		c.views.all = map[place]*view{}
	}
	c.views.all[at] = v
	go c.follow(ctx, v)
	return v, nil
}

// tidy ends the views that nobody wants; the lock is held.
func (v *views) tidy() {
	for at, known := range v.all {
		known.mu.Lock()
		unwanted := time.Since(known.asked) > unwantedAfter
		known.mu.Unlock()
		if unwanted {
			known.stop()
			delete(v.all, at)
		}
	}
}

// over tells that a view was given up, and long enough ago.
func (v *view) over() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.gone && time.Since(v.failedAt) > anewAfter
}

// await waits until the view is whole, or until it is known why it is not.
func (v *view) await(ctx context.Context) error {
	for {
		v.mu.Lock()
		err, listed, changed := v.listErr, v.listed, v.changed
		if err == nil {
			err = v.watchErr
		}
		v.told = v.told || err != nil
		v.asked = time.Now()
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

// set changes the state of a view and wakes who waits for it. It returns whether the view became
// whole again after somebody was told that it was not.
func (v *view) set(change func()) (mended bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
	if v.told && v.listErr == nil && v.watchErr == nil {
		v.told, mended = false, true
	}
	close(v.changed)
	v.changed = make(chan struct{})
	return mended
}

// whole is what follows a list that is in the store.
func (v *view) whole(all *views) func() {
	return func() {
		if v.set(func() { v.listed, v.listErr = true, nil }) {
			v.hintAll(all)
		}
	}
}

// hintAll hints at everybody in the view: who looked while it was broken was told that nothing is
// known.
func (v *view) hintAll(all *views) {
	for _, owner := range v.store.owners() {
		all.hints.tell(owner)
	}
}

// get is an object of ours, nil when there is none. It is shared: not to be changed. managedFields
// are not kept.
func (v *view) get(namespace, name string) *unstructured.Unstructured {
	return v.store.get(types.NamespacedName{Namespace: namespace, Name: name})
}

// of lists the objects of an instance, by namespace and name. They are shared: not to be changed.
func (v *view) of(owner runtimes.Owner) []*unstructured.Unstructured { return v.store.of(owner) }

// controlledBy lists those of an instance's objects that a controller made for another object.
func (v *view) controlledBy(owner runtimes.Owner, o *unstructured.Unstructured) (made []*unstructured.Unstructured) {
	for _, candidate := range v.of(owner) {
		if by := metav1.GetControllerOfNoCopy(candidate); by != nil && by.UID == o.GetUID() {
			made = append(made, candidate)
		}
	}
	return made
}
