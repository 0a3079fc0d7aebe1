package tests

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// What runs in a channel is what serves there, where nothing declares it: a release waits while that is less than the use.
func TestReleaseWaitsForWhatRuns_D19(t *testing.T) {
	t.Parallel()
	var use atomic.Int64
	use.Store(250)
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1763.5,"%d"]}]}}`, use.Load())
	}))
	t.Cleanup(prometheus.Close)
	w := shared.World(t)
	t.Cleanup(func() { w.Retire("web") })
	w.Write(oneChannel("web", ""))
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1")
	object := w.Status("web").Channels[0].Objects[0].Name
	w.Write(strings.TrimSuffix(oneChannel("web", fmt.Sprintf(
		", protections: [{name: load, capacity: {url: %q, use: load, object: %q, per: 100}}]", prometheus.URL, object)), "\n"))
	w.Publish()
	w.Release("web", "v2")
	waitsFor(w, "web", "load: capacity would be 100, less than the maximum use of 250 in the last 24h0m0s")
	use.Store(100)
	w.Await("web", "staging CONVERGED v2")
}
