package session

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/converge-engine/converge/entities"
)

// The paths of the sign-in.
const (
	loginPath  = "/login"
	donePath   = "/login/done"
	logoutPath = "/logout"
)

// flowTime is how long a person may take at the issuer.
const flowTime = 10 * time.Minute

// flow is a way to the issuer and back, as a cookie of the browser keeps it.
type flow struct {
	State    string    `json:"state"`
	Verifier string    `json:"verifier"`
	Nonce    string    `json:"nonce"`
	ReturnTo string    `json:"returnTo,omitempty"`
	Act      []byte    `json:"act,omitempty"`
	Silent   bool      `json:"silent,omitempty"` // the issuer shows nothing
	At       time.Time `json:"at"`
}

// Act is what the issuer signs.
type Act struct {
	Nonce string // protocol.Act.Nonce
	Data  []byte // what the server needs to carry it out
}

// Signed is an act that comes back from the issuer.
type Signed struct {
	Data    []byte
	Who     entities.Who
	Token   string
	Refused string // why it is not signed
}

// Pages are what the sign-in shows.
type Pages struct {
	Finish  func(http.ResponseWriter, *http.Request, Signed)
	Problem func(w http.ResponseWriter, r *http.Request, status int, text string)
}

// Mount adds the paths of the sign-in.
func (s *Sessions) Mount(mux *http.ServeMux, p Pages) {
	mux.HandleFunc("GET "+loginPath, func(w http.ResponseWriter, r *http.Request) {
		if host := strings.TrimSuffix(r.Host, ":80"); s.Base.Scheme == "http" && host != strings.TrimSuffix(s.Base.Host, ":80") {
			http.Redirect(w, r, s.Base.String()+r.URL.RequestURI(), http.StatusSeeOther) // another name of this machine: cookies are of one name
			return
		}
		err := s.begin(w, r, flow{Nonce: rand.Text(), ReturnTo: localPath(r.URL.Query().Get("return_to"))})
		if err != nil {
			p.Problem(w, r, http.StatusServiceUnavailable, err.Error())
		}
	})
	mux.HandleFunc("GET /login/check", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }) // 401 without a session
	mux.HandleFunc("GET "+donePath, func(w http.ResponseWriter, r *http.Request) { s.done(w, r, p) })
	mux.HandleFunc("POST "+logoutPath, func(w http.ResponseWriter, r *http.Request) {
		s.setCookie(w, s.cookieName(), "/", "", -time.Second)
		p.Problem(w, r, http.StatusOK, "You are signed out here. The issuer may still know you.")
	})
}

// localPath returns a path of this server, or "/" for anything else.
func localPath(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") ||
		strings.ContainsAny(text, "\\\r\n") || strings.HasPrefix(u.Path, loginPath) {
		return "/"
	}
	return text
}

// Sign sends a browser to the issuer for a token for one act. An issuer that knows the person shows nothing.
func (s *Sessions) Sign(w http.ResponseWriter, r *http.Request, a Act) error {
	_, known := s.current(r)
	return s.begin(w, r, flow{Nonce: a.Nonce, Act: a.Data, Silent: known})
}

// flowSlots is how many ways to the issuer a browser can be on at once: a newer one takes the place of an older one.
const flowSlots = "01234567"

// flowCookie is the name of the cookie of a state.
func flowCookie(state string) string {
	return "converge-login-" + string(flowSlots[int(state[0])%len(flowSlots)])
}

// begin sends a browser to the issuer.
func (s *Sessions) begin(w http.ResponseWriter, r *http.Request, f flow) error {
	_, config, err := s.discovered(r.Context())
	if err != nil {
		return fmt.Errorf("the issuer does not answer: %w", err)
	}
	f.State, f.Verifier, f.At = rand.Text(), oauth2.GenerateVerifier(), s.Now()
	value, err := s.Keys.seal(kindFlow, f)
	if err != nil {
		return err
	}
	if len(value) > maxCookie {
		return errors.New("the act is too large for a browser to keep; expected a shorter one, or converge --sign")
	}
	s.setCookie(w, flowCookie(f.State), donePath, value, flowTime)
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(f.Verifier), oidc.Nonce(f.Nonce)}
	if f.Silent {
		options = append(options, oauth2.SetAuthURLParam("prompt", "none"))
	}
	http.Redirect(w, r, config.AuthCodeURL(f.State, options...), http.StatusSeeOther)
	return nil
}

