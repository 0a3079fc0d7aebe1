package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/kubernetes"
	"github.com/converge-engine/converge/tests/bench/report"
)

const (
	outageNamespaces = 500
	outageLasts      = 15 * time.Second
	// goalAttempts is how often the address of a server that is away may be tried, in a second.
	goalAttempts = 1.0
	outageUser   = "bench-outage"
)

// measureOutage takes an API server away from a runtime that watches two kinds in each of many namespaces, since it has no
// rights outside of them, and gives it back. Temporal has no part in that, and none runs.
func measureOutage(ctx context.Context, b *bench) (err error) {
	program, err := labProgram(ctx, b.kubelab)
	if err != nil {
		return err
	}
	kube, err := startLab(ctx, program, filepath.Join(b.dir, "kube"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kube.stop()) }()
	o := &outage{namespaces: outageNamespaces}
	if err := o.prepare(ctx, kube.kubeconfig, b.dir); err != nil {
		return err
	}
	defer o.clusters.Close()
	defer o.way.close()
	began := time.Now()
	if err := o.allRead(ctx, nil); err != nil {
		return err
	}
	first, listed := time.Since(began), o.listed.Load()

	o.way.hangUp(true)
	if err := o.allRead(ctx, func(err error) bool { return err != nil }); err != nil {
		return err
	}
	attempts, before := o.way.attempts.Load(), used()
	if err := pause(ctx, outageLasts); err != nil {
		return err
	}
	tried, cpu := float64(o.way.attempts.Load()-attempts)/outageLasts.Seconds(), used().CPU-before.CPU
	attempts, relisted := o.way.attempts.Load(), o.listed.Load()
	o.most.Store(0)
	o.way.hangUp(false)
	began = time.Now()
	if err := o.allRead(ctx, nil); err != nil {
		return err
	}
	back := time.Since(began)
	of := fmt.Sprintf("%d namespaces", o.namespaces)
	b.Add(report.Line{
		Row: b.row, What: of + ": connections tried in a second while the API server is away", Measured: report.Of(tried, "attempts"),
		Spread: fmt.Sprintf("in %v, %d watches", outageLasts, listed), Goal: report.Ref(report.Of(goalAttempts, "attempts")),
	})
	b.Add(report.Line{Row: b.row, What: of + ": CPU meanwhile", Measured: report.Of(cpu.Seconds()/outageLasts.Seconds(), report.Cores)})
	b.Add(report.Line{
		Row: b.row, What: of + ": from when it is back until all are read", Measured: report.Of(back.Seconds(), report.Seconds),
		Reference: report.Ref(report.Of(first.Seconds(), report.Seconds)), Against: "all read for the first time",
		Spread: fmt.Sprintf("%d connections, %d requests at a time at most", o.way.attempts.Load()-attempts, o.most.Load()),
	})
	b.Add(report.Line{
		Row: b.row, What: of + ": lists after it", Measured: report.Of(float64(o.listed.Load()-relisted), "lists"),
		Reference: report.Ref(report.Of(float64(listed), "lists")), Against: "at first", Goal: report.Ref(report.Of(0, "lists")),
	})
	return nil
}

// outage is a runtime, what it observes, and the way to its API server.
type outage struct {
	namespaces int
	clusters   *kubernetes.Clusters
	runtime    *kubernetes.Runtime
	way        *passage
	all        []runtimes.Request

	listed, now, most atomic.Int64
}

func (o *outage) prepare(ctx context.Context, kubeconfig, dir string) error {
	file, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return err
	}
	direct, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if err != nil {
		return err
	}
	direct.QPS = -1
	admin, err := clientset.NewForConfig(direct)
	if err != nil {
		return err
	}
	at, err := url.Parse(direct.Host)
	if err != nil {
		return err
	}
	if o.way, err = newPassage(at.Host); err != nil {
		return err
	}
	for _, c := range file.Clusters {
		c.Server = "https://" + o.way.address
	}
	for _, user := range file.AuthInfos {
		user.Impersonate = outageUser
	}
	through := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*file, through); err != nil {
		return err
	}
	o.clusters = &kubernetes.Clusters{WrapTransport: o.wrap}
	o.runtime, err = kubernetes.New(entities.RuntimeDefinition{
		Name: "outage", Kind: entities.RuntimeKubernetes, Kubernetes: &entities.KubernetesRuntime{Kubeconfig: through, FailAfter: time.Minute},
	}, o.clusters)
	if err != nil {
		return err
	}
	return o.populate(ctx, admin)
}

