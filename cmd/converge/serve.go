package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/overview"
	"github.com/converge-engine/converge/client/preview"
	"github.com/converge-engine/converge/client/serve"
	"github.com/converge-engine/converge/client/serve/access"
	"github.com/converge-engine/converge/client/serve/apiv1"
	"github.com/converge-engine/converge/client/serve/board"
	"github.com/converge-engine/converge/client/serve/limit"
	"github.com/converge-engine/converge/client/serve/measure"
	"github.com/converge-engine/converge/client/serve/session"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/deployment"
)

type serveOptions struct {
	f        *Factory
	server   serve.Options
	store    string
	readOnly bool
	metrics  string

	signIn              session.Options
	secretFile, keyFile string
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

With --issuer people sign in at that OIDC issuer, which also signs what they do, and
programs send an ID token (docs/identity.md). Without it, everybody who reaches the
server can read the whole installation, and can act where no proof of identity is
required; so it listens on a loopback address only, unless --insecure-anonymous is given.

Beyond loopback, and for a sign-in, the rules of the installation (converge admin rules)
say what no flag does when the server starts. Without --issuer they name the issuer, and
with it the audience and the claims, unless flags do; without --base-url, the board.`,
		Example: `  converge serve
  converge serve --listen 127.0.0.1:9000 --read-only
  converge serve --listen :8234 --base-url https://converge.shop.dev --issuer https://id.shop.dev --session-key-file keys
  curl http://127.0.0.1:8234/api/v1/applications`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func([]string) error { return nil }),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.server.Listen, "listen", "127.0.0.1:8234", "address to listen on, HOST:PORT; port 0 takes a free one")
	flags.StringVar(&o.server.TLSCert, "tls-cert", "", "PEM file with the certificate of the server; empty: plain HTTP")
	flags.StringVar(&o.server.TLSKey, "tls-key", "", "PEM file with the key of the certificate")
	flags.StringVar(&o.server.BaseURL, "base-url", "", "how callers reach the server, if not at the address that it listens on: https://HOST; empty: the board of the rules of the installation, beyond loopback")
	flags.BoolVar(&o.server.AllowAnonymous, "insecure-anonymous", false, "listen beyond loopback although callers do not prove who they are")
	flags.StringVar(&o.signIn.Issuer, "issuer", "", "OIDC issuer at which people sign in, and whose tokens programs send; empty: that of the rules of the installation, for a sign-in")
	flags.StringVar(&o.signIn.ClientID, "client-id", "converge", "OAuth client id of this server at the issuer")
	flags.StringVar(&o.secretFile, "client-secret-file", "", "file with the secret of the client; empty: it is a public one")
	flags.StringVar(&o.signIn.Audience, "audience", "", "audience of the tokens of programs; empty: the client id")
	flags.StringSliceVar(&o.signIn.Scopes, "scope", []string{"email", "groups"}, "scopes to request in addition to openid")
	flags.StringVar(&o.signIn.UserClaim, "user-claim", "", "claim with the name of a person, as in the identity of the applications; empty: email, or else sub")
	flags.StringVar(&o.signIn.GroupsClaim, "groups-claim", "", "claim with the groups of a person; empty: groups")
	flags.StringVar(&o.keyFile, "session-key-file", "", "file with the secrets that seal sessions, one on each line, the newest first; replicas share it; empty: one of this process")
	flags.BoolVar(&o.readOnly, "read-only", false, "refuse every act")
	flags.StringVar(&o.metrics, "metrics", "", "serve /metrics, /healthz and /readyz at PORT, on the loopback address only, or at HOST:PORT (CONVERGE_METRICS)")
	flags.StringVar(&o.store, "store", "", storeUsage)
	return cmd
}

