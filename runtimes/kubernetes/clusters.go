package kubernetes

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/converge-engine/converge/entities"
)

// Clusters are the connections of one worker, shared by all runtimes that name the same cluster in
// the same way. The zero value is ready. Safe for concurrent use.
type Clusters struct {
	// WrapTransport, when set before the first use, stands around every request to any cluster: it
	// counts, delays, fails. Requests pass it without credentials.
	WrapTransport func(http.RoundTripper) http.RoundTripper

	mu     sync.Mutex
	all    map[source]*cluster
	closed bool
}

// Close ends every watch and closes the connections. What is asked afterwards is refused.
func (c *Clusters) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, cluster := range c.all {
		cluster.close()
	}
}

func (c *Clusters) cluster(def entities.RuntimeDefinition) *cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := sourceOf(def)
	if known, ok := c.all[from]; ok {
		return known
	}
	ctx, stop := context.WithCancel(context.Background())
	made := &cluster{from: from, wrap: c.WrapTransport, ctx: ctx, stop: stop, views: &views{}}
	if c.closed {
		made.close()
	}
	if c.all == nil {
		c.all = map[source]*cluster{}
	}
	c.all[from] = made
	return made
}

// cluster is one API server. It connects when first used; an error of connecting is met again, and
// mended without a restart, at the next use.
type cluster struct {
	from source
	wrap func(http.RoundTripper) http.RoundTripper
	// ctx ends when the cluster is closed: what goes on in the background goes on under it.
	ctx  context.Context
	stop context.CancelFunc

	mu        sync.Mutex
	connected *clients // nil until the connection was found
	kinds     kinds
	views     *views
}

// clients are what a connected cluster is spoken to with. They outlive a change of credentials.
type clients struct {
	config  *rest.Config
	dynamic dynamic.Interface
	typed   clientset.Interface
	wire    *wire
}

var errClosed = errors.New("the connection to the cluster is closed: this worker stops")

// connect finds out where the cluster is and with which credentials; it sends nothing.
func (c *cluster) connect(ctx context.Context) (*clients, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return nil, errClosed
	}
	if c.connected != nil {
		return c.connected, nil
	}
	wire, err := newWire(c.from, c.wrap)
	if err != nil {
		return nil, err
	}
	made, err := newClients(wire)
	if err != nil {
		return nil, err
	}
	c.connected = made
	return made, nil
}

func (c *cluster) close() {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connected != nil {
		c.connected.wire.close()
	}
}

// newClients makes clients that set no pace of their own: the server's priority and fairness does,
// and answers 429 with the time to wait, which they keep to.
func newClients(wire *wire) (*clients, error) {
	config := &rest.Config{
		Host: wire.first.String(), Transport: wire, UserAgent: userAgent(), QPS: -1,
		WarningHandlerWithContext: warningsToCaller{},
	}
	spoken := &http.Client{Transport: wire}
	dyn, err := dynamic.NewForConfigAndClient(config, spoken)
	if err != nil {
		return nil, err
	}
	typed, err := clientset.NewForConfigAndClient(config, spoken)
	if err != nil {
		return nil, err
	}
	return &clients{config: config, dynamic: dyn, typed: typed, wire: wire}, nil
}

// resource is a kind as the API server serves it.
type resource struct {
	schema.GroupVersionResource
	kind       schema.GroupVersionKind
	namespaced bool
}

// at is the client of a resource in a namespace ("" for cluster-scoped ones).
func (c *clients) at(r resource, namespace string) dynamic.ResourceInterface {
	if !r.namespaced {
		return c.dynamic.Resource(r.GroupVersionResource)
	}
	return c.dynamic.Resource(r.GroupVersionResource).Namespace(namespace)
}
