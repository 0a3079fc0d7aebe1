// Package session knows who a browser or a program is: people sign in at an OIDC issuer (authorization code with PKCE), and a sealed cookie
// keeps who they are; programs send an ID token with each request. The issuer also signs what a person does: it issues a token for one act
// (entities/protocol.Act), which the receiver of the act verifies. So neither this server nor a stolen cookie can act for a person where the
// rules demand such a token.
package session

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/oauth2"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/client/api"
	"github.com/converge-engine/converge/entities"
)

// Options are those of the sign-in.
type Options struct {
	Issuer       string   // its URL
	ClientID     string   // of this server at the issuer
	ClientSecret string   // empty: a public client
	Audience     string   // of the tokens of programs; empty: the client id
	Scopes       []string // in addition to openid
	UserClaim    string   // the claim that names a person, as in the identity of the applications; empty: email, or else sub
	GroupsClaim  string   // empty: groups
	Keys         Keys
	Base         *url.URL // of this server
	Now          func() time.Time
}

// How long a person stays signed in.
const (
	idle    = 2 * time.Hour  // without a request
	longest = 12 * time.Hour // in all: then the issuer says again who it is, and in which groups
	renewal = 5 * time.Minute
)

// StreamTime is how long a stream of events of a person lasts: then it begins again, so that a sign-out is noticed.
const StreamTime = 50 * time.Second

const issuerTimeout = 10 * time.Second // for one request

// Sessions signs people in.
type Sessions struct {
	Options
	activities activities.Activities // verifies tokens

	mu       sync.Mutex
	provider *oidc.Provider // nil: the issuer has not answered yet
}

// New returns the sessions of a server. The issuer is requested when the first person signs in.
func New(o Options) (*Sessions, error) {
	u, err := url.Parse(o.Issuer)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, errors.New("the issuer " + o.Issuer + " is no URL; expected such as https://id.shop.dev")
	}
	if o.ClientID == "" {
		return nil, errors.New("an issuer needs the id of a client at it")
	}
	if o.Audience == "" {
		o.Audience = o.ClientID
	}
	return &Sessions{Options: o}, nil
}

// Origin is that of the issuer, for the policy of pages whose forms lead there.
func (s *Sessions) Origin() string {
	u, err := url.Parse(s.Issuer)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// discovered returns the issuer, once it has answered.
func (s *Sessions) discovered(ctx context.Context) (*oidc.Provider, *oauth2.Config, error) {
	s.mu.Lock()
	provider := s.provider
	s.mu.Unlock()
	if provider == nil {
		found, err := oidc.NewProvider(withTimeout(context.WithoutCancel(ctx)), s.Issuer)
		if err != nil {
			return nil, nil, err
		}
		s.mu.Lock()
		provider, s.provider = found, found
		s.mu.Unlock()
	}
	return provider, &oauth2.Config{
		ClientID: s.ClientID, ClientSecret: s.ClientSecret, Endpoint: provider.Endpoint(), RedirectURL: s.Base.String() + donePath,
		Scopes: append([]string{oidc.ScopeOpenID}, s.Scopes...),
	}, nil
}

// withTimeout limits the requests to an issuer.
func withTimeout(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, &http.Client{Timeout: issuerTimeout})
}

// kept is what the cookie of a person keeps.
type kept struct {
	Who  entities.Who `json:"who"`
	At   time.Time    `json:"at"`   // of the sign-in
	Seen time.Time    `json:"seen"` // of a request
}

// The kinds of cookies.
const (
	kindSession = "session"
	kindFlow    = "flow"
)

// cookieName is the name of the cookie of a person. A browser accepts the prefix from this host alone, over TLS.
func (s *Sessions) cookieName() string {
	if s.Base.Scheme == "https" {
		return "__Host-converge-session"
	}
	return "converge-session"
}

// maxCookie is how much browsers keep in a cookie, with its name and attributes.
const maxCookie = 3800

// keep makes a browser send who the person is. A person of so many groups that a cookie cannot keep them is kept with fewer: that is less
// than they may.
func (s *Sessions) keep(w http.ResponseWriter, k kept) {
	for {
		value, err := s.Keys.seal(kindSession, k)
		if err == nil && len(value) <= maxCookie {
			s.setCookie(w, s.cookieName(), "/", value, longest)
			return
		}
		if len(k.Who.Groups) == 0 {
			return
		}
		left := len(k.Who.Groups) / 2
		k.Who.MoreGroups += len(k.Who.Groups) - left
		k.Who.Groups = k.Who.Groups[:left]
	}
}

