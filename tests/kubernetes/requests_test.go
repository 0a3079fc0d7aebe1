package kubernetes_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/kubernetes"
)

// requests counts what the tests' workers ask of one cluster with one kubeconfig.
type requests struct {
	clusters kubernetes.Clusters
	mu       sync.Mutex
	total    int
	used     map[string]int // "patch deployments.apps"
	written  []string       // "PATCH /apis/apps/v1/namespaces/shop/deployments/web", whatever was answered
}

var recorded struct {
	mu  sync.Mutex
	all map[string]*requests // by kubeconfig
}

// requestsOf is the record of a kubeconfig.
func requestsOf(kubeconfig string) *requests {
	recorded.mu.Lock()
	defer recorded.mu.Unlock()
	if recorded.all == nil {
		recorded.all = map[string]*requests{}
	}
	if recorded.all[kubeconfig] == nil {
		r := &requests{used: map[string]int{}}
		r.clusters.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return &recorder{r, next} }
		recorded.all[kubeconfig] = r
	}
	return recorded.all[kubeconfig]
}

// disconnect ends the connections of a kubeconfig, as the end of its worker's process would. The next runtime makes new ones.
func disconnect(kubeconfig string) {
	requestsOf(kubeconfig).clusters.Close()
	recorded.mu.Lock()
	defer recorded.mu.Unlock()
	delete(recorded.all, kubeconfig)
}

// recordedKubernetes makes real runtimes whose requests are recorded.
func recordedKubernetes(def entities.RuntimeDefinition) (runtimes.Runtime, error) {
	path := ""
	if def.Kubernetes != nil {
		path = def.Kubernetes.Kubeconfig
	}
	return kubernetes.Connect(def, &requestsOf(path).clusters)
}

func (r *requests) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}

// verbs lists what was granted and used, sorted: "watch pods".
func (r *requests) verbs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.used))
}

// writes counts the requests so far that write: no dry runs.
func (r *requests) writes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.written)
}

// writtenTo lists the requests so far that write to a namespace, or would have: no dry runs.
func (r *requests) writtenTo(namespace string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.written), func(request string) bool {
		return !strings.HasSuffix(request, "/namespaces/"+namespace) && !strings.Contains(request, "/namespaces/"+namespace+"/")
	})
}

// wrote notes a request that is neither a reading nor a dry run.
func (r *requests) wrote(req *http.Request) {
	if req.Method == http.MethodGet || req.Method == http.MethodHead || req.URL.Query().Get("dryRun") != "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written = append(r.written, req.Method+" "+req.URL.Path)
}

func (r *requests) add(uses []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total++
	for _, use := range uses {
		r.used[use]++
	}
}

type recorder struct {
	*requests
	next http.RoundTripper
}

// RoundTrip counts a request before it is sent and what it took, in the words of RBAC, when it was
// allowed.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.wrote(req)
	resp, err := r.next.RoundTrip(req)
	var uses []string
	if err == nil && resp.StatusCode != http.StatusForbidden {
		uses = usesOf(req, resp.StatusCode == http.StatusCreated)
	}
	r.add(uses)
	return resp, err
}

// WrappedRoundTripper lets client-go find the connection underneath.
func (r *recorder) WrappedRoundTripper() http.RoundTripper { return r.next }

// usesOf reports which verbs on which resource a request needs; none when it is about no resource. A
// server-side apply of what is not there creates it, which takes a right of its own.
func usesOf(req *http.Request, created bool) []string {
	resource, named := resourceOf(req.URL.Path)
	if resource == "" {
		return nil
	}
	switch req.Method {
	case http.MethodPatch:
		if created {
			return []string{"create " + resource, "patch " + resource}
		}
		return []string{"patch " + resource}
	case http.MethodPost:
		return []string{"create " + resource}
	case http.MethodPut:
		return []string{"update " + resource}
	case http.MethodDelete:
		if named {
			return []string{"delete " + resource}
		}
		return []string{"deletecollection " + resource}
	}
	switch {
	case named:
		return []string{"get " + resource}
	case req.URL.Query().Get("watch") != "":
		return []string{"watch " + resource}
	}
	return []string{"list " + resource}
}

// resourceOf reads "deployments.apps", with a subresource "pods/log", from a path of the API.
func resourceOf(path string) (resource string, named bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := ""
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group, parts = "."+parts[1], parts[3:]
	default:
		return "", false // what the server serves
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	resource = parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	return resource + group, len(parts) > 1
}