func (o *serveOptions) run(ctx context.Context) error {
	mon, stop, err := o.f.monitor(ctx, o.metrics)
	if err != nil {
		return err
	}
	defer stop()
	metrics := client.MetricsNopHandler
	if mon != nil {
		metrics = mon.Handler()
	}
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	if err := o.fromRules(ctx, api); err != nil {
		return err
	}
	o.server.Log = slog.New(slog.NewTextHandler(o.f.Err, nil))
	o.server.Ready = api.Healthy
	known := overview.New(api, o.f.Now)
	go known.Run(ctx)
	sessions, err := o.sessions()
	if err != nil {
		return err
	}
	var readers *access.Readers // nil without a sign-in: all may read
	if sessions != nil {
		readers = access.New(api, o.f.Now)
	}
	if mon != nil {
		mon.SetOnlyCheck("temporal", api.Healthy)
	}
	stores := o.f.stores(o.store).Keep()
	o.server.Identifies = sessions != nil
	c, namespace := api.Temporal()
	examine := deployment.Namespace{Client: c, Name: namespace, Attributes: worker.SearchAttributes()}.Examine
	var previews *preview.Served
	if !o.readOnly {
		previews = preview.NewServed()
	}
	o.server.Mount = func(mux *http.ServeMux, base *url.URL, stopping <-chan struct{}) http.Handler {
		if sessions != nil {
			sessions.Base = base
		}
		board.Mount(mux, board.Options{
			Calls: api, Stores: stores, Overview: known, Now: o.f.Now, ReadOnly: o.readOnly, Sessions: sessions, Readers: readers, Previews: previews, Examine: examine,
		})
		apiv1.Mount(mux, apiv1.Options{Calls: api, Stores: stores, Now: o.f.Now, ReadOnly: o.readOnly, Stopping: stopping, Overview: known, Previews: previews, Readers: readers})
		handler := measure.Route(mux)
		if sessions != nil {
			handler = sessions.Require(limit.New(o.f.Now).Wrap(handler))
		}
		return measure.Wrap(handler, metrics)
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

// fromRules takes from the rules of the installation, as they are now, what no flag says: where people sign in, and the address of the board.
func (o *serveOptions) fromRules(ctx context.Context, api connection.API) error {
	beyond := !serve.IsLoopback(o.server.Listen)
	signsIn := o.signIn.Issuer == "" && (beyond && !o.server.AllowAnonymous || o.needsIssuer())
	needsName := o.server.BaseURL == "" && beyond && (signsIn || o.signIn.Issuer != "" || serve.IsUnspecified(o.server.Listen))
	defer func() { o.signIn.GroupsClaim = cmp.Or(o.signIn.GroupsClaim, "groups") }()
	if !signsIn && !needsName {
		return nil
	}
	var s protocol.InstallationStatus
	if err := api.Query(ctx, protocol.InstallationID(), protocol.QueryStatus, &s); err != nil && !errors.Is(err, connection.ErrNotFound) {
		return fmt.Errorf("read the rules of the installation: %w", err)
	}
	if needsName {
		o.server.BaseURL = s.Rules.Board
	}
	if i := s.Rules.Identity; i != nil && signsIn {
		o.signIn.Issuer, o.signIn.Audience = i.Issuer, cmp.Or(o.signIn.Audience, i.Audience)
		o.signIn.UserClaim, o.signIn.GroupsClaim = cmp.Or(o.signIn.UserClaim, i.UserClaim), cmp.Or(o.signIn.GroupsClaim, i.GroupsClaim)
	}
	return nil
}

// needsIssuer reports whether a flag is given that only a sign-in uses.
func (o *serveOptions) needsIssuer() bool {
	return o.secretFile != "" || o.keyFile != "" || o.signIn.Audience != ""
}

// sessions returns how people sign in; nil: they do not.
func (o *serveOptions) sessions() (*session.Sessions, error) {
	if o.signIn.Issuer == "" {
		if o.needsIssuer() {
			return nil, errors.New("--client-secret-file, --session-key-file and --audience are for a sign-in, and the rules of the installation name no issuer; expected --issuer too")
		}
		return nil, nil
	}
	o.signIn.Keys, o.signIn.Now = session.RandomKeys(), o.f.Now
	if o.keyFile != "" {
		text, err := os.ReadFile(o.keyFile)
		if err == nil {
			o.signIn.Keys, err = session.ParseKeys(text)
		}
		if err != nil {
			return nil, fmt.Errorf("--session-key-file %s: %w", o.keyFile, err)
		}
	}
	var secret []byte
	if o.secretFile != "" {
		var err error
		if secret, err = os.ReadFile(o.secretFile); err != nil {
			return nil, fmt.Errorf("--client-secret-file: %w", err)
		}
	}
	o.signIn.ClientSecret = strings.TrimSpace(string(secret))
	return session.New(o.signIn)
}
