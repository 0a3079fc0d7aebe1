package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

const outageNamespaces = 20

// namespacedInstances returns instances in separate namespaces, and a worker with no rights outside of them: each is watched
// separately.
func namespacedInstances(t *testing.T) (*testCluster, []runtimes.Request) {
	b := newTestCluster(t, func(info *clientcmdapi.AuthInfo) { info.Impersonate = "outage" })
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"", "apps"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "patch"}}}
	var all []runtimes.Request
	for n := range outageNamespaces {
		in := b.instance("v1", config, "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}")
		namespace := fmt.Sprintf("%s-%d", b.namespace, n)
		_, err := b.admin.typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = b.admin.typed.CoreV1().Namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{})
		})
		b.grant("outage", namespace, rules...)
		in.Service, in.Payload.Service = fmt.Sprintf("web-%d", n), fmt.Sprintf("web-%d", n)
		in.Payload.Address = map[string]string{"namespace": namespace}
		all = append(all, in)
		b.put(in)
		b.until(in, "v1 in "+namespace, settled("v1"))
	}
	for n := range all { // client-go lists again after a watch that ended at once without an event
		all[n].FullVersion = "v2"
		b.put(all[n])
		b.until(all[n], "v2", settled("v2"))
	}
	return b, all
}

// listsSince are the lists among the requests after one.
func (b *testCluster) listsSince(since int64) (lists []string) {
	for i := since + 1; i <= b.requests.Load(); i++ {
		request, _ := b.requestLog.Load(i)
		if text, _ := request.(string); isList(text) {
			lists = append(lists, text)
		}
	}
	return lists
}

func isList(request string) bool {
	return strings.HasPrefix(request, "GET ") && strings.Contains(request, "labelSelector=") && !strings.Contains(request, "watch=true")
}

// waitReadings observes all until each is as it should be.
func (b *testCluster) waitReadings(all []runtimes.Request, what string, is func(error) bool) {
	b.Helper()
	for _, in := range all {
		var last error
		b.wait(what, func() bool {
			_, last = b.Observe(b.Context(), in)
			return is(last)
		}, func() any { return last })
	}
}

func unreachable(err error) bool { return hasCode(err, runtimes.CodeUnreachable) }
func noError(err error) bool     { return err == nil }

// While a server is unavailable, one request at a time probes it, independent of the number of watches and readings; when it is
// available again, the watches continue at their position, and nothing is listed again.
func TestAnOutageCausesFewRequests_H9(t *testing.T) {
	b, all := namespacedInstances(t)
	hints := b.hintsOf()
	drain(hints)
	b.proxy.hangUp()
	b.waitReadings(all, "unreachable", unreachable)

	since, before := time.Now(), b.proxy.attempts.Load()
	b.wait("some attempts", func() bool {
		for _, in := range all {
			_, err := b.Observe(t.Context(), in)
			require.True(t, unreachable(err), err)
		}
		return b.proxy.attempts.Load() >= before+4
	}, func() any { return b.proxy.attempts.Load() })
	took := time.Since(since)
	require.LessOrEqual(t, b.proxy.attempts.Load()-before, int64(took/firstRetry)+2, "attempts in %s, of one backoff for the cluster", took)

	maps := b.admin.typed.CoreV1().ConfigMaps(all[0].Payload.Address["namespace"])
	require.NoError(t, maps.Delete(t.Context(), "settings", metav1.DeleteOptions{}))
	asked := b.requests.Load()
	b.proxy.shut()
	b.proxy.unlock()
	b.waitReadings(all, "an answer", noError)
	b.until(all[0], "changes during the outage", func(objects []entities.Object) bool { return objects[0].Message == "does not exist" })
	require.Empty(t, b.listsSince(asked), "lists after the outage")
	hinted := map[string]bool{}
	b.wait("a hint for each instance with a failed reading", func() bool {
		for {
			select {
			case owner := <-hints:
				hinted[owner.Service] = true
			default:
				return len(hinted) == outageNamespaces
			}
		}
	}, func() any { return hinted })
}

// A server that no longer has the missed events is asked for each list once, and for few at a time.
func TestListsAfterAnOutageAreFewAtATime_H9(t *testing.T) {
	b, all := namespacedInstances(t)
	views := len(b.cluster.views.all)
	require.Equal(t, 2*outageNamespaces, views)
	var forgot sync.Map // watches that were refused once
	var now, most, lists atomic.Int64
	b.intercept.Store(new(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		switch {
		case req.URL.Query().Get("watch") == "true":
			if _, again := forgot.LoadOrStore(req.URL.Path, true); !again {
				return newResponse(req, http.StatusGone, "Expired"), nil
			}
		case isList(req.Method + " " + req.URL.RequestURI()):
			n := now.Add(1)
			var once sync.Once
			leave := func() { once.Do(func() { now.Add(-1) }) }
			late := time.AfterFunc(startSlotTimeout-time.Second, leave) // a slower one no longer holds a slot
			defer func() { late.Stop(); leave() }()
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
		}
		resp, err := next.RoundTrip(req)
		if err == nil && isList(req.Method+" "+req.URL.RequestURI()) {
			lists.Add(1)
		}
		return resp, err
	}))
	b.proxy.hangUp()
	b.waitReadings(all, "unreachable", unreachable)
	b.proxy.shut()
	b.proxy.unlock()
	b.waitReadings(all, "an answer", noError)
	b.wait("all lists", func() bool { return lists.Load() >= int64(views) }, func() any { return lists.Load() })
	require.Equal(t, int64(views), lists.Load(), "each is listed once")
	require.LessOrEqual(t, most.Load(), int64(maxConcurrentStarts))
}

// newResponse is an answer of an API server.
func newResponse(req *http.Request, code int, reason string) *http.Response {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"the test says so"}`, code, reason)
	answer := w.Result()
	answer.Request = req
	return answer
}

// A watch that is ended, because it was not read for long or its scope changes, leaves no gap: all its instances get a hint, so that
// their callers read, which starts a new watch.
func TestTheEndOfAWatchHints_H9(t *testing.T) {
	b := newTestCluster(t)
	v1 := b.instance("v1", config)
	b.put(v1)
	b.until(v1, "v1", settled("v1"))
	hints := b.hintsOf()
	maps, err := b.cluster.resource(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	require.NoError(t, err)
	b.waitQuiet(v1, hints)
	b.cluster.views.stopKind(maps.GroupVersionResource)
	b.waitHint(hints)

	b.waitQuiet(v1, hints)
	v, err := b.cluster.view(t.Context(), maps, b.namespace)
	require.NoError(t, err)
	v.mu.Lock()
	v.lastRead = time.Now().Add(-unreadTimeout - time.Second)
	v.mu.Unlock()
	pods, err := b.cluster.resource(t.Context(), podKind())
	require.NoError(t, err)
	_, err = b.cluster.view(t.Context(), pods, b.namespace)
	require.NoError(t, err)
	b.waitHint(hints)
	b.observe(v1)
	require.NoError(t, b.admin.typed.CoreV1().ConfigMaps(b.namespace).Delete(t.Context(), "settings", metav1.DeleteOptions{}))
	b.waitHint(hints)
}

const hintPatience = time.Minute
