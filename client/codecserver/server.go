// Package codecserver decrypts payloads for who may see them: for the stock temporal CLI (--codec-endpoint) and the
// Temporal UI. What they send it encrypts, where payloads are to be encrypted, and gives back as it is elsewhere: the stock
// CLI sends nothing, not even a query, that did not come by here.
package codecserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"go.temporal.io/sdk/converter"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/codec"
)

const (
	// shortestSecret is how much of a shared secret there must be, in bytes.
	shortestSecret = 20
	// mostAsked bounds a request, in bytes: a page of events.
	mostAsked = 16 << 20
)

// Options say who may have payloads decrypted, and encrypted.
type Options struct {
	Codec *codec.Codec
	// Identity and To are who may: OIDC ID tokens prove it. To has names, and groups as group:NAME.
	Identity entities.Identity
	To       []string
	// Secret is known to everybody who may, instead or beside.
	Secret string
	// Origins are the pages that a browser lets ask (https://temporal.shop.dev), Hosts the names under which it is asked
	// beside those of this machine.
	Origins, Hosts []string
}

// New makes the server. It is an error to let everybody ask, or nobody.
func New(o Options) (http.Handler, error) {
	for _, origin := range o.Origins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			return nil, fmt.Errorf("origin %q: expected https://HOST, as a browser names it", origin)
		}
	}
	proven := o.Identity.Issuer != ""
	switch {
	case !o.Codec.Keyed():
		return nil, errors.New("there is no key to decrypt with; name it by CONVERGE_STORE_KEY")
	case !proven && o.Secret == "":
		return nil, errors.New("nobody may ask yet; say who may: by an issuer of tokens, or by a secret")
	case o.Secret != "" && len(o.Secret) < shortestSecret:
		return nil, fmt.Errorf("the secret has %d bytes; expected %d at least", len(o.Secret), shortestSecret)
	case proven && (o.Identity.Audience == "" || len(o.To) == 0):
		return nil, errors.New("an issuer takes an audience, and the people or groups who may ask")
	}
	s := &server{Options: o, activities: &activities.Activities{}, codec: converter.NewPayloadCodecHTTPHandler(o.Codec)}
	return s, nil
}

type server struct {
	Options
	activities *activities.Activities // which verify tokens
	codec      http.Handler
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.named(r.Host) {
		http.Error(w, "this server does not go by that name; it is told its names by --host", http.StatusMisdirectedRequest)
		return
	}
	if !s.fromKnownPage(w, r) {
		return
	}
	switch {
	case r.Method == http.MethodOptions:
		w.WriteHeader(http.StatusNoContent)
	case r.Method != http.MethodPost || r.URL.Path != "/decode" && r.URL.Path != "/encode":
		http.NotFound(w, r)
	default:
		s.serve(w, r)
	}
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	if err := s.allowed(r.Context(), r.Header.Get("Authorization")); err != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	r.Body = http.MaxBytesReader(w, r.Body, mostAsked)
	s.codec.ServeHTTP(w, r)
}

// fromKnownPage tells whether a request may be answered to the page that it comes from, if it comes from one.
func (s *server) fromKnownPage(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	w.Header().Add("Vary", "Origin")
	switch {
	case origin == "":
		return true
	case !slices.Contains(s.Origins, origin):
		http.Error(w, "pages of that origin may not ask; those that may are named by --origin", http.StatusForbidden)
		return false
	}
	w.Header().Set("Access-Control-Allow-Origin", origin)
	w.Header().Set("Access-Control-Allow-Methods", "POST, OPTIONS")
	w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Namespace")
	return true
}

// named tells whether a Host header means this server. A page whose name somebody makes mean this machine (DNS rebinding)
// would else be of the same origin.
func (s *server) named(host string) bool {
	name := host
	if before, _, err := net.SplitHostPort(host); err == nil {
		name = before
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	return strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback() ||
		slices.ContainsFunc(s.Hosts, func(known string) bool { return strings.EqualFold(known, name) || strings.EqualFold(known, host) })
}

// allowed is nil when the header Authorization proves that somebody may ask.
func (s *server) allowed(ctx context.Context, authorization string) error {
	kind, token, _ := strings.Cut(authorization, " ")
	if token == "" || !strings.EqualFold(kind, "Bearer") {
		return errors.New("say who asks: Authorization: Bearer TOKEN")
	}
	if s.Secret != "" && same(token, s.Secret) {
		return nil
	}
	if s.Identity.Issuer == "" {
		return errors.New("that is not the secret")
	}
	who, err := s.activities.Whose(ctx, s.Identity, token)
	if err != nil {
		return err
	}
	if !who.Among(s.To) {
		return fmt.Errorf("%s may not read payloads here", who.Name)
	}
	return nil
}

// same compares two texts in a time that tells nothing about them.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
