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

// acting are the clients that write for an instance and check its drift. They use the service account that the release channel
// names, if it names one. Watches serve all instances, with the worker's own rights.
func (r *Runtime) acting(ctx context.Context, in runtimes.Instance) (*clients, error) {
	connected, err := r.cluster.connect(ctx)
	account := in.Payload.Address[entities.AddressServiceAccount]
	if err != nil || account == "" {
		return connected, err
	}
	namespace, name, qualified := strings.Cut(account, "/")
	if !qualified {
		namespace, name = homeOf(in), account
	}
	return r.cluster.as(connected, "system:serviceaccount:"+namespace+":"+name)
}

// as are clients that impersonate a user; the server adds the groups of a service account itself. A server accepts only one
// impersonated user per request: credentials that already impersonate one cannot impersonate another.
func (c *cluster) as(connected *clients, user string) (*clients, error) {
	if by := connected.wire.current().acts; by != "" {
		return nil, runtimes.Permanent(fmt.Errorf("the kubeconfig already impersonates %s, so it cannot impersonate %s", by, user))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.acting[user]; known != nil {
		return known, nil
	}
	made, err := newClients(connected.wire, transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{UserName: user}, connected.wire))
	if err != nil {
		return nil, err
	}
	if c.acting == nil {
		c.acting = map[string]*clients{}
	}
	c.acting[user] = made
	return made, nil
}

// allowed refuses an object that the owner of the runtime does not allow. Its namespace is already set, or it has none.
func (a *apply) allowed(t *trial) error {
	kind := t.GroupVersionKind()
	if why := a.allow.RefusesObject(entities.AllowedKind{Group: kind.Group, Kind: kind.Kind}, t.GetNamespace()); why != "" {
		return runtimes.Permanent(&problem{doing: "apply " + idOf(t.Unstructured).String(), why: "runtime " + a.def.Name + " " + why, err: errNotAllowed})
	}
	return nil
}

var errNotAllowed = errors.New("not allowed")
