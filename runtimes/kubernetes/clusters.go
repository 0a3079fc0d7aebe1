package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// Clusters are the connections of one worker. All runtimes that name the same cluster in the same way share one. The zero value is
// ready. Safe for concurrent use.
type Clusters struct {
	// WrapTransport, if set before the first use, wraps the transport of every cluster: it can count, delay or fail requests. They
	// have no credentials at this point.
	WrapTransport func(http.RoundTripper) http.RoundTripper

	mu     sync.Mutex
	all    map[source]*cluster
	closed bool
}

// Close ends every watch and closes the connections. Later requests are refused.
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
	key := sourceOf(def)
	if known, ok := c.all[key]; ok {
		return known
	}
	ctx, stop := context.WithCancel(context.Background())
	made := &cluster{source: key, wrap: c.WrapTransport, ctx: ctx, stop: stop, views: &views{}, startSlots: make(chan struct{}, maxConcurrentStarts)}
	if c.closed {
		made.close()
	}
	if c.all == nil {
		c.all = map[source]*cluster{}
	}
	c.all[key] = made
	return made
}

// cluster is one API server. It connects at the first use. After a connection error each use tries again, so a corrected
// configuration needs no restart.
type cluster struct {
	source source
	wrap   func(http.RoundTripper) http.RoundTripper
	// ctx ends when the cluster is closed: it is the context of all background work.
	ctx  context.Context
	stop context.CancelFunc

	mu           sync.Mutex
	connected    *clients            // nil before the first connection
	impersonated map[string]*clients // by impersonated user
	kinds        kinds
	views        *views
	startSlots   chan struct{} // a slot for each list or watch that starts
}

// clients are the clients of a connected cluster. They remain valid when credentials change.
type clients struct {
	config    *rest.Config
	dynamic   dynamic.Interface
	typed     *api.Client // for the kinds that Converge names itself
	transport *clusterTransport
}

var errClosed = errors.New("the connection to the cluster is closed: this worker stops")

// connect finds the address of the cluster and the credentials; it sends nothing.
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
	origin, err := newClusterTransport(c.ctx, c.source, c.wrap, c.views.hintEverything)
	if err != nil {
		return nil, err
	}
	c.connected, err = newClients(origin, origin)
	return c.connected, err
}

func (c *cluster) close() {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connected != nil {
		c.connected.transport.close()
	}
}

// newClients makes clients without a rate limit of their own. The server's priority and fairness limits them: it answers 429 with
// the time to wait, and they wait that long.
func newClients(origin *clusterTransport, transport http.RoundTripper) (*clients, error) {
	config := &rest.Config{
		Host: origin.originalURL.String(), Transport: transport, UserAgent: userAgent(), QPS: -1,
		WarningHandlerWithContext: warningsToCaller{},
	}
	httpClient := &http.Client{Transport: transport}
	dyn, err := newDynamic(config, httpClient)
	if err != nil {
		return nil, err
	}
	typed, err := api.New(config, httpClient)
	if err != nil {
		return nil, err
	}
	return &clients{config: config, dynamic: dyn, typed: typed, transport: origin}, nil
}

// resource is a kind as the API server serves it.
type resource struct {
	schema.GroupVersionResource
	kind       schema.GroupVersionKind
	namespaced bool
}

// resourceClient is the client of a resource in a namespace ("" for cluster-scoped ones).
func (c *clients) resourceClient(r resource, namespace string) dynamic.ResourceInterface {
	if !r.namespaced {
		return c.dynamic.Resource(r.GroupVersionResource)
	}
	return c.dynamic.Resource(r.GroupVersionResource).Namespace(namespace)
}

// Client is the shared connection to the cluster that def.Kubernetes names, relative to def.Dir. It is for other objects than those
// of instances: commands that run as Jobs. It sends nothing. An error, such as a missing kubeconfig, may be gone at the next call.
func (c *Clusters) Client(ctx context.Context, def entities.RuntimeDefinition) (*api.Client, error) {
	connected, err := c.cluster(def).connect(ctx)
	if err != nil {
		return nil, err
	}
	return connected.typed, nil
}

// source is where the description of a connection is. Clusters are shared by source.
type source struct {
	kubeconfig string // absolute; empty: the default of client-go
	context    string // empty: the current context
	readOnly   bool   // only requests that read are sent
}

func sourceOf(def entities.RuntimeDefinition) source {
	src := source{}
	if def.Kubernetes == nil {
		return src
	}
	src.context, src.readOnly = def.Kubernetes.Context, def.ReadOnly
	if path := def.Kubernetes.Kubeconfig; path != "" {
		if home, err := os.UserHomeDir(); err == nil && strings.HasPrefix(path, "~/") {
			path = filepath.Join(home, path[2:])
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(def.Dir, path)
		}
		src.kubeconfig = filepath.Clean(path)
	}
	return src
}

// connection is the configuration to reach a cluster, with a fingerprint of it.
type connection struct {
	config      *rest.Config
	fingerprint string // equal for equal connections
}

