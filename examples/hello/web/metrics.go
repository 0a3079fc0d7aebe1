package main

import (
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
)

// traffic counts the requests of pages, and fails a share of them, to simulate a bad version.
type traffic struct {
	faults int // percent of the requests
	served atomic.Int64
	failed atomic.Int64
}

func newTraffic(faults string) *traffic {
	share, _ := strconv.Atoi(faults) // missing or invalid: no faults
	return &traffic{faults: min(max(share, 0), 100)}
}

// count passes requests on, except the share that fails. The failures are evenly distributed, so that a few requests show the rate.
func (t *traffic) count(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n := t.served.Add(1)
		if share := int64(t.faults); n*share/100 != (n-1)*share/100 {
			t.failed.Add(1)
			http.Error(w, "this version fails on purpose", http.StatusInternalServerError)
			return
		}
		next(w, r)
	}
}

// metrics answers in the text format of Prometheus.
func (t *traffic) metrics(s state) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		failed := t.failed.Load()
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = fmt.Fprintf(w, "# HELP http_requests_total Requests of pages.\n# TYPE http_requests_total counter\n")
		for _, row := range []struct {
			code string
			n    int64
		}{{"200", t.served.Load() - failed}, {"500", failed}} {
			_, _ = fmt.Fprintf(w, "http_requests_total{service=%q,version=%q,code=%q} %d\n", s.Service, s.Version, row.code, row.n)
		}
	}
}
