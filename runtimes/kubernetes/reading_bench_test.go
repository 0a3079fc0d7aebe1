package kubernetes

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/kubetest"
)

// testCluster is a namespace of a real control plane, and a runtime that reaches it through a proxy.
type testCluster struct {
	testing.TB
	*Runtime
	clusters   *Clusters
	admin      admin // without the proxy, with all rights
	proxy      *proxy
	namespace  string
	requests   atomic.Int64
	requestLog sync.Map                      // the requests, by number
	hold       atomic.Pointer[chan struct{}] // when set, requests wait for it
	intercept  atomic.Pointer[func(*http.Request, http.RoundTripper) (*http.Response, error)]
}

// admin is a connection with all rights, and with every kind that there is.
type admin struct {
	*clients
	typed clientset.Interface
}

func newAdmin(t testing.TB, c *clients) admin {
	t.Helper()
	typed, err := clientset.NewForConfig(c.config)
	require.NoError(t, err)
	return admin{c, typed}
}

// newTestCluster makes a testCluster. change changes the runtime's kubeconfig: other credentials.
func newTestCluster(t *testing.T, change ...func(user *clientcmdapi.AuthInfo)) *testCluster {
	t.Helper()
	t.Parallel()
	return newExclusiveTestCluster(t, change...)
}

// newExclusiveTestCluster is newTestCluster for tests that must not run in parallel with others.
func newExclusiveTestCluster(t testing.TB, change ...func(user *clientcmdapi.AuthInfo)) *testCluster {
	t.Helper()
	direct := kubetest.Start(t).Kubeconfig
	b := &testCluster{TB: t, namespace: "read-" + strings.ToLower(rand.Text()[:8])}

	others := &Clusters{}
	t.Cleanup(others.Close)
	connected, err := others.cluster(definition(direct)).connect(t.Context())
	require.NoError(t, err)
	admin := newAdmin(t, connected)
	b.admin = admin
	_, err = admin.typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = admin.typed.CoreV1().Namespaces().Delete(context.Background(), b.namespace, metav1.DeleteOptions{})
	})

	file, err := clientcmd.LoadFromFile(direct)
	require.NoError(t, err)
	for _, c := range file.Clusters {
		b.proxy = newProxy(t, c.Server)
		c.Server = "https://" + b.proxy.address
	}
	for _, user := range file.AuthInfos {
		for _, each := range change {
			each(user)
		}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*file, path))
	b.clusters = &Clusters{WrapTransport: b.count}
	t.Cleanup(b.clusters.Close)
	b.Runtime, err = New(definition(path), b.clusters)
	require.NoError(t, err)
	return b
}

func definition(path string) entities.RuntimeDefinition {
	return entities.RuntimeDefinition{
		Name: "bench", Kind: entities.RuntimeKubernetes,
		Kubernetes: &entities.KubernetesRuntime{Kubeconfig: path, FailAfter: time.Minute},
	}
}

func (b *testCluster) count(next http.RoundTripper) http.RoundTripper {
	return counted{wrapped{next, b}, func(req *http.Request) {
		b.requestLog.Store(b.requests.Add(1), req.Method+" "+req.URL.RequestURI())
		if hold := b.hold.Load(); hold != nil {
			select {
			case <-*hold:
			case <-req.Context().Done():
			}
		}
	}}
}

// WrappedRoundTripper lets client-go find the connection underneath.
func (f counted) WrappedRoundTripper() http.RoundTripper { return f.RoundTripper }

// wrapped passes requests to the intercept function of the testCluster, if it is set.
type wrapped struct {
	http.RoundTripper
	b *testCluster
}

func (w wrapped) WrappedRoundTripper() http.RoundTripper { return w.RoundTripper }

func (w wrapped) RoundTrip(req *http.Request) (*http.Response, error) {
	if around := w.b.intercept.Load(); around != nil {
		return (*around)(req, w.RoundTripper)
	}
	return w.RoundTripper.RoundTrip(req)
}

type counted struct {
	http.RoundTripper
	count func(*http.Request)
}

func (f counted) RoundTrip(req *http.Request) (*http.Response, error) {
	f.count(req)
	return f.RoundTripper.RoundTrip(req)
}

// instance is the test's service web in prod at a version, made of objects in YAML.
func (b *testCluster) instance(version string, objects ...string) runtimes.Request {
	payload := &entities.Payload{
		Application: b.namespace, Service: "web", Channel: "prod", Address: map[string]string{"namespace": b.namespace},
		Kubernetes: &entities.KubernetesPayload{},
	}
	for _, text := range objects {
		raw, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(b, err)
		payload.Kubernetes.Objects = append(payload.Kubernetes.Objects, json.RawMessage(raw))
	}
	return runtimes.Request{Owner: runtimes.Owner{Application: b.namespace, Service: "web", ID: entities.Only("prod")}, FullVersion: version, Payload: payload}
}

