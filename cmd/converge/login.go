package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/spf13/cobra"
	"golang.org/x/oauth2"

	"github.com/converge-engine/converge/entities"
)

// loginOptions are the options of login.
type loginOptions struct {
	f        *Factory
	issuer   string
	clientID string
	scopes   []string
	device   bool
	timeout  time.Duration
}

func newCmdLogin(f *Factory, runF func(context.Context, *loginOptions) error) *cobra.Command {
	o := &loginOptions{f: f}
	cmd := &cobra.Command{
		Use:   "login ISSUER",
		Short: "Log in to a token issuer",
		Long: `Log in to the issuer that an application's identity names. Open the printed page in a
browser on this machine; with --device, enter a code on another one. The credentials are
kept in a file that only you can read, until converge logout. Each verb gets a token of
its own with them, unless --token or CONVERGE_TOKEN is set.`,
		Example: `  converge login https://id.shop.dev
  converge login https://id.shop.dev --device --client-id converge-cli`,
		Args: cobra.ExactArgs(1),
		RunE: newRunE(o, runF, o.run, func(args []string) error {
			o.issuer = args[0]
			return nil
		}),
	}
	cmd.Flags().StringVar(&o.clientID, "client-id", "converge", "OAuth client id, which is the audience of the tokens (identity.audience)")
	cmd.Flags().StringSliceVar(&o.scopes, "scope", []string{"email", "groups", oidc.ScopeOfflineAccess}, "scopes to request in addition to openid")
	cmd.Flags().BoolVar(&o.device, "device", false, "log in by entering a code on another device")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait for the login")
	return cmd
}

func newCmdLogout(f *Factory, _ func(context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "Log out",
		Long: `Delete the credentials that converge login kept on this machine. Verbs then send no token,
unless --token or CONVERGE_TOKEN is set.`,
		Example: "  converge logout",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.deleteLogin(cmd.Context()); err != nil {
				return err
			}
			f.note("logged out")
			return nil
		},
	}
}

func (o *loginOptions) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("no login within %s", o.timeout))
	defer cancel()
	l := login{Issuer: o.issuer, ClientID: o.clientID, Scopes: o.scopes}
	config, provider, err := l.config(ctx)
	if err != nil {
		return err
	}
	nonce, obtainToken := rand.Text(), o.browserLogin
	if o.device || config.Endpoint.AuthURL == "" {
		nonce, obtainToken = "", o.deviceLogin
	}
	token, err := obtainToken(ctx, config, nonce)
	if err != nil {
		return fmt.Errorf("login at %s: %w", o.issuer, cmp.Or(contextCause(ctx), err))
	}
	id, err := l.acceptToken(ctx, provider, token)
	if err != nil {
		return err
	}
	if nonce != "" && id.Nonce != nonce {
		return fmt.Errorf("login at %s: the token is for another login", o.issuer)
	}
	if err := o.f.withLogin(ctx, func(file string) error { return saveLogin(file, l) }); err != nil {
		return err
	}
	o.f.note("logged in as %s", nameFromToken(id))
	if l.Refresh == "" {
		o.f.note("%s issued no refresh token: the login is valid for one verb, until %s", o.issuer, l.Expiry.Local().Format(time.TimeOnly+" MST"))
	}
	return nil
}

