package kubernetes

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// desk is a bench on which is written, with every request that writes noted, and faults at will.
type desk struct {
	*bench
	mu     sync.Mutex
	writes []string // "PATCH /api/v1/namespaces/…", dry runs left out
	asked  int      // requests in all
	fault  func(req *http.Request, send func() (*http.Response, error)) (*http.Response, error)
}

func (b *bench) desk() *desk {
	b.Helper()
	d := &desk{bench: b}
	clusters := &Clusters{WrapTransport: func(next http.RoundTripper) http.RoundTripper { return noted{next, d} }}
	b.Cleanup(clusters.Close)
	rt, err := New(b.def, clusters)
	require.NoError(b, err)
	b.Runtime = rt
	return d
}

type noted struct {
	http.RoundTripper
	desk *desk
}

func (n noted) WrappedRoundTripper() http.RoundTripper { return n.RoundTripper }

func (n noted) RoundTrip(req *http.Request) (*http.Response, error) {
	n.desk.mu.Lock()
	n.desk.asked++
	if isWrite(req) {
		n.desk.writes = append(n.desk.writes, req.Method+" "+req.URL.Path)
	}
	fault := n.desk.fault
	n.desk.mu.Unlock()
	if fault == nil {
		return n.RoundTripper.RoundTrip(req)
	}
	return fault(req, func() (*http.Response, error) { return n.RoundTripper.RoundTrip(req) })
}

func isWrite(req *http.Request) bool {
	if req.Method == http.MethodDelete && req.GetBody != nil { // which says in its body that it is a dry run
		body, err := req.GetBody()
		if err == nil {
			said, _ := io.ReadAll(body)
			return !strings.Contains(string(said), `"dryRun":["All"]`)
		}
	}
	return req.Method != http.MethodGet && !strings.Contains(req.URL.RawQuery, "dryRun") && !strings.Contains(req.URL.Path, "authorization")
}

// wrote returns what was written since the last call, and how many requests there were in all.
func (d *desk) wrote() (writes []string, asked int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	writes, asked = d.writes, d.asked
	d.writes, d.asked = nil, 0
	return writes, asked
}

func (d *desk) failing(fault func(*http.Request, func() (*http.Response, error)) (*http.Response, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

// applied applies, and returns what it reports, line by line.
func (d *desk) applied(in runtimes.Instance) []string {
	d.Helper()
	out, err := d.Apply(d.Context(), in)
	require.NoError(d, err)
	require.Zero(d, out.ExitCode)
	return strings.Split(strings.TrimSpace(out.Stdout), "\n")
}

// refused applies, and returns the error, which has to be permanent or not.
func (d *desk) refused(in runtimes.Instance, permanent bool) string {
	d.Helper()
	out, err := d.Apply(d.Context(), in)
	require.Error(d, err)
	require.Equal(d, permanent, runtimes.IsPermanent(err), err)
	require.Equal(d, 1, out.ExitCode)
	return err.Error()
}

func (d *desk) of(kind string) resource {
	d.Helper()
	gvk := schema.FromAPIVersionAndKind("v1", kind)
	switch kind {
	case "Deployment":
		gvk = schema.FromAPIVersionAndKind("apps/v1", kind)
	case "Job":
		gvk = schema.FromAPIVersionAndKind("batch/v1", kind)
	case kindAutoscaler.Kind:
		gvk = kindAutoscaler
	}
	r, err := d.cluster.resource(d.Context(), gvk)
	require.NoError(d, err)
	return r
}

// there is an object as the server has it; nil when it has none.
func (d *desk) there(kind, name string) *unstructured.Unstructured {
	d.Helper()
	o, err := d.admin.at(d.of(kind), d.namespace).Get(d.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(d, err)
	return o
}

// declares writes as another tool does, by apply.
func (d *desk) declares(tool, kind, name, patch string) {
	d.Helper()
	yes := true
	_, err := d.admin.at(d.of(kind), d.namespace).Patch(d.Context(), name, types.ApplyPatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: tool, Force: &yes})
	require.NoError(d, err)
}

// edits writes as a person does, by a patch, or through a subresource.
func (d *desk) edits(tool, kind, name, patch string, subresource ...string) {
	d.Helper()
	_, err := d.admin.at(d.of(kind), d.namespace).Patch(d.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: tool}, subresource...)
	require.NoError(d, err)
}

// other is an instance in another channel.
func other(in runtimes.Instance, channel string) runtimes.Instance {
	payload := *in.Payload
	payload.Channel, in.ID, in.Payload = channel, entities.Only(channel), &payload
	return in
}

// named is another instance of the same channel.
func named(in runtimes.Instance, name string) runtimes.Instance {
	in.ID.Name = name
	return in
}

func adopting(in runtimes.Instance) runtimes.Instance {
	payload, objects := *in.Payload, *in.Payload.Kubernetes
	objects.Adopt = true
	payload.Kubernetes, in.Payload = &objects, &payload
	return in
}

func pruning(in runtimes.Instance) runtimes.Instance {
	payload, objects := *in.Payload, *in.Payload.Kubernetes
	objects.Prune = true
	payload.Kubernetes, in.Payload = &objects, &payload
	return in
}

var errCut = errors.New("the connection was cut")

func configOf(name, value string, annotations ...string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + ", annotations: {" + strings.Join(annotations, ", ") + "}}, data: {a: " + value + "}}"
}

// caughtUp waits until the watch has an object as it is now.
func (d *desk) caughtUp(kind, name string) {
	d.Helper()
	var want *unstructured.Unstructured
	d.wait("the watch to catch up", func() bool {
		want = d.there(kind, name) // controllers go on writing its status
		v, err := d.cluster.view(d.Context(), d.of(kind), d.namespace)
		if err != nil {
			return false
		}
		o := v.get(d.namespace, name)
		if want == nil || want.GetLabels()[LabelApplication] == "" {
			return o == nil
		}
		return o != nil && o.GetResourceVersion() == want.GetResourceVersion()
	}, func() any { return want })
}

// cleared deletes a Job, and waits until it is gone.
func (d *desk) cleared(job string) {
	d.Helper()
	background := metav1.DeletePropagationBackground
	require.NoError(d, d.admin.at(d.of("Job"), d.namespace).Delete(d.Context(), job, metav1.DeleteOptions{PropagationPolicy: &background}))
	d.wait("it to be gone", func() bool { return d.there("Job", job) == nil }, func() any { return d.there("Job", job) })
	d.caughtUp("Job", job)
}
