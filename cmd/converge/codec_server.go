package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/codecserver"
	"github.com/converge-engine/converge/entities"
)

type codecServerOptions struct {
	f              *Factory
	listen         string
	identity       entities.Identity
	to             []string
	secret         string // a reference to it
	origins, hosts []string
}

func newCmdCodecServer(f *Factory, runF func(context.Context, *codecServerOptions) error) *cobra.Command {
	o := &codecServerOptions{f: f}
	cmd := &cobra.Command{
		Use:   "codec-server",
		Short: "Decrypt payloads for the temporal CLI and the Temporal UI",
		Long: `Decrypt payloads, with the keys that CONVERGE_STORE_KEY refers to, for authorized callers:
temporal --codec-endpoint http://127.0.0.1:8234 --codec-auth "Bearer …", the Temporal UI,
and converge itself if it has no key (TEMPORAL_CODEC_ENDPOINT, TEMPORAL_CODEC_AUTH).

Callers authenticate with an OIDC ID token of --issuer, or with the secret that --secret
refers to; without either, the server does not start. Payloads that callers send are
encrypted with --encrypt-payloads, and otherwise stay as they are. To expose the server to
other machines, put it behind a proxy with TLS, and name its public host with --host.`,
		Example: `  converge admin codec-server --secret file:/etc/converge/codec.secret
  converge admin codec-server --issuer https://id.shop.dev --to group:sre --origin https://temporal.shop.dev --host codec.shop.dev`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func([]string) error { return nil }),
	}
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:8234", "address to listen on, host:port")
	cmd.Flags().StringVar(&o.identity.Issuer, "issuer", "", "URL of the issuer of the callers' tokens")
	cmd.Flags().StringVar(&o.identity.Audience, "audience", "converge", "audience of the tokens")
	cmd.Flags().StringVar(&o.identity.KeysURL, "keys-url", "", "URL of the issuer's keys (default: by discovery)")
	cmd.Flags().StringArrayVar(&o.to, "to", nil, "allowed caller: a name, or group:NAME (repeatable, with --issuer)")
	cmd.Flags().StringVar(&o.secret, "secret", "", "reference to the callers' shared secret: file:/path or env:NAME (CONVERGE_CODEC_SECRET)")
	cmd.Flags().StringArrayVar(&o.origins, "origin", nil, "allowed browser origin, such as https://temporal.shop.dev (repeatable)")
	cmd.Flags().StringArrayVar(&o.hosts, "host", nil, "additional host name of this server (repeatable)")
	return cmd
}

func (o *codecServerOptions) run(ctx context.Context) error {
	handler, err := o.handler()
	if err != nil {
		return fmt.Errorf("codec-server: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("codec-server: %w", err)
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	o.f.note("decrypting at http://%s. Ctrl-C stops it.", listener.Addr())
	context.AfterFunc(ctx, func() { _ = s.Close() }) // callers whose request is interrupted retry
	if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("codec-server: %w", err)
	}
	return nil
}

func (o *codecServerOptions) handler() (http.Handler, error) {
	keys, err := o.f.codec()
	if err != nil {
		return nil, err
	}
	secret, err := o.f.resolveSecret(first(o.secret, o.f.Env("CONVERGE_CODEC_SECRET")))
	if err != nil {
		return nil, err
	}
	return codecserver.New(codecserver.Options{
		Codec: keys, Identity: o.identity, To: o.to, Secret: secret, Origins: o.origins, Hosts: o.hosts,
	})
}

// resolveSecret resolves a reference: file:/path or env:NAME. An empty reference resolves to an empty value.
func (f *Factory) resolveSecret(reference string) (string, error) {
	kind, name, _ := strings.Cut(reference, ":")
	text := ""
	switch {
	case reference == "":
		return "", nil
	case kind == "file":
		raw, err := os.ReadFile(strings.TrimPrefix(name, "//"))
		if err != nil {
			return "", fmt.Errorf("secret: %w", err)
		}
		text = string(raw)
	case kind == "env":
		text = f.Env(name)
	default: // it may be the secret itself
		return "", errors.New("expected a reference to a secret: file:/path or env:NAME")
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", fmt.Errorf("the secret %s is empty", reference)
	}
	return text, nil
}
