package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/transport"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// clientsFor are the clients that write for an instance and check its drift. They use the service account that the release channel
// names, if it names one. Watches serve all instances, with the worker's own rights.
func (r *Runtime) clientsFor(ctx context.Context, in runtimes.Request) (*clients, error) {
	connected, err := r.cluster.connect(ctx)
	account := in.Payload.Address[entities.AddressServiceAccount]
	if err != nil || account == "" {
		return connected, err
	}
	namespace, name, qualified := strings.Cut(account, "/")
	if !qualified {
		namespace, name = namespaceOf(in), account
	}
	return r.cluster.impersonate(connected, "system:serviceaccount:"+namespace+":"+name)
}

// impersonate are clients that impersonate a user; the server adds the groups of a service account itself. A server accepts only one
// impersonated user per request: credentials that already impersonate one cannot impersonate another.
func (c *cluster) impersonate(base *clients, user string) (*clients, error) {
	if current := base.transport.current().impersonates; current != "" {
		return nil, runtimes.Permanent(fmt.Errorf("the kubeconfig already impersonates %s, so it cannot impersonate %s", current, user))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.impersonated[user]; known != nil {
		return known, nil
	}
	made, err := newClients(base.transport, transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{UserName: user}, base.transport))
	if err != nil {
		return nil, err
	}
	if c.impersonated == nil {
		c.impersonated = map[string]*clients{}
	}
	c.impersonated[user] = made
	return made, nil
}

// checkAllowed refuses an object that the owner of the runtime does not allow. Its namespace is already set, or it has none.
func (a *apply) checkAllowed(t *trial) error {
	kind := t.GroupVersionKind()
	if reason := a.allow.ObjectDenial(entities.AllowedKind{Group: kind.Group, Kind: kind.Kind}, t.GetNamespace()); reason != "" {
		return runtimes.Permanent(&problem{action: "apply " + idOf(t.Unstructured).String(), reason: "runtime " + a.def.Name + " " + reason, err: errNotAllowed})
	}
	return nil
}

var errNotAllowed = errors.New("not allowed")
