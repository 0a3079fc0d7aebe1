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
		Long: `Decrypt payloads, with the keys that CONVERGE_STORE_KEY refers to, for who may see them:
temporal --codec-endpoint http://127.0.0.1:8234 --codec-auth "Bearer …", the Temporal UI,
and converge itself where it has no key (TEMPORAL_CODEC_ENDPOINT, TEMPORAL_CODEC_AUTH).

Who asks proves who they are by an OIDC ID token of --issuer, or knows the secret that
--secret refers to; without either it does not start. What they send is encrypted with
--encrypt-payloads, and else goes as it is. Where it is to be asked from elsewhere, put it
behind a proxy with TLS, and say by --host how it is called there.`,
		Example: `  converge codec-server --secret file:/etc/converge/codec.secret
  converge codec-server --issuer https://id.shop.dev --to group:sre --origin https://temporal.shop.dev --host codec.shop.dev`,
		Args: asUsed,
		RunE: running(o, runF, o.run, func([]string) error { return nil }),
	}
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:8234", "where to listen, host:port")
	cmd.Flags().StringVar(&o.identity.Issuer, "issuer", "", "who issues the tokens of those who may ask")
	cmd.Flags().StringVar(&o.identity.Audience, "audience", "converge", "whom the tokens are for")
	cmd.Flags().StringVar(&o.identity.KeysURL, "keys-url", "", "where the issuer's keys are (default: by discovery)")
	cmd.Flags().StringArrayVar(&o.to, "to", nil, "who may ask: a name, or group:NAME; repeatable, with --issuer")
	cmd.Flags().StringVar(&o.secret, "secret", "", "what everybody knows who may ask: file:/path or env:NAME (CONVERGE_CODEC_SECRET)")
	cmd.Flags().StringArrayVar(&o.origins, "origin", nil, "page that a browser lets ask, as https://temporal.shop.dev; repeatable")
	cmd.Flags().StringArrayVar(&o.hosts, "host", nil, "name by which it is asked, beside those of this machine; repeatable")
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
	o.f.note("decrypting at http://%s. Ctrl-C ends it.", listener.Addr())
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
	secret, err := o.f.referred(first(o.secret, o.f.Env("CONVERGE_CODEC_SECRET")))
	if err != nil {
		return nil, err
	}
	return codecserver.New(codecserver.Options{
		Codec: keys, Identity: o.identity, To: o.to, Secret: secret, Origins: o.origins, Hosts: o.hosts,
	})
}

// referred resolves a reference: file:/path or env:NAME. An empty reference resolves to an empty value.
func (f *Factory) referred(reference string) (string, error) {
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
		return "", errors.New("a secret is named by reference; expected file:/path or env:NAME")
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", fmt.Errorf("the secret %s is empty", reference)
	}
	return text, nil
}
