// Package apiv1 is the HTTP API of an installation, under /api/v1: what people and programs read, and every verb of the verb table (package
// entities/verb). The OpenAPI document is made of the same operations and types.
package apiv1

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/converge-engine/converge/client/api"
	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/overview"
	"github.com/converge-engine/converge/client/preview"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/client/serve/access"
)

// Options are those of the API.
type Options struct {
	Calls    connection.API
	Stores   read.Store
	Now      func() time.Time
	ReadOnly bool            // refuse every act
	Stopping <-chan struct{} // closed when the server stops: waits end
	Overview *overview.Overview
	Previews *preview.Served // nil: the server only reads
	Readers  *access.Readers // nil: everybody may read everything
}

// idToken names the scheme of tokens in the OpenAPI document.
const idToken = "idToken"

// prefix is the path of the API.
const prefix = "/api/v1"

// operations holds what the operations need.
type operations struct {
	Options
	huma    huma.API
	streams chan struct{} // a token for each open stream
}

// Mount adds the operations to a mux, and returns their OpenAPI document.
func Mount(mux *http.ServeMux, o Options) *huma.OpenAPI {
	routes := http.NewServeMux()
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Converge", Version: "v1",
				Description: "Reads what an installation of Converge knows, and acts: every verb of the verb table. An act is an Update of a workflow: it is answered once it is carried out, and with the same Idempotency-Key it is carried out once.",
			},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry("#/components/schemas/", schemaName),
				SecuritySchemes: map[string]*huma.SecurityScheme{idToken: {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: "OIDC ID token that proves who acts"}},
			},
		},
		Formats:                      map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
	}
	o.Calls = o.Readers.Limit(o.Calls)
	a := &operations{Options: o, huma: humago.New(routes, config), streams: make(chan struct{}, maxStreams)}
	a.huma.UseMiddleware(a.readable)
	a.addReads()
	a.addActs()
	document := a.huma.OpenAPI()
	a.describeEvents(document)
	for _, s := range document.Components.Schemas.Map() {
		if s.AdditionalProperties == false {
			s.AdditionalProperties = nil // fields are added within a version; readers ignore those that they do not know
		}
	}
	routes.HandleFunc("GET "+prefix+"/openapi.json", func(w http.ResponseWriter, r *http.Request) {
		data, err := document.MarshalJSON()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
		_, _ = w.Write(data) // the client is gone
	})
	routes.Handle(prefix+"/", unknownOperations(document))
	mux.HandleFunc("GET "+prefix+"/events", a.events)
	mux.Handle(prefix+"/", jsonOnly(WithETags(routes)))
	return document
}

// unknownOperations answers requests that no operation takes: 405 if one of another method has the path (RFC 9110, 15.5.6), and else 404.
func unknownOperations(document *huma.OpenAPI) http.Handler {
	other := http.NewServeMux()
	for path, item := range document.Paths {
		var methods []string
		for method, operation := range map[string]*huma.Operation{http.MethodGet: item.Get, http.MethodPost: item.Post} {
			if operation != nil {
				methods = append(methods, method)
			}
		}
		slices.Sort(methods)
		other.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			p := api.NewProblem(api.Invalid, fmt.Errorf("%s %s: expected %s", r.Method, r.URL.Path, strings.Join(methods, " or ")))
			p.Status = http.StatusMethodNotAllowed
			p.Write(w)
		})
	}
	other.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		api.NewProblem(api.NotFound, fmt.Errorf("no operation %s %s; %s/openapi.json lists them", r.Method, r.URL.Path, prefix)).Write(w)
	})
	return other
}

// readable lets a request through only if its sender may read the application of its path, or the installation.
func (a *operations) readable(ctx huma.Context, next func(huma.Context)) {
	var err error
	path := ctx.Operation().Path
	switch application := ctx.Param("application"); {
	case application != "":
		err = a.Readers.Check(ctx.Context(), application)
	case strings.HasPrefix(path, prefix+"/installation"), strings.HasPrefix(path, prefix+"/runtimes/"):
		err = a.Readers.CheckInstallation(ctx.Context())
	}
	var problem *api.Problem
	if errors.As(problemOf(err), &problem) {
		_, w := humago.Unwrap(ctx)
		problem.Write(w)
		return
	}
	next(ctx)
}

// jsonOnly refuses bodies that are not declared as JSON. Browsers send such a body to another site only after its consent (CORS).
func jsonOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
			if err != nil || kind != "application/json" {
				p := api.NewProblem(api.Invalid, fmt.Errorf("the body has the type %q; expected: Content-Type: application/json", r.Header.Get("Content-Type")))
				p.Status = http.StatusUnsupportedMediaType
				p.Write(w)
				return
			}
			r.Header.Set("Content-Type", kind)
		}
		next.ServeHTTP(w, r)
	})
}

// schemaName names the schema of a type by the name of the type; Page[Release] is ReleasePage.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := t.Name()
	if generic, of, ok := strings.Cut(name, "["); ok {
		name = of[strings.LastIndexAny(of, "./")+1:len(of)-1] + generic
	}
	return cmp.Or(name, hint)
}

// answer is the body of an answer.
type answer[T any] struct{ Body T }

// get adds an operation that reads.
func get[I, O any](a *operations, tag, path, id, summary string, read func(context.Context, *I) (O, error)) {
	huma.Register(a.huma, huma.Operation{OperationID: id, Method: http.MethodGet, Path: prefix + path, Summary: summary, Tags: []string{tag}},
		func(ctx context.Context, in *I) (*answer[O], error) {
			out, err := read(ctx, in)
			if err != nil {
				return nil, problemOf(err)
			}
			return &answer[O]{out}, nil
		})
}
