package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/overview"
	"github.com/converge-engine/converge/client/serve"
	"github.com/converge-engine/converge/client/serve/apiv1"
	"github.com/converge-engine/converge/client/serve/board"
)

type serveOptions struct {
	f        *Factory
	server   serve.Options
	store    string
	readOnly bool
}

func newCmdServe(f *Factory, runF func(context.Context, *serveOptions) error) *cobra.Command {
	o := &serveOptions{f: f}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the board and the HTTP API of the installation",
		Long: `Serve the board, the pages for people who look and approve (docs/board.md), and under
/api/v1 the HTTP API: what people and programs read, and every verb (docs/api.md). Its
OpenAPI document is at /api/v1/openapi.json. The server holds no state, so several may
run; it stops on Ctrl-C or SIGTERM, after it has answered what it has begun. /healthz
says that it runs, and /readyz that the Temporal server answers it.

Everybody who reaches the server can read the whole installation, and can act where no
proof of identity is required; so it listens on a loopback address only, unless
--insecure-anonymous is given.`,
		Example: `  converge serve
  converge serve --listen 127.0.0.1:9000 --read-only
  curl http://127.0.0.1:8234/api/v1/applications`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func([]string) error { return nil }),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.server.Listen, "listen", "127.0.0.1:8234", "address to listen on, HOST:PORT; port 0 takes a free one")
	flags.StringVar(&o.server.TLSCert, "tls-cert", "", "PEM file with the certificate of the server; empty: plain HTTP")
	flags.StringVar(&o.server.TLSKey, "tls-key", "", "PEM file with the key of the certificate")
	flags.StringVar(&o.server.BaseURL, "base-url", "", "how callers reach the server, if not at the address that it listens on: https://HOST")
	flags.BoolVar(&o.server.AllowAnonymous, "insecure-anonymous", false, "listen beyond loopback although callers do not prove who they are")
	flags.BoolVar(&o.readOnly, "read-only", false, "refuse every act")
	flags.StringVar(&o.store, "store", "", storeUsage)
	return cmd
}

func (o *serveOptions) run(ctx context.Context) error {
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	o.server.Log = slog.New(slog.NewTextHandler(o.f.Err, nil))
	o.server.Ready = api.Healthy
	known := overview.New(api, o.f.Now)
	go known.Run(ctx)
	o.server.Mount = func(mux *http.ServeMux, _ *url.URL, stopping <-chan struct{}) {
		board.Mount(mux, board.Options{Calls: api, Stores: o.f.stores(o.store), Overview: known, Now: o.f.Now, ReadOnly: o.readOnly})
		apiv1.Mount(mux, apiv1.Options{Calls: api, Stores: o.f.stores(o.store), Now: o.f.Now, ReadOnly: o.readOnly, Stopping: stopping, Overview: known})
	}
	server, err := serve.Listen(ctx, o.server)
	if err != nil {
		return err
	}
	if err := o.f.screen().Lines(fmt.Sprintf("Board      %s (the API is under /api/v1)", server.URL())); err != nil {
		return err
	}
	err = server.Serve(ctx)
	if errors.Is(context.Cause(ctx), errInterrupted) {
		return nil
	}
	return err
}