// put applies the objects of an instance, without waves and refusals.
func (b *testCluster) put(in runtimes.Request) {
	b.Helper()
	declared, err := b.declare(b.Context(), in)
	require.NoError(b, err)
	for _, d := range declared {
		r, err := b.cluster.resource(b.Context(), d.GroupVersionKind())
		require.NoError(b, err)
		at := b.admin.resourceClient(r, d.GetNamespace())
		live, err := at.Get(b.Context(), d.GetName(), metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			require.NoError(b, err)
			d, err = d.appliedOver(live)
			require.NoError(b, err)
		}
		_, err = at.Apply(b.Context(), d.GetName(), d.Unstructured, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
		require.NoError(b, err)
	}
}

func (b *testCluster) observe(in runtimes.Request) []entities.Object {
	b.Helper()
	objects, err := b.Observe(b.Context(), in)
	require.NoError(b, err)
	return objects
}

// requireFewRequests requires that nothing more than so many requests were made since.
func (b *testCluster) requireFewRequests(since, more int64, what string) {
	b.Helper()
	var asked []any
	for i := since + 1; i <= b.requests.Load(); i++ {
		request, _ := b.requestLog.Load(i)
		asked = append(asked, request)
	}
	require.Len(b, asked, int(more), what)
}

// until observes until the objects are as wanted.
func (b *testCluster) until(in runtimes.Request, what string, is func([]entities.Object) bool) []entities.Object {
	b.Helper()
	var seen []entities.Object
	b.wait(what, func() bool {
		objects, err := b.Observe(b.Context(), in)
		if err == nil {
			seen = objects
		}
		return err == nil && is(objects)
	}, func() any { return seen })
	return seen
}

// wait checks a condition every few milliseconds, for 2 min: a machine may be busy.
func (b *testCluster) wait(what string, is func() bool, seen func() any) {
	b.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			require.FailNow(b, "never seen: "+what, "%+v", seen())
		}
	}
}

// untilError observes until it fails with a code.
func (b *testCluster) untilError(in runtimes.Request, code string) error {
	b.Helper()
	var last error
	b.wait("error of code "+code, func() bool {
		_, last = b.Observe(b.Context(), in)
		return hasCode(last, code)
	}, func() any { return last })
	return last
}

func settled(version string) func([]entities.Object) bool {
	return func(objects []entities.Object) bool {
		for _, o := range objects {
			if o.Status != entities.ObjectSucceeded || len(o.Versions) != 1 || !o.Versions[0].Active || o.Versions[0].Version != version {
				return false
			}
		}
		return len(objects) > 0
	}
}

// hintsOf collects the hints of the test's instances; other tests use the same cluster.
func (b *testCluster) hintsOf() <-chan runtimes.Owner {
	hints := make(chan runtimes.Owner, 10_000)
	b.Cleanup(b.Watch(func(owner runtimes.Owner) {
		if owner.Application == b.namespace {
			hints <- owner
		}
	}))
	return hints
}

func (b *testCluster) waitHint(hints <-chan runtimes.Owner) {
	b.Helper()
	select {
	case owner := <-hints:
		require.Equal(b, runtimes.Owner{Application: b.namespace, Service: "web", ID: entities.Only("prod")}, owner)
	case <-time.After(hintPatience):
		require.FailNow(b, "no hint")
	}
}

func drain(hints <-chan runtimes.Owner) {
	for {
		select {
		case <-hints:
		default:
			return
		}
	}
}

// waitQuiet waits until there were no hints and no requests for a while: controllers have settled.
func (b *testCluster) waitQuiet(in runtimes.Request, hints <-chan runtimes.Owner) {
	b.Helper()
	deadline := time.After(time.Minute)
	for {
		b.observe(in)
		select {
		case <-hints:
		case <-time.After(500 * time.Millisecond):
			return
		case <-deadline:
			require.FailNow(b, "it never settled")
		}
	}
}

// proxy stands between a client and the server, and can be shut: the server is unavailable.
type proxy struct {
	t       testing.TB
	address string
	target  string
	mu      sync.Mutex
	open    map[net.Conn]bool
	closer  io.Closer
	// attempts counts connections.
	attempts atomic.Int64
	hangs    atomic.Bool
	frozen   sync.RWMutex // locked while it is frozen
}

// hangUp ends all connections, and each that is made from now on.
func (g *proxy) hangUp() {
	g.hangs.Store(true)
	g.end()
}

func newProxy(t testing.TB, server string) *proxy {
	t.Helper()
	at, err := url.Parse(server)
	require.NoError(t, err)
	g := &proxy{t: t, target: at.Host, address: "127.0.0.1:0", open: map[net.Conn]bool{}}
	g.unlock()
	t.Cleanup(g.shut)
	return g
}

func (g *proxy) unlock() {
	g.t.Helper()
	g.hangs.Store(false)
	l, err := net.Listen("tcp", g.address)
	require.NoError(g.t, err)
	g.address, g.closer = l.Addr().String(), l
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			g.attempts.Add(1)
			if g.hangs.Load() {
				from.Close()
				continue
			}
			to, err := net.Dial("tcp", g.target)
			if err != nil {
				from.Close()
				continue
			}
			g.mu.Lock()
			g.open[from], g.open[to] = true, true
			g.mu.Unlock()
			go g.carry(from, to)
			go g.carry(to, from)
		}
	}()
}

func (g *proxy) carry(from, to net.Conn) {
	_, _ = io.Copy(thawedWriter{to, g}, from)
	from.Close()
	to.Close()
}

func (g *proxy) shut() {
	g.closer.Close()
	g.end()
}

func (g *proxy) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.open {
		c.Close()
	}
	clear(g.open)
}

func deploymentOf(image string, replicas int, podAnnotations string) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {%s}}
    spec: {containers: [{name: web, image: "%s"}]}
`, replicas, podAnnotations, image)
}
