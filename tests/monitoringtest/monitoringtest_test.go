package monitoringtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is scraped can be queried, and an alert fires and resolves with it.
func TestStack(t *testing.T) {
	var ratio atomic.Value
	ratio.Store("0.5")
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "errors_ratio %s\n", ratio.Load())
	}))
	defer exporter.Close()
	s := Start(t, map[string]string{"production": strings.TrimPrefix(exporter.URL, "http://")},
		Rule{Name: "HighErrorRate", Expr: "errors_ratio > 0.1", Labels: map[string]string{"service": "web"}})

	require.Eventually(t, func() bool {
		value, ok := s.Query(t, `errors_ratio{channel="production"}`)
		return ok && value == "0.5"
	}, patience, 50*time.Millisecond)
	require.Eventually(t, func() bool { return s.Firing(t, "HighErrorRate") }, patience, 50*time.Millisecond)
	ratio.Store("0.01")
	require.Eventually(t, func() bool { return !s.Firing(t, "HighErrorRate") }, patience, 50*time.Millisecond)
}
