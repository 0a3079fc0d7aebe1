// Package codecserver decrypts payloads for authorized clients: the standard temporal CLI (--codec-endpoint) and the Temporal UI. It
// encrypts the payloads that they send if encryption is configured, and otherwise returns them unchanged: the standard CLI passes
// everything that it sends through this server, even a query.
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
	// minSecretBytes is the minimum length of a shared secret, in bytes.
	minSecretBytes = 20
	// maxRequestBytes is the limit of a request, in bytes: a page of events.
	maxRequestBytes = 16 << 20
)

// Options define who may decrypt and encrypt payloads.
type Options struct {
	Codec *codec.Codec
	// Identity and To define the authorized callers, proven by OIDC ID tokens. To has names, and groups as group:NAME.
	Identity entities.Identity
	To       []string
	// Secret is shared by all authorized callers, instead of tokens or in addition.
	Secret string
	// Origins are the pages that a browser allows to send requests (https://temporal.shop.dev). Hosts are the names of this server, in
	// addition to those of this machine.
	Origins, Hosts []string
}

// New makes the server. Options that allow everyone, or no one, are an error.
func New(o Options) (http.Handler, error) {
	for _, origin := range o.Origins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			return nil, fmt.Errorf("origin %q: expected https://HOST, as a browser names it", origin)
		}
	}
	hasIssuer := o.Identity.Issuer != ""
	switch {
	case !o.Codec.Keyed():
		return nil, errors.New("no key to decrypt with; set CONVERGE_STORE_KEY")
	case !hasIssuer && o.Secret == "":
		return nil, errors.New("no caller is allowed; set a token issuer or a secret")
	case o.Secret != "" && len(o.Secret) < minSecretBytes:
		return nil, fmt.Errorf("the secret has %d bytes; expected at least %d", len(o.Secret), minSecretBytes)
	case hasIssuer && (o.Identity.Audience == "" || len(o.To) == 0):
		return nil, errors.New("an issuer requires an audience and the allowed people or groups")
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
	if !s.isKnownHost(r.Host) {
		http.Error(w, "unknown host name; allow it with --host", http.StatusMisdirectedRequest)
		return
	}
	if !s.checkOrigin(w, r) {
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
	if err := s.authorize(r.Context(), r.Header.Get("Authorization")); err != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	r.Body = http.MaxBytesReader(w, r.Body, maxRequestBytes)
	s.codec.ServeHTTP(w, r)
}

// checkOrigin reports whether a request comes from an allowed page, or from no page.
func (s *server) checkOrigin(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	w.Header().Add("Vary", "Origin")
	switch {
	case origin == "":
		return true
	case !slices.Contains(s.Origins, origin):
		http.Error(w, "the origin is not allowed; allow it with --origin", http.StatusForbidden)
		return false
	}
	w.Header().Set("Access-Control-Allow-Origin", origin)
	w.Header().Set("Access-Control-Allow-Methods", "POST, OPTIONS")
	w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Namespace")
	return true
}

// isKnownHost reports whether a Host header means this server. Otherwise a page whose name resolves to this machine (DNS rebinding) would
// have the same origin.
func (s *server) isKnownHost(host string) bool {
	name := host
	if before, _, err := net.SplitHostPort(host); err == nil {
		name = before
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	return strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback() ||
		slices.ContainsFunc(s.Hosts, func(known string) bool { return strings.EqualFold(known, name) || strings.EqualFold(known, host) })
}

// authorize returns nil if the Authorization header proves that the caller is authorized.
func (s *server) authorize(ctx context.Context, authorization string) error {
	kind, token, _ := strings.Cut(authorization, " ")
	if token == "" || !strings.EqualFold(kind, "Bearer") {
		return errors.New("missing credentials; expected Authorization: Bearer TOKEN")
	}
	if s.Secret != "" && equalSecrets(token, s.Secret) {
		return nil
	}
	if s.Identity.Issuer == "" {
		return errors.New("wrong secret")
	}
	who, err := s.activities.Identify(ctx, s.Identity, token)
	if err != nil {
		return err
	}
	if !who.IsOneOf(s.To) {
		return fmt.Errorf("%s may not read payloads here", who.Name)
	}
	return nil
}

// equalSecrets compares two texts in constant time.
func equalSecrets(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