// load reads the kubeconfig. If no file is named and none is found, it uses the service account of the pod.
func (s source) load() (connection, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	rules.WarnIfAllMissing = false
	file, err := rules.Load()
	if of := new(fs.PathError); errors.As(err, &of) {
		err = of.Err // the text names the file already
	}
	if err != nil {
		return connection{}, fmt.Errorf("kubeconfig %s: %w", s.location(rules), err)
	}
	if s.kubeconfig == "" && clientcmdapi.IsConfigEmpty(file) {
		return s.inCluster(rules)
	}
	if err := s.check(file, rules); err != nil {
		return connection{}, err
	}
	if !s.isWorkers() {
		if err := s.checkSelfContained(file); err != nil {
			return connection{}, err
		}
	}
	chosen := clientcmd.NewNonInteractiveClientConfig(*file, s.context, &clientcmd.ConfigOverrides{}, rules)
	config, err := chosen.ClientConfig()
	if err != nil {
		return connection{}, fmt.Errorf("kubeconfig %s: %s: %w", s.location(rules), s.contextName(file), err)
	}
	print, err := clientcmd.Write(*file)
	if err != nil {
		return connection{}, fmt.Errorf("kubeconfig %s: %w", s.location(rules), err)
	}
	signForEKS(config)
	return connection{config: config, fingerprint: string(print)}, nil
}

func (s source) inCluster(rules *clientcmd.ClientConfigLoadingRules) (connection, error) {
	if s.context != "" {
		return connection{}, fmt.Errorf("context %q: no kubeconfig was found at %s", s.context, s.location(rules))
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return connection{}, fmt.Errorf("no cluster is named: no kubeconfig was found at %s, and the worker runs in no pod of a cluster", s.location(rules))
	}
	if err != nil {
		return connection{}, fmt.Errorf("service account of the pod: %w", err)
	}
	return connection{config: config, fingerprint: config.Host}, nil // client-go reloads its token
}

// check lists the available contexts if the requested one is missing.
func (s source) check(file *clientcmdapi.Config, rules *clientcmd.ClientConfigLoadingRules) error {
	name := cmp.Or(s.context, file.CurrentContext)
	if _, ok := file.Contexts[name]; ok {
		return nil
	}
	expected := "it has none"
	if known := slices.Sorted(maps.Keys(file.Contexts)); len(known) > 0 {
		expected = "expected one of " + strings.Join(known, ", ")
	}
	if name == "" {
		return fmt.Errorf("kubeconfig %s: it has no current context, and the runtime names none; %s", s.location(rules), expected)
	}
	return fmt.Errorf("kubeconfig %s: no context %q; %s", s.location(rules), name, expected)
}

// isWorkers reports whether whoever runs the worker chose the kubeconfig: by KUBECONFIG, or as ~/.kube/config.
func (s source) isWorkers() bool {
	return s.kubeconfig == "" || slices.Contains(clientcmd.NewDefaultClientConfigLoadingRules().GetLoadingPrecedence(), s.kubeconfig)
}

// checkSelfContained refuses a kubeconfig that starts a program or reads another file. The configuration chose it, so its author would
// choose what runs with the environment of the worker, and which credentials of the worker are sent to which server (G4, G5).
func (s source) checkSelfContained(file *clientcmdapi.Config) error {
	context := file.Contexts[cmp.Or(s.context, file.CurrentContext)]
	user, cluster := cmp.Or(file.AuthInfos[context.AuthInfo], &clientcmdapi.AuthInfo{}), cmp.Or(file.Clusters[context.Cluster], &clientcmdapi.Cluster{})
	what := ""
	switch read := cmp.Or(user.TokenFile, user.ClientCertificate, user.ClientKey, cluster.CertificateAuthority); {
	case user.Exec != nil:
		what = "starts the program " + entities.Visible(user.Exec.Command)
	case user.AuthProvider != nil:
		what = "uses the credential provider " + entities.Visible(user.AuthProvider.Name)
	case read != "":
		what = "reads the file " + entities.Visible(read)
	default:
		return nil
	}
	return fmt.Errorf("kubeconfig %s: %s %s; expected data alone in a file that a configuration names (kubectl config view --flatten --raw), or a context of the worker's own: $KUBECONFIG, else ~/.kube/config",
		s.kubeconfig, s.contextName(file), what)
}

func (s source) contextName(file *clientcmdapi.Config) string {
	if s.context != "" {
		return fmt.Sprintf("context %q", s.context)
	}
	return fmt.Sprintf("current context %q", file.CurrentContext)
}

func (s source) location(rules *clientcmd.ClientConfigLoadingRules) string {
	if s.kubeconfig != "" {
		return s.kubeconfig
	}
	return strings.Join(rules.GetLoadingPrecedence(), string(filepath.ListSeparator))
}

// userAgent identifies requests in the server's audit log.
func userAgent() string {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = strings.Trim(info.Main.Version, "()")
	}
	return "converge/" + version
}