// silentErrors are those of an issuer that would have to show something (OpenID Connect Core, 3.1.2.6).
var silentErrors = []string{"login_required", "interaction_required", "consent_required", "account_selection_required"}

// done takes the answer of the issuer, once.
func (s *Sessions) done(w http.ResponseWriter, r *http.Request, p Pages) {
	q := r.URL.Query()
	f, ok := s.takeFlow(w, r, q.Get("state"))
	if !ok {
		p.Problem(w, r, http.StatusBadRequest, "This sign-in is not known here: it was used before, or took longer than ten minutes. Nothing was done.")
		return
	}
	if f.Silent && slices.Contains(silentErrors, q.Get("error")) {
		f.Silent = false
		if err := s.begin(w, r, f); err != nil {
			p.Problem(w, r, http.StatusServiceUnavailable, err.Error())
		}
		return
	}
	who, token, err := s.exchange(r.Context(), f, q)
	before, was := s.current(r)
	switch {
	case err == nil && f.Act != nil && was && before.Who.Subject != who.Subject:
		err = fmt.Errorf("the issuer says that you are %s, and the page was of %s", who.Name, before.Who.Name)
	case err == nil:
		s.keep(w, kept{Who: who, At: s.Now(), Seen: s.Now()})
	}
	switch {
	case f.Act != nil && err != nil:
		p.Finish(w, r, Signed{Data: f.Act, Who: before.Who, Refused: "it was not signed: " + errorText(err)})
	case f.Act != nil:
		p.Finish(w, r.WithContext(With(r.Context(), who)), Signed{Data: f.Act, Who: who, Token: token})
	case err != nil:
		p.Problem(w, r, http.StatusForbidden, "You are not signed in: "+entities.Visible(errorText(err)))
	default:
		http.Redirect(w, r, f.ReturnTo, http.StatusSeeOther)
	}
}

// takeFlow returns the way that a browser was on. It ends here.
func (s *Sessions) takeFlow(w http.ResponseWriter, r *http.Request, state string) (f flow, ok bool) {
	if state == "" {
		return flow{}, false
	}
	c, err := r.Cookie(flowCookie(state))
	if err != nil || !s.Keys.open(kindFlow, c.Value, &f) || subtle.ConstantTimeCompare([]byte(f.State), []byte(state)) == 0 {
		return flow{}, false
	}
	s.setCookie(w, c.Name, donePath, "", -time.Second)
	return f, s.Now().Sub(f.At) < flowTime
}

// exchange returns who the person is, and their token.
func (s *Sessions) exchange(ctx context.Context, f flow, answer url.Values) (who entities.Who, token string, err error) {
	if refusal := strings.TrimSpace(answer.Get("error") + " " + answer.Get("error_description")); refusal != "" {
		return who, "", fmt.Errorf("the issuer refused: %s", entities.Clip(entities.Visible(refusal), 300))
	}
	provider, config, err := s.discovered(ctx)
	if err != nil {
		return who, "", fmt.Errorf("the issuer does not answer: %w", err)
	}
	answered, err := config.Exchange(withTimeout(ctx), answer.Get("code"), oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return who, "", fmt.Errorf("the issuer gave no token: %w", err)
	}
	token, ok := answered.Extra("id_token").(string)
	if !ok {
		return who, "", errors.New("the issuer gave no ID token")
	}
	id, err := provider.Verifier(&oidc.Config{ClientID: s.ClientID, Now: s.Now}).Verify(ctx, token)
	if err != nil {
		return who, "", err
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(f.Nonce)) == 0 {
		return who, "", errors.New("the issuer's token is for something else")
	}
	who, err = s.activities.Identify(ctx, s.identity(s.ClientID), token)
	return who, token, err
}
