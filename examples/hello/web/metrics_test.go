package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// Three of ten requests fail, already among the first ten, and /metrics counts both kinds.
func TestFaultsAreCounted(t *testing.T) {
	s := state{wish: wish{Service: "web", Version: "v2", Greeting: "Hello", Faults: "30"}}
	pages, codes := s.pages(), map[int]int{}
	ask := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	for range 10 {
		codes[ask("/").Code]++
	}
	require.Equal(t, map[int]int{200: 7, 500: 3}, codes)
	require.Contains(t, ask("/metrics").Body.String(), `http_requests_total{service="web",version="v2",code="200"} 7
http_requests_total{service="web",version="v2",code="500"} 3
`)
	require.Equal(t, 200, ask("/healthz").Code, "health says that it runs, not that it is good")
}
