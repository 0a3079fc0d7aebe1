package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// discoveryInterval is the shortest interval between two requests for a kind that a server did not have.
	discoveryInterval = 2 * time.Second
	// discoveryTimeout is the timeout of one request; several callers may wait for its answer.
	discoveryTimeout = 30 * time.Second
)

// kinds caches what a cluster serves, by group and version, so that a worker asks only for the kinds of its services. Concurrent
// callers share one request.
type kinds struct {
	mu      sync.Mutex
	answers map[string]*discoveryAnswer // by path: /apis/apps/v1
}

// discoveryAnswer is the server's answer for one path, perhaps still pending.
type discoveryAnswer struct {
	done        chan struct{} // closed when the rest is set
	requestedAt time.Time
	err         error
	body        struct {
		Resources        []metav1.APIResource              `json:"resources"`        // of a group and version
		PreferredVersion metav1.GroupVersionForDiscovery   `json:"preferredVersion"` // of a group
		Versions         []metav1.GroupVersionForDiscovery `json:"versions"`
	}
}

// resource finds how a kind is served. It asks again for an unknown kind, but not at every call, so that it finds a
// CustomResourceDefinition that was just applied. The error is then a *meta.NoKindMatchError.
func (c *cluster) resource(ctx context.Context, kind schema.GroupVersionKind) (resource, error) {
	served, found, err := c.lookUp(ctx, kind, false)
	if err == nil && !found {
		served, found, err = c.lookUp(ctx, kind, true)
	}
	if err == nil && !found {
		err = &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	}
	return served, err
}

// preferred finds how a kind is served if no version is given: in the server's preferred version, or in another.
func (c *cluster) preferred(ctx context.Context, kind schema.GroupKind) (resource, error) {
	versions := []string{"v1"}
	if kind.Group != "" {
		group, err := c.discover(ctx, "/apis/"+kind.Group, true)
		if apierrors.IsNotFound(err) {
			return resource{}, &meta.NoKindMatchError{GroupKind: kind}
		}
		if err != nil {
			return resource{}, err
		}
		versions = []string{group.body.PreferredVersion.Version}
		for _, v := range group.body.Versions {
			versions = append(versions, v.Version)
		}
	}
	for _, version := range versions {
		served, found, err := c.lookUp(ctx, kind.WithVersion(version), false)
		if found || err != nil {
			return served, err
		}
	}
	return resource{}, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
}

func (c *cluster) lookUp(ctx context.Context, kind schema.GroupVersionKind, refresh bool) (resource, bool, error) {
	path := "/apis/" + kind.Group + "/" + kind.Version
	if kind.Group == "" {
		path = "/api/" + kind.Version
	}
	list, err := c.discover(ctx, path, refresh)
	if apierrors.IsNotFound(err) {
		return resource{}, false, nil
	}
	if err != nil {
		return resource{}, false, err
	}
	for _, served := range list.body.Resources {
		if served.Kind == kind.Kind && !strings.Contains(served.Name, "/") { // with a slash: a subresource
			gvr := kind.GroupVersion().WithResource(served.Name)
			return resource{GroupVersionResource: gvr, kind: kind, namespaced: served.Namespaced}, true, nil
		}
	}
	return resource{}, false, nil
}

// discover answers from the cache. With refresh it asks the server, unless the last answer is recent.
func (c *cluster) discover(ctx context.Context, path string, refresh bool) (*discoveryAnswer, error) {
	clients, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	a := c.kinds.getOrStart(path, refresh, func(a *discoveryAnswer) { a.fetch(c.ctx, clients, path) })
	select {
	case <-a.done:
		if a.err != nil {
			return nil, fmt.Errorf("discover what the cluster serves at %s: %w", path, a.err)
		}
		return a, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("discover what the cluster serves at %s: %w", path, context.Cause(ctx))
	}
}

func (k *kinds) getOrStart(path string, refresh bool, fetch func(*discoveryAnswer)) *discoveryAnswer {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a := k.answers[path]; a != nil && a.usable(refresh) {
		return a
	}
	a := &discoveryAnswer{done: make(chan struct{}), requestedAt: time.Now()}
	if k.answers == nil {
		k.answers = map[string]*discoveryAnswer{}
	}
	k.answers[path] = a
	go func() {
		defer close(a.done)
		fetch(a)
	}()
	return a
}

// reset clears the cache: definitions of kinds were just applied.
func (k *kinds) reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answers = nil
}

func (a *discoveryAnswer) usable(refresh bool) bool {
	select {
	case <-a.done:
	default:
		return true // pending
	}
	recent := time.Since(a.requestedAt) < discoveryInterval
	if a.err != nil {
		return recent && apierrors.IsNotFound(a.err)
	}
	return recent || !refresh
}

func (a *discoveryAnswer) fetch(ctx context.Context, clients *clients, path string) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	raw, err := clients.typed.Get(ctx, path)
	if err == nil {
		err = json.Unmarshal(raw, &a.body)
	}
	a.err = err
}