// setCookie sets a cookie that no script reads. It is sent along when the issuer sends the browser back.
func (s *Sessions) setCookie(w http.ResponseWriter, name, path, value string, lasts time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: path, MaxAge: int(lasts.Seconds()), HttpOnly: true, Secure: s.Base.Scheme == "https", SameSite: http.SameSiteLaxMode,
	})
}

func (s *Sessions) current(r *http.Request) (k kept, ok bool) {
	c, err := r.Cookie(s.cookieName())
	if err != nil || !s.Keys.open(kindSession, c.Value, &k) {
		return kept{}, false
	}
	now := s.Now()
	return k, now.Sub(k.At) < longest && now.Sub(k.Seen) < idle
}

type contextKey struct{}

// With returns a context of a request of a known sender.
func With(ctx context.Context, who entities.Who) context.Context {
	return context.WithValue(ctx, contextKey{}, who)
}

// From returns who sent a request.
func From(ctx context.Context) (who entities.Who, known bool) {
	who, known = ctx.Value(contextKey{}).(entities.Who)
	return who, known
}

// Require lets only those who are known in: a browser is sent to the issuer, and a program gets a problem. Forms of acts pass without:
// the issuer says who sends one, if the server does not know it any more.
func (s *Sessions) Require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, known, why := s.identify(r)
		switch {
		case known:
			s.renew(w, r)
			r = r.WithContext(With(r.Context(), who))
		case isOpen(r):
		case strings.HasPrefix(r.URL.Path, "/api/"):
			w.Header().Set("WWW-Authenticate", "Bearer")
			api.NewProblem(api.Unauthenticated, errors.New(why)).Write(w)
			return
		case r.Method == http.MethodGet && isNavigation(r):
			http.Redirect(w, r, loginPath+"?"+url.Values{"return_to": {r.URL.RequestURI()}}.Encode(), http.StatusSeeOther)
			return
		default:
			http.Error(w, why, http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOpen reports whether a request is answered to everybody.
func isOpen(r *http.Request) bool {
	switch path := r.URL.Path; path {
	case "/healthz", "/readyz", loginPath, donePath, logoutPath, "/api/v1/openapi.json":
		return true
	default:
		return strings.HasPrefix(path, "/static/") || r.Method == http.MethodPost && strings.Contains(path, "/act/") && !strings.HasPrefix(path, "/api/")
	}
}

// isNavigation reports whether a person follows a link, and not a script that reads a page again.
func isNavigation(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return mode == "" || mode == "navigate"
}

// identify returns who sent a request: by the token in its header, or else by its cookie.
func (s *Sessions) identify(r *http.Request) (who entities.Who, known bool, why string) {
	if scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " "); found && strings.EqualFold(scheme, "Bearer") {
		who, err := s.activities.Identify(r.Context(), s.identity(s.Audience), strings.TrimSpace(token))
		if err != nil {
			return entities.Who{}, false, errorText(err)
		}
		return who, true, ""
	}
	if k, ok := s.current(r); ok {
		return k.Who, true, ""
	}
	return entities.Who{}, false, "you are signed out; expected a sign-in at " + s.Base.String() + loginPath + ", or an ID token of " + s.Issuer + " for " + s.Audience + " in the header Authorization"
}

// errorText is the message of an error without what Temporal adds.
func errorText(err error) string {
	var stated *temporal.ApplicationError
	if errors.As(err, &stated) {
		return stated.Message()
	}
	return err.Error()
}

// identity is how tokens for an audience name people.
func (s *Sessions) identity(audience string) entities.Identity {
	return entities.Identity{Issuer: s.Issuer, Audience: audience, UserClaim: s.UserClaim, GroupsClaim: s.GroupsClaim}
}

// renew notes that a person is there. Requests of a page's script say nothing about that.
func (s *Sessions) renew(w http.ResponseWriter, r *http.Request) {
	k, ok := s.current(r)
	if now := s.Now(); ok && isNavigation(r) && !strings.HasPrefix(r.URL.Path, "/api/") && now.Sub(k.Seen) > renewal {
		k.Seen = now
		s.keep(w, k)
	}
}