// populate makes the namespaces, gives the rights in them, and applies a service to each.
func (o *outage) populate(ctx context.Context, admin clientset.Interface) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: outageUser}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}}
	if _, err := admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: outageUser}, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: outageUser}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: outageUser},
	}
	o.all = make([]runtimes.Request, o.namespaces)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(actors)
	for n := range o.all {
		namespace := fmt.Sprintf("outage-%d", n)
		o.all[n] = outageInstance(namespace)
		g.Go(func() error {
			made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
			if _, err := admin.CoreV1().Namespaces().Create(ctx, made, metav1.CreateOptions{}); err != nil {
				return err
			}
			if _, err := admin.RbacV1().RoleBindings(namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
				return err
			}
			return until(ctx, time.Second/10, func() (bool, error) { // the rights count a moment later, and the server may be busy
				_, err := o.runtime.Apply(ctx, o.all[n])
				return err == nil, nil
			})
		})
	}
	return g.Wait()
}

func outageInstance(namespace string) runtimes.Request {
	object := func(text string) json.RawMessage { return json.RawMessage(text) }
	return runtimes.Request{
		Owner: runtimes.Owner{Application: "outage", Service: namespace, ID: entities.Only("prod")}, FullVersion: "v1",
		Payload: &entities.Payload{
			Application: "outage", Service: namespace, Channel: "prod", Address: map[string]string{"namespace": namespace},
			Kubernetes: &entities.KubernetesPayload{Bundled: entities.Bundled{Objects: []json.RawMessage{
				object(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"},"data":{"a":"b"}}`),
				object(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"ports":[{"port":80}]}}`),
			}}},
		},
	}
}

// allRead observes all until each is as wanted; nil: read.
func (o *outage) allRead(ctx context.Context, wanted func(error) bool) error {
	if wanted == nil {
		wanted = func(err error) bool { return err == nil }
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, in := range o.all {
		g.Go(func() error {
			return until(ctx, time.Second/10, func() (bool, error) {
				_, err := o.runtime.Observe(ctx, in)
				return wanted(err), nil
			})
		})
	}
	return g.Wait()
}

// wrap counts lists, and what is asked at a time.
func (o *outage) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		for n, m := o.now.Add(1), o.most.Load(); n > m && !o.most.CompareAndSwap(m, n); m = o.most.Load() {
		}
		defer o.now.Add(-1)
		resp, err := next.RoundTrip(req)
		q := req.URL.Query()
		if err == nil && resp.StatusCode == http.StatusOK && q.Get("labelSelector") != "" && q.Get("watch") == "" {
			o.listed.Add(1)
		}
		return resp, err
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// passage carries connections to an address, and counts them. One that hangs up ends them all, and each that is made.
type passage struct {
	address, target string
	listener        net.Listener
	attempts        atomic.Int64

	mu    sync.Mutex
	hangs bool
	open  map[net.Conn]bool
}

func newPassage(target string) (*passage, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &passage{address: l.Addr().String(), target: target, listener: l, open: map[net.Conn]bool{}}
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			w.attempts.Add(1)
			go w.carry(from)
		}
	}()
	return w, nil
}

func (w *passage) carry(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", w.target)
	if err != nil || !w.opened(from, to) {
		return
	}
	defer to.Close()
	go func() { _, _ = io.Copy(to, from); to.Close() }()
	_, _ = io.Copy(from, to)
}

// opened notes a connection, unless it is to end at once.
func (w *passage) opened(ends ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range ends {
		if w.hangs {
			c.Close()
		} else {
			w.open[c] = true
		}
	}
	return !w.hangs
}

func (w *passage) hangUp(hangs bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hangs = hangs
	for c := range w.open {
		c.Close()
	}
	clear(w.open)
}

func (w *passage) close() {
	w.listener.Close()
	w.hangUp(true)
}
