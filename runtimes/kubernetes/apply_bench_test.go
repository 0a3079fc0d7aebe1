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

// recordingCluster is a testCluster for applies. It records every write request, and can inject faults.
type recordingCluster struct {
	*testCluster
	mu       sync.Mutex
	requests []recordedRequest // without watches and probes, which begin at any time
	fault    func(req *http.Request, send func() (*http.Response, error)) (*http.Response, error)
}

// recordedRequest is "PATCH /api/v1/namespaces/…", and whether it is a write: dry runs are none.
type recordedRequest struct {
	text  string
	write bool
}

func (b *testCluster) recording() *recordingCluster {
	b.Helper()
	d := &recordingCluster{testCluster: b}
	clusters := &Clusters{WrapTransport: func(next http.RoundTripper) http.RoundTripper { return recordingTransport{next, d} }}
	b.Cleanup(clusters.Close)
	rt, err := New(b.def, clusters)
	require.NoError(b, err)
	b.Runtime = rt
	return d
}

type recordingTransport struct {
	http.RoundTripper
	cluster *recordingCluster
}

func (n recordingTransport) WrappedRoundTripper() http.RoundTripper { return n.RoundTripper }

func (n recordingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	n.cluster.mu.Lock()
	if !req.URL.Query().Has("watch") && req.URL.Path != "/version" {
		n.cluster.requests = append(n.cluster.requests, recordedRequest{req.Method + " " + req.URL.Path, isWrite(req)})
	}
	fault := n.cluster.fault
	n.cluster.mu.Unlock()
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

// takeWrites returns what was written since the last call, and how many requests there were in all.
func (d *recordingCluster) takeWrites() (writes []string, requestCount int) {
	all := d.takeRequests()
	for _, r := range all {
		if r.write {
			writes = append(writes, r.text)
		}
	}
	return writes, len(all)
}

func (d *recordingCluster) takeRequests() []recordedRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.requests
	d.requests = nil
	return all
}

func (d *recordingCluster) injectFault(fault func(*http.Request, func() (*http.Response, error)) (*http.Response, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

// mustApply applies, and returns what it reports, line by line.
func (d *recordingCluster) mustApply(in runtimes.Request) []string {
	d.Helper()
	out, err := d.Apply(d.Context(), in)
	require.NoError(d, err)
	require.Zero(d, out.ExitCode)
	return strings.Split(strings.TrimSpace(out.Stdout), "\n")
}

// mustRefuse applies, and returns the error, which has to be permanent or not.
func (d *recordingCluster) mustRefuse(in runtimes.Request, permanent bool) string {
	d.Helper()
	out, err := d.Apply(d.Context(), in)
	require.Error(d, err)
	require.Equal(d, permanent, runtimes.IsPermanent(err), err)
	require.Equal(d, 1, out.ExitCode)
	return err.Error()
}

func (d *recordingCluster) resourceOf(kind string) resource {
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

// liveObject is an object as the server has it; nil when it has none.
func (d *recordingCluster) liveObject(kind, name string) *unstructured.Unstructured {
	d.Helper()
	o, err := d.admin.resourceClient(d.resourceOf(kind), d.namespace).Get(d.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(d, err)
	return o
}

// applyAs writes as another tool does, by apply.
func (d *recordingCluster) applyAs(tool, kind, name, patch string) {
	d.Helper()
	yes := true
	_, err := d.admin.resourceClient(d.resourceOf(kind), d.namespace).Patch(d.Context(), name, types.ApplyPatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: tool, Force: &yes})
	require.NoError(d, err)
}

// patchAs writes as a person does, by a patch, or through a subresource.
func (d *recordingCluster) patchAs(tool, kind, name, patch string, subresource ...string) {
	d.Helper()
	_, err := d.admin.resourceClient(d.resourceOf(kind), d.namespace).Patch(d.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: tool}, subresource...)
	require.NoError(d, err)
}

// inChannel is an instance in another channel.
func inChannel(in runtimes.Request, channel string) runtimes.Request {
	payload := *in.Payload
	payload.Channel, in.ID, in.Payload = channel, entities.Only(channel), &payload
	return in
}

// withInstanceName is another instance of the same channel.
func withInstanceName(in runtimes.Request, name string) runtimes.Request {
	in.ID.Name = name
	return in
}

func withAdopt(in runtimes.Request) runtimes.Request {
	payload, objects := *in.Payload, *in.Payload.Kubernetes
	objects.Adopt = true
	payload.Kubernetes, in.Payload = &objects, &payload
	return in
}

func withPrune(in runtimes.Request) runtimes.Request {
	payload, objects := *in.Payload, *in.Payload.Kubernetes
	objects.Prune = true
	payload.Kubernetes, in.Payload = &objects, &payload
	return in
}

var errConnectionCut = errors.New("the connection was cut")

func configOf(name, value string, annotations ...string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + ", annotations: {" + strings.Join(annotations, ", ") + "}}, data: {a: " + value + "}}"
}

// waitWatchedAs waits until the watch has an object as it is now.
func (d *recordingCluster) waitWatchedAs(kind, name string) {
	d.Helper()
	var want *unstructured.Unstructured
	d.wait("the watch to catch up", func() bool {
		want = d.liveObject(kind, name) // controllers continue to write its status
		v, err := d.cluster.view(d.Context(), d.resourceOf(kind), d.namespace)
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

// deleteJob deletes a Job, and waits until it is gone.
func (d *recordingCluster) deleteJob(job string) {
	d.Helper()
	background := metav1.DeletePropagationBackground
	require.NoError(d, d.admin.resourceClient(d.resourceOf("Job"), d.namespace).Delete(d.Context(), job, metav1.DeleteOptions{PropagationPolicy: &background}))
	d.wait("it to be gone", func() bool { return d.liveObject("Job", job) == nil }, func() any { return d.liveObject("Job", job) })
	d.waitWatchedAs("Job", job)
}
