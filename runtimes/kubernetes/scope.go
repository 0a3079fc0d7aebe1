package kubernetes

import (
	"context"
	"time"

	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// scope is whether a kind may be listed and watched over all namespaces.
type scope struct {
	asking chan struct{} // holds one token while it is asked
	wide   bool
	asked  time.Time // zero: never, or to be asked again
	denied time.Time // when a list was last forbidden
}

const (
	narrowFor  = 5 * time.Minute  // a permission that is missing is asked for again
	deniedPace = 10 * time.Second // but not for every list that is forbidden
)

// wide tells whether a kind is watched over all namespaces: one watch then serves all services. The
// server is asked once for each kind; again, while the answer is no, after some minutes, and when a
// list was forbidden.
func (c *cluster) wide(ctx context.Context, r resource) (bool, error) {
	s := c.views.scope(r.GroupVersionResource)
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if !s.asked.IsZero() && (s.wide || time.Since(s.asked) < narrowFor) {
		return s.wide, nil
	}
	wide, err := c.allowedEverywhere(ctx, r)
	if err != nil {
		return false, err
	}
	if wide != s.wide {
		c.views.end(r.GroupVersionResource) // each instance asks for its new one
	}
	s.wide, s.asked = wide, time.Now()
	return wide, nil
}

// narrow has the scope of a kind asked for again, since a list was forbidden.
func (c *cluster) narrow(r resource) {
	if !r.namespaced {
		return
	}
	s := c.views.scope(r.GroupVersionResource)
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	default:
		return // it is being asked for
	}
	if time.Since(s.denied) > deniedPace {
		s.denied, s.asked = time.Now(), time.Time{}
	}
}

func (v *views) scope(kind schema.GroupVersionResource) *scope {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.scopes == nil {
		v.scopes = map[schema.GroupVersionResource]*scope{}
	}
	if v.scopes[kind] == nil {
		v.scopes[kind] = &scope{asking: make(chan struct{}, 1)}
	}
	return v.scopes[kind]
}

// end stops every view of a kind.
func (v *views) end(kind schema.GroupVersionResource) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for at, known := range v.all {
		if at.GroupVersionResource == kind {
			known.stop()
			delete(v.all, at)
		}
	}
}

// allowedEverywhere asks the server whether we may list and watch a kind in all namespaces. A server
// that does not let us ask counts as no.
func (c *cluster) allowedEverywhere(ctx context.Context, r resource) (bool, error) {
	clients, err := c.connect(ctx)
	if err != nil {
		return false, err
	}
	for _, verb := range []string{"list", "watch"} {
		review := &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorization.ResourceAttributes{Group: r.Group, Version: r.Version, Resource: r.Resource, Verb: verb},
		}}
		answer, err := clients.typed.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
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
