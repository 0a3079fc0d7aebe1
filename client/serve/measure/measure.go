// Package measure counts the requests of a server, and how long they take, by route, method and status code.
package measure

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
)

// Wrap measures the requests by route and status code, also those that never reach a route, and those whose handler panics.
func Wrap(next http.Handler, metrics client.MetricsHandler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun, route := time.Now(), ""
		answer := &statusWriter{ResponseWriter: w}
		defer func() {
			if recover := recover(); recover != nil {
				answer.status = http.StatusInternalServerError
				defer panic(recover)
			}
			metrics.WithTags(map[string]string{"route": cmp.Or(route, "none"), "method": knownMethod(r.Method), "code": strconv.Itoa(cmp.Or(answer.status, http.StatusOK))}).
				Timer("converge_http_request_duration").Record(time.Since(begun))
		}()
		next.ServeHTTP(answer, r.WithContext(context.WithValue(r.Context(), routeKey{}, &route)))
	})
}

// routeKey is the key of the route of a request in its context: a *string.
type routeKey struct{}

// Route says for Wrap which route a request takes.
func Route(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if route, ok := r.Context().Value(routeKey{}).(*string); ok {
				_, path, _ := strings.Cut(r.Pattern, " ")
				*route = cmp.Or(path, r.Pattern)
			}
		}()
		mux.ServeHTTP(w, r)
	})
}

// knownMethod bounds the number of metrics: a sender may write anything.
func knownMethod(method string) string {
	if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost}, method) {
		return method
	}
	return "other"
}

// statusWriter keeps the status code of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK { // the first one that is no announcement of another is the answer
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets handlers set deadlines and flush (http.ResponseController).
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
