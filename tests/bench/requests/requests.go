// Package requests counts what a worker asks a Kubernetes API server, by standing around its transport.
// It changes no request, and imports nothing of ours, so that its tests do not link a Temporal server.
package requests

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is one kind of question to an API server.
type Kind struct {
	Verb     string // get, list, watch, apply, patch, create, update or delete
	Resource string // deployments, deployments/scale, or Discovery
	Dry      bool   // nothing was to change
}

// Discovery is the resource of what is asked about the server itself.
const Discovery = "discovery"

// String is "apply deployments (dry run)".
func (k Kind) String() string {
	text := k.Verb + " " + k.Resource
	if k.Dry {
		text += " (dry run)"
	}
	return text
}

// Counter counts what leaves a worker for an API server, and tells who waits for one. The zero value
// is ready. Safe for concurrent use.
type Counter struct {
	mu      sync.Mutex
	counts  Tally
	watched map[string]*Applies // by name of a Deployment
}

// Applies are when the first apply of an object left: one that only asks, and one that writes. Each
// is sent once; nobody has to receive it.
type Applies struct{ Asked, Written chan time.Time }

// Wrap stands around a transport (kubernetes.Clusters.WrapTransport).
func (c *Counter) Wrap(next http.RoundTripper) http.RoundTripper { return &counted{c, next} }

type counted struct {
	counter *Counter
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c *counted) RoundTrip(req *http.Request) (*http.Response, error) {
	c.counter.leaves(req)
	return c.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the connection underneath.
func (c *counted) WrappedRoundTripper() http.RoundTripper { return c.next }

func (c *Counter) leaves(req *http.Request) {
	now := time.Now()
	kind, name := Classify(req)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = Tally{}
	}
	c.counts[kind]++
	applies := c.watched[name]
	if applies == nil || kind.Verb != "apply" || kind.Resource != "deployments" {
		return
	}
	to := applies.Written
	if kind.Dry {
		to = applies.Asked
	}
	select {
	case to <- now:
	default: // not the first
	}
}

// Watch tells of the applies of the Deployment of that name from now on, in place of an earlier Watch.
func (c *Counter) Watch(name string) *Applies {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watched == nil {
		c.watched = map[string]*Applies{}
	}
	applies := &Applies{Asked: make(chan time.Time, 1), Written: make(chan time.Time, 1)}
	c.watched[name] = applies
	return applies
}

// Take returns what was counted since it was last called.
func (c *Counter) Take() Tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.counts
	c.counts = nil
	return out
}

// Classify reads from a request its kind, and the name of the object that it is about, empty for none.
func Classify(req *http.Request) (kind Kind, name string) {
	query := req.URL.Query()
	resource, name := resourceOf(strings.Split(strings.Trim(req.URL.Path, "/"), "/"))
	kind = Kind{Resource: resource, Dry: query.Get("dryRun") != ""}
	switch req.Method {
	case http.MethodGet:
		kind.Verb = "get"
		if resource != Discovery && name == "" {
			kind.Verb = "list"
		}
		if w := query.Get("watch"); w == "true" || w == "1" {
			kind.Verb = "watch"
		}
	case http.MethodPatch:
		kind.Verb = "patch"
		if strings.HasPrefix(req.Header.Get("Content-Type"), "application/apply-patch") {
			kind.Verb = "apply"
		}
	case http.MethodPost:
		kind.Verb = "create"
	case http.MethodPut:
		kind.Verb = "update"
	default:
		kind.Verb = strings.ToLower(req.Method)
	}
	return kind, name
}

// resourceOf reads /api/v1/… and /apis/GROUP/VERSION/…, with or without a namespace.
func resourceOf(path []string) (resource, name string) {
	switch {
	case path[0] == "api" && len(path) > 2:
		path = path[2:]
	case path[0] == "apis" && len(path) > 3:
		path = path[3:]
	default:
		return Discovery, ""
	}
	if path[0] == "namespaces" && len(path) > 2 {
		path = path[2:]
	}
	resource = path[0]
	if len(path) > 1 {
		name = path[1]
	}
	if len(path) > 2 {
		resource += "/" + path[2]
	}
	return resource, name
}

// Tally is how many requests of each kind there were.
type Tally map[Kind]int

// Total counts all requests.
func (t Tally) Total() (n int) {
	for _, count := range t {
		n += count
	}
	return n
}

// Asked counts the requests other than watches, which a server ends after some minutes and a client
// begins anew.
func (t Tally) Asked() (n int) {
	for kind, count := range t {
		if kind.Verb != "watch" {
			n += count
		}
	}
	return n
}

// Per prints the counts divided by n, the most frequent first: "1 apply deployments, 0.01 get pods".
func (t Tally) Per(n int) string {
	kinds := make([]Kind, 0, len(t))
	for kind := range t {
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, func(a, b Kind) int {
		if t[a] != t[b] {
			return t[b] - t[a]
		}
		return strings.Compare(a.String(), b.String())
	})
	parts := make([]string, len(kinds))
	for i, kind := range kinds {
		parts[i] = fmt.Sprintf("%.3g %s", float64(t[kind])/float64(n), kind)
	}
	return strings.Join(parts, ", ")
}
