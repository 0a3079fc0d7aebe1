package measure

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/serve/session"
	"github.com/converge-engine/converge/entities"
)

// recorded keeps measurements, by their tags.
type recorded struct {
	client.MetricsHandler
	tags map[string]string
	all  *[]string
}

func (r recorded) WithTags(tags map[string]string) client.MetricsHandler {
	r.tags = tags
	return r
}

func (r recorded) Timer(name string) client.MetricsTimer {
	*r.all = append(*r.all, fmt.Sprint(name, " ", r.tags["method"], " ", r.tags["route"], " ", r.tags["code"]))
	return client.MetricsNopHandler.Timer(name)
}

// Every answer is measured: also a refusal before a route is found, and a handler that panics; the first status is the answer's.
func TestRequestsAreMeasured(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /services/{service}", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNotFound)
		w.WriteHeader(http.StatusInternalServerError)
	})
	mux.HandleFunc("GET /quiet", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /panics", func(http.ResponseWriter, *http.Request) { panic("a fault") })
	var all []string
	h := Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		Route(mux).ServeHTTP(w, r.WithContext(session.With(r.Context(), entities.Who{Name: "alice"})))
	}), recorded{all: &all})
	for _, path := range []string{"/services/web", "/quiet", "/refused"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	}
	require.PanicsWithValue(t, "a fault", func() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/panics", nil))
	})
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "FORGED", "/quiet", nil))
	const name = "converge_http_request_duration "
	require.Equal(t, []string{
		name + "GET /services/{service} 404", name + "GET /quiet 200", name + "GET none 429", name + "GET /panics 500", name + "other none 405",
	}, all)
}