// contextCause returns the reason why waiting ended, if it did.
func contextCause(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

// deviceLogin logs in with a code that the user enters on another device (RFC 8628).
func (o *loginOptions) deviceLogin(ctx context.Context, config *oauth2.Config, _ string) (*oauth2.Token, error) {
	if config.Endpoint.DeviceAuthURL == "" {
		return nil, errors.New("it does not support a login by another device")
	}
	device, err := config.DeviceAuth(ctx)
	if err != nil {
		return nil, err
	}
	o.f.note("open %s and enter the code %s", device.VerificationURI, device.UserCode)
	return config.DeviceAccessToken(ctx, device)
}

// browserLogin opens a page. The page redirects to this machine with a code that only the process that began the login can use (RFC 7636,
// 8252).
func (o *loginOptions) browserLogin(ctx context.Context, config *oauth2.Config, nonce string) (*oauth2.Token, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config.RedirectURL = "http://" + l.Addr().String() + "/"
	verifier, callback := oauth2.GenerateVerifier(), loginCallback{state: rand.Text(), answers: make(chan callbackResult, 1)}
	server := &http.Server{Handler: callback, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }() // ends when it is closed
	defer shutDown(server)
	o.f.note("open %s", config.AuthCodeURL(callback.state, oauth2.S256ChallengeOption(verifier), oidc.Nonce(nonce)))
	select {
	case answer := <-callback.answers:
		if answer.refusal != "" {
			return nil, fmt.Errorf("it was refused: %s", answer.refusal)
		}
		return config.Exchange(ctx, answer.code, oauth2.VerifierOption(verifier))
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// shutDown stops a server after it has sent the page that shows the result of the login.
func shutDown(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
}

// loginCallback handles the response to the login with this state, once.
type loginCallback struct {
	state   string
	answers chan callbackResult
}

// callbackResult is a code, or the reason why there is none (RFC 6749, 4.1.2.1).
type callbackResult struct{ code, refusal string }

// ServeHTTP implements http.Handler.
func (b loginCallback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	answer := callbackResult{code: r.FormValue("code"), refusal: strings.TrimSpace(r.FormValue("error") + " " + r.FormValue("error_description"))}
	if r.FormValue("state") != b.state || answer == (callbackResult{}) {
		http.Error(w, "this is not an answer to converge login", http.StatusBadRequest)
		return
	}
	select {
	case b.answers <- answer:
	default:
		http.Error(w, "this login has ended", http.StatusGone)
		return
	}
	if answer.refusal != "" {
		http.Error(w, "You are not logged in: "+entities.Visible(answer.refusal), http.StatusForbidden)
		return
	}
	fmt.Fprintln(w, "You are logged in; this page can be closed.")
}

// nameFromToken returns the owner of a token, for users.
func nameFromToken(id *oidc.IDToken) string {
	var claims struct {
		Email string `json:"email"`
	}
	_ = id.Claims(&claims) // on failure the subject is used
	return cmp.Or(claims.Email, id.Subject)
}

// login is the content of the login file.
type login struct {
	Issuer   string    `json:"issuer"`
	ClientID string    `json:"clientId"`
	Scopes   []string  `json:"scopes,omitempty"`
	Token    string    `json:"token,omitempty"` // not used yet
	Expiry   time.Time `json:"expiry,omitzero"` // expiry of the token
	Refresh  string    `json:"refresh,omitempty"`
}

func (l *login) config(ctx context.Context) (*oauth2.Config, *oidc.Provider, error) {
	provider, err := oidc.NewProvider(ctx, l.Issuer)
	if err != nil {
		return nil, nil, fmt.Errorf("issuer %s: %w", l.Issuer, cmp.Or(contextCause(ctx), err))
	}
	return &oauth2.Config{ClientID: l.ClientID, Endpoint: provider.Endpoint(), Scopes: append([]string{oidc.ScopeOpenID}, l.Scopes...)}, provider, nil
}

// acceptToken verifies the issuer's response, and stores it.
func (l *login) acceptToken(ctx context.Context, provider *oidc.Provider, token *oauth2.Token) (*oidc.IDToken, error) {
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return nil, fmt.Errorf("issuer %s answered without an ID token", l.Issuer)
	}
	id, err := provider.Verifier(&oidc.Config{ClientID: l.ClientID}).Verify(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("issuer %s: %w", l.Issuer, err)
	}
	l.Token, l.Expiry, l.Refresh = raw, id.Expiry, cmp.Or(token.RefreshToken, l.Refresh)
	return id, nil
}

// renew renews a login, so that it has an unused token.
func (l *login) renew(ctx context.Context, now time.Time) error {
	if l.Token != "" && now.Before(l.Expiry) {
		return nil
	}
	loginCommand := "converge login " + l.Issuer
	if l.Refresh == "" {
		reason := "your login was already used for a verb"
		if l.Token != "" {
			reason = "your login expired at " + l.Expiry.Local().Format(dateTime)
		}
		return fmt.Errorf("%s; log in again: %s", reason, loginCommand)
	}
	config, provider, err := l.config(ctx)
	if err != nil {
		return err
	}
	token, err := config.TokenSource(ctx, &oauth2.Token{RefreshToken: l.Refresh}).Token()
	if refused := new(oauth2.RetrieveError); errors.As(err, &refused) {
		return fmt.Errorf("your login has ended (%s); log in again: %s", cmp.Or(refused.ErrorCode, refused.Response.Status), loginCommand)
	}
	if err == nil {
		_, err = l.acceptToken(ctx, provider, token)
	}
	return err
}

func (l *login) bytes() []byte {
	data, _ := json.MarshalIndent(l, "", "  ") // texts and a time
	return append(data, '\n')
}
