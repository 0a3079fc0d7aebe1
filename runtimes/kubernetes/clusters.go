package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes/kubernetes/api"
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
	made := &cluster{from: from, wrap: c.WrapTransport, ctx: ctx, stop: stop, views: &views{}, starts: make(chan struct{}, startsAtOnce)}
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
	connected *clients            // nil until the connection was found
	acting    map[string]*clients // by the user as which they act
	kinds     kinds
	views     *views
	starts    chan struct{} // a place for each list or watch that begins
}

// clients are what a connected cluster is spoken to with. They outlive a change of credentials.
type clients struct {
	config  *rest.Config
	dynamic dynamic.Interface
	named   *api.Client // of the kinds that are named here, whatever an instance is made of
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
	wire, err := newWire(c.ctx, c.from, c.wrap)
	if err != nil {
		return nil, err
	}
	c.connected, err = newClients(wire, wire)
	return c.connected, err
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
func newClients(wire *wire, through http.RoundTripper) (*clients, error) {
	config := &rest.Config{
		Host: wire.first.String(), Transport: through, UserAgent: userAgent(), QPS: -1,
		WarningHandlerWithContext: warningsToCaller{},
	}
	spoken := &http.Client{Transport: through}
	dyn, err := newDynamic(config, spoken)
	if err != nil {
		return nil, err
	}
	named, err := api.New(config, spoken)
	if err != nil {
		return nil, err
	}
	return &clients{config: config, dynamic: dyn, named: named, wire: wire}, nil
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

// Client is the shared connection to the cluster that def.Kubernetes names, relative to def.Dir, for
// those who need another kind of object than an instance's: commands that run as Jobs. It sends
// nothing. An error, of a kubeconfig that is not there for one, may be gone at the next call.
func (c *Clusters) Client(ctx context.Context, def entities.RuntimeDefinition) (*api.Client, error) {
	connected, err := c.cluster(def).connect(ctx)
	if err != nil {
		return nil, err
	}
	return connected.named, nil
}

// source says where a connection is described. Clusters are shared by it.
type source struct {
	kubeconfig string // absolute; empty: what client-go finds by itself
	context    string // empty: the current one
}

func sourceOf(def entities.RuntimeDefinition) source {
	from := source{}
	if def.Kubernetes == nil {
		return from
	}
	from.context = def.Kubernetes.Context
	if path := def.Kubernetes.Kubeconfig; path != "" {
		if home, err := os.UserHomeDir(); err == nil && strings.HasPrefix(path, "~/") {
			path = filepath.Join(home, path[2:])
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(def.Dir, path)
		}
		from.kubeconfig = filepath.Clean(path)
	}
	return from
}

// connection is how a cluster is reached, and what shows whether that changed.
type connection struct {
	config *rest.Config
	print  string // equal for equal connections
}

// load reads the kubeconfig. Where no file was named and none is found, the service account of the
// pod is used.
func (s source) load() (connection, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	rules.WarnIfAllMissing = false
	file, err := rules.Load()
	if err != nil {
		return connection{}, fmt.Errorf("kubeconfig %s: %w", s.where(rules), err)
	}
	if s.kubeconfig == "" && clientcmdapi.IsConfigEmpty(file) {
		return s.inCluster(rules)
	}
	if err := s.check(file, rules); err != nil {
		return connection{}, err
	}
	chosen := clientcmd.NewNonInteractiveClientConfig(*file, s.context, &clientcmd.ConfigOverrides{}, rules)
	config, err := chosen.ClientConfig()
	if err != nil {
		return connection{}, fmt.Errorf("kubeconfig %s: %s: %w", s.where(rules), s.named(file), err)
	}
	print, err := clientcmd.Write(*file)
	if err != nil {
		return connection{}, fmt.Errorf("kubeconfig %s: %w", s.where(rules), err)
	}
	signsForEKS(config)
	return connection{config: config, print: string(print)}, nil
}

func (s source) inCluster(rules *clientcmd.ClientConfigLoadingRules) (connection, error) {
	if s.context != "" {
		return connection{}, fmt.Errorf("context %q: no kubeconfig was found at %s", s.context, s.where(rules))
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return connection{}, fmt.Errorf("no cluster is named: no kubeconfig was found at %s, and the worker runs in no pod of a cluster", s.where(rules))
	}
	if err != nil {
		return connection{}, fmt.Errorf("service account of the pod: %w", err)
	}
	return connection{config: config, print: config.Host}, nil // its token is read again by itself
}

// check names the contexts there are when the one asked for is not among them.
func (s source) check(file *clientcmdapi.Config, rules *clientcmd.ClientConfigLoadingRules) error {
	name := cmp.Or(s.context, file.CurrentContext)
	if _, ok := file.Contexts[name]; ok {
		return nil
	}
	there := "it has none"
	if known := slices.Sorted(maps.Keys(file.Contexts)); len(known) > 0 {
		there = "expected one of " + strings.Join(known, ", ")
	}
	if name == "" {
		return fmt.Errorf("kubeconfig %s: it has no current context, and the runtime names none; %s", s.where(rules), there)
	}
	return fmt.Errorf("kubeconfig %s: no context %q; %s", s.where(rules), name, there)
}

func (s source) named(file *clientcmdapi.Config) string {
	if s.context != "" {
		return fmt.Sprintf("context %q", s.context)
	}
	return fmt.Sprintf("current context %q", file.CurrentContext)
}

func (s source) where(rules *clientcmd.ClientConfigLoadingRules) string {
	if s.kubeconfig != "" {
		return s.kubeconfig
	}
	return strings.Join(rules.GetLoadingPrecedence(), string(filepath.ListSeparator))
}

// userAgent is how requests name themselves in the server's audit log.
func userAgent() string {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = strings.Trim(info.Main.Version, "()")
	}
	return "converge/" + version
}
