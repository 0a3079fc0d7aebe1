package activities

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

const (
	keysTTL         = 5 * time.Minute // a key that the issuer revoked is trusted no longer than that
	issuerTimeout   = 4 * time.Second // timeout of one request to an issuer
	maxName         = 256             // of a name or a group, in bytes
	maxGroups       = 200
	maxToken        = 16 << 10
	maxClockSkew    = time.Minute            // tolerated clock difference to an issuer
	maxRequestDelay = 23 * time.Hour         // maximum delay of a request whose token could not be verified when it came
	useTokenTimeout = 500 * time.Millisecond // timeout to record the use of a token; the workflow task waits for it
)

// signatures are the accepted signature algorithms of tokens. Those with a shared key (HS256) and "none" are excluded.
var signatures = [...]string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// Verify returns the identity that an OIDC ID token proves (A14), and uses the token up for this one request (G3). A token that is
// invalid, or was used for another request, is rejected with the reason. If an issuer or the store is unreachable, the token is not
// rejected; the error is retryable.
func (a *Activities) Verify(ctx context.Context, r protocol.VerifyRequest) (protocol.VerifyAnswer, error) {
	return a.verify(ctx, r, time.Now())
}

func (a *Activities) verify(ctx context.Context, r protocol.VerifyRequest, now time.Time) (protocol.VerifyAnswer, error) {
	token, err := a.verifyToken(ctx, r, asOf(r.At, now))
	if err != nil {
		return protocol.VerifyAnswer{}, err
	}
	var payload json.RawMessage
	if err := token.Claims(&payload); err != nil {
		return protocol.VerifyAnswer{}, claimsError(err)
	}
	who, err := identityIn(r.Identity, token)
	if err == nil {
		err = checkBound(r, token, who, asOf(r.At, now))
	}
	if err != nil {
		return protocol.VerifyAnswer{}, err
	}
	return protocol.VerifyAnswer{Who: who}, a.useToken(ctx, r, payload, lastValidTime(token), now)
}

// maxBoundAge is how long a token for one act serves it after its issue: the person acts now.
const maxBoundAge = 5 * time.Minute

// checkBound rejects a token that was issued for another act, and one that was issued for no act where that is required.
func checkBound(r protocol.VerifyRequest, token *oidc.IDToken, who entities.Who, at time.Time) error {
	acts := boundActs(token.Nonce, token.Audience, r.Identity.Audience)
	isBound := len(acts) > 0
	switch {
	case isBound && r.NoNonce != "":
		return refuse("the token was issued for another act: %s", r.NoNonce)
	case slices.ContainsFunc(acts, func(act string) bool { return act != r.Nonce }):
		return refuse("the token was issued for another act than this one")
	case isBound && at.Sub(token.IssuedAt) > maxBoundAge:
		return refuse("the token was issued for this act at %s, which is more than %s ago", token.IssuedAt.UTC().Format(time.RFC3339), maxBoundAge)
	case !isBound && r.Bound && !who.IsOneOf(r.Identity.BoundExcept):
		return refuse("the token was issued for no act, and this needs one that was issued for it (identity.bound): act on the board, or with --sign")
	}
	return nil
}

// boundActs returns the acts that a token was issued for: its nonce names one, or an audience, after the own one and "#". An issuer of CI lets a
// job choose the audience of a token, and takes no nonce.
func boundActs(nonce string, audiences []string, own string) (acts []string) {
	if strings.HasPrefix(nonce, protocol.ActNonce) {
		acts = append(acts, nonce)
	}
	for _, audience := range audiences {
		if act, found := strings.CutPrefix(audience, own+"#"); found && strings.HasPrefix(act, protocol.ActNonce) {
			acts = append(acts, act)
		}
	}
	return acts
}

// audienceOf returns the audience of a token that is the own one, or the own one with an act; "": there is none.
func audienceOf(audiences []string, own string) string {
	n := slices.IndexFunc(audiences, func(audience string) bool { return audience == own || boundActs("", []string{audience}, own) != nil })
	if n < 0 {
		return ""
	}
	return audiences[n]
}

// asOf returns the time at which a token had to be valid: the arrival of its request. The use of a token is recorded for a day after it
// expired, so asOf goes back less far than that.
func asOf(arrived, now time.Time) time.Time {
	if arrived.IsZero() || arrived.After(now) {
		return now
	}
	if earliest := now.Add(-maxRequestDelay); arrived.Before(earliest) {
		return earliest
	}
	return arrived
}

// Identify returns the identity that a token proves, as Verify does. It changes nothing and does not use the token up.
func (a *Activities) Identify(ctx context.Context, identity entities.Identity, token string) (entities.Who, error) {
	verified, err := a.verifyToken(ctx, protocol.VerifyRequest{Identity: identity, Token: token}, time.Now())
	if err != nil {
		return entities.Who{}, err
	}
	if boundActs("", verified.Audience, identity.Audience) != nil {
		return entities.Who{}, refuse("the token was issued for one act; expected one whose audience is %q alone", identity.Audience)
	}
	return identityIn(identity, verified)
}

func identityIn(identity entities.Identity, token *oidc.IDToken) (entities.Who, error) {
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return entities.Who{}, claimsError(err)
	}
	return identityFrom(identity, claims)
}

func claimsError(err error) error { return refuse("the token's claims cannot be read: %s", err) }

// lastValidTime returns the time after which a token is rejected, whatever its expiry. It depends on the token only, so it is the same
// under all rules; the record of its use is found by it.
func lastValidTime(token *oidc.IDToken) time.Time {
	if latest := token.IssuedAt.Add(entities.MaxTokenAge); token.Expiry.After(latest) {
		return latest
	}
	return token.Expiry
}

// useToken uses a token up for a request. The token's payload is its key, because signature and encoding can be written in several ways.
// The record is kept as long as the token may be valid.
func (a *Activities) useToken(ctx context.Context, r protocol.VerifyRequest, payload []byte, until, now time.Time) error {
	if r.RequestID == "" {
		return refuse("a token is valid for one request, and this one has no request id")
	}
	useCtx, cancel := context.WithTimeout(ctx, useTokenTimeout)
	defer cancel()
	use := protocol.TokenUse{RequestID: r.RequestID, RequestDigest: r.RequestDigest, At: now.UTC()}
	stored, err := a.Store.UseToken(useCtx, payload, until, use)
	switch {
	case store.IsDamaged(err):
		return refuse("the record of the token's use is damaged (%s); get a new one", err)
	case err != nil && r.Urgent:
		return nil
	case err != nil:
		return temporal.NewNonRetryableApplicationError(err.Error(), protocol.ErrStore, nil)
	case !stored.Serves(r.RequestID, r.RequestDigest):
		return refuse("the token was used for another request at %s; get a new one", stored.At.Format(time.RFC3339))
	}
	return nil
}

// verifyToken returns a token that meets all requirements of the identity.
func (a *Activities) verifyToken(ctx context.Context, r protocol.VerifyRequest, now time.Time) (*oidc.IDToken, error) {
	audience, err := checkClaims(r, now)
	if err != nil {
		return nil, err
	}
	keys, err := a.issuers.keys(ctx, r.Identity, time.Now())
	if err != nil {
		return nil, err
	}
	keySet := &recordingKeySet{KeySet: keys}
	token, err := oidc.NewVerifier(r.Identity.Issuer, keySet, &oidc.Config{
		ClientID: audience, SupportedSigningAlgs: signatures[:], Now: func() time.Time { return now },
	}).Verify(ctx, r.Token)
	if keySet.fetchErr != nil {
		return nil, issuerError(r.Identity.Issuer, keySet.fetchErr)
	}
	if err != nil {
		var expired *oidc.TokenExpiredError
		switch {
		case errors.As(err, &expired):
			return nil, refuse("the token expired at %s; get a new one", expired.Expiry.UTC().Format(time.RFC3339))
		case keySet.forged:
			return nil, refuse("the token's signature is not valid: it is forged, or %s has revoked the key that signed it; get a new one", r.Identity.Issuer)
		}
		return nil, refuse("the token is not valid: %s", strings.TrimPrefix(err.Error(), "oidc: "))
	}
	return token, checkAge(token, r.Identity.Age(), now)
}

// checkAge rejects a token that was issued too long ago, even if it has not expired, or that has no issue time.
func checkAge(token *oidc.IDToken, age time.Duration, now time.Time) error {
	switch at := token.IssuedAt; {
	case at.Unix() <= 0:
		return refuse("the token has no issue time: expected the claim iat")
	case at.After(now.Add(maxClockSkew)):
		return refuse("the token was issued at %s, which is in the future", at.UTC().Format(time.RFC3339))
	case now.Sub(at) > age:
		return refuse("the token was issued at %s; the maximum age is %s; get a new one", at.UTC().Format(time.RFC3339), age)
	}
	return nil
}

// claims are the parts of a token that are read before its verification, for clear error messages. They are not trusted: the library
// checks them all again.
type claims struct {
	Issuer   string          `json:"iss"`
	Audience json.RawMessage `json:"aud"`
	Expiry   *float64        `json:"exp"`
}

// checkClaims returns the audience that makes the token one for us.
func checkClaims(r protocol.VerifyRequest, now time.Time) (audience string, _ error) {
	if r.Identity.Issuer == "" || r.Identity.Audience == "" {
		return "", refuse("a token was given, but the application's identity names no issuer or no audience to check it against")
	}
	parts := strings.Split(r.Token, ".")
	if len(r.Token) > maxToken || len(parts) != 3 {
		return "", refuse("the token is not an ID token: expected a JWT, three parts with dots between them, of at most %d bytes", maxToken)
	}
	var header struct {
		Algorithm string `json:"alg"`
	}
	var c claims
	if decodePart(parts[0], &header) != nil || decodePart(parts[1], &c) != nil {
		return "", refuse("the token is not an ID token: its parts are not JSON in base64url")
	}
	if !slices.Contains(signatures[:], header.Algorithm) {
		return "", refuse("the token is signed with %q; expected one of %s", clip(header.Algorithm), strings.Join(signatures[:], ", "))
	}
	if c.Issuer != r.Identity.Issuer {
		return "", refuse("the token is issued by %q, expected %q", clip(c.Issuer), r.Identity.Issuer)
	}
	if audience = audienceOf(texts(c.Audience), r.Identity.Audience); audience == "" {
		return "", refuse("the token is for the audience %s, expected %q", clip(string(c.Audience)), r.Identity.Audience)
	}
	if c.Expiry == nil {
		return "", refuse("the token has no expiry time: expected the claim exp")
	}
	if at := time.Unix(int64(*c.Expiry), 0); at.Before(now) {
		return "", refuse("the token expired at %s; get a new one", at.UTC().Format(time.RFC3339))
	}
	return audience, nil
}

func decodePart(part string, into any) error {
	data, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// texts reads a claim that is a string or a list of strings.
func texts(raw json.RawMessage) []string {
	var one string
	if json.Unmarshal(raw, &one) == nil && one != "" {
		return []string{one}
	}
	var all []string
	_ = json.Unmarshal(raw, &all) // any other value yields no names
	return all
}

func clip(text string) string { return runtimes.Clip(text, maxName) }

const email = "email" // the claim

// identityFrom returns the identity in a verified token. An address that the issuer has not verified is not accepted as a name.
func identityFrom(identity entities.Identity, claims map[string]any) (entities.Who, error) {
	subject, _ := claims["sub"].(string)
	if subject == "" || len(subject) > maxName {
		return entities.Who{}, refuse("the token does not identify its holder: expected the claim sub, a text of at most %d bytes", maxName)
	}
	name, err := holderName(identity, claims)
	if err != nil {
		return entities.Who{}, err
	}
	who := entities.Who{Name: name, Proven: true, Subject: identity.Issuer + " " + subject}
	claim := identity.GroupsClaim
	if claim == "" {
		claim = "groups"
	}
	raw, err := json.Marshal(claims[claim])
	if err != nil {
		return entities.Who{}, refuse("the token's claim %s cannot be read: %s", claim, err)
	}
	for _, group := range texts(raw) {
		switch {
		case group == "" || len(group) > maxName || entities.CheckName(group) != nil:
		case len(who.Groups) == maxGroups:
			who.MoreGroups++
		default:
			who.Groups = append(who.Groups, group)
		}
	}
	return who, nil
}

// holderName returns the name of a token's holder. An address that its issuer has not verified is not accepted.
func holderName(identity entities.Identity, claims map[string]any) (string, error) {
	verified := claims["email_verified"] == true || claims["email_verified"] == "true"
	if identity.UserClaim == email && !verified {
		return "", refuse("the token's email is not accepted as a name: its issuer has not verified it (email_verified)")
	}
	names := []string{identity.UserClaim}
	if identity.UserClaim == "" {
		names = []string{email, "sub"}
	}
	var name string
	for _, claim := range names {
		if name, _ = claims[claim].(string); name != "" && (claim != email || verified) {
			break
		}
	}
	if name == "" || len(name) > maxName {
		return "", refuse("the token does not name its holder: expected the claim %s, a text of at most %d bytes", strings.Join(names, " or "), maxName)
	}
	if err := entities.CheckName(name); err != nil {
		return "", refuse("the token's holder could be mistaken for another person: %s", err)
	}
	return name, nil
}

// issuers caches the keys of issuers. The zero value is empty.
type issuers struct {
	mu    sync.Mutex
	known map[string]issuerKeys // by issuer and the URL of its keys
}

type issuerKeys struct {
	oidc.KeySet
	until time.Time
}

// keys returns the keys of an issuer. It finds them by discovery unless their URL is configured.
func (i *issuers) keys(ctx context.Context, identity entities.Identity, now time.Time) (oidc.KeySet, error) {
	name := identity.Issuer + " " + identity.KeysURL
	i.mu.Lock()
	cached, ok := i.known[name]
	i.mu.Unlock()
	if ok && now.Before(cached.until) {
		return cached.KeySet, nil
	}
	ctx = oidc.ClientContext(ctx, &http.Client{Timeout: issuerTimeout})
	url := identity.KeysURL
	if url == "" {
		provider, err := oidc.NewProvider(ctx, identity.Issuer)
		if errors.As(err, new(*oidc.IssuerMismatchError)) {
			return nil, refuse("identity's issuer is %q, but its discovery document has another name: %s", identity.Issuer, strings.TrimPrefix(err.Error(), "oidc: "))
		}
		if err != nil {
			return nil, issuerError(identity.Issuer, err)
		}
		var document struct {
			KeysURL string `json:"jwks_uri"`
		}
		if err := provider.Claims(&document); err != nil || document.KeysURL == "" {
			return nil, issuerError(identity.Issuer, errors.New("its discovery document lacks jwks_uri"))
		}
		url = document.KeysURL
	}
	fetched := issuerKeys{oidc.NewRemoteKeySet(ctx, url), now.Add(keysTTL)}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.known == nil {
		i.known = map[string]issuerKeys{}
	}
	for other, k := range i.known {
		if now.After(k.until) {
			delete(i.known, other)
		}
	}
	i.known[name] = fetched
	return fetched.KeySet, nil
}

// recordingKeySet records why a signature was not verified.
type recordingKeySet struct {
	oidc.KeySet
	fetchErr error // the keys could not be fetched; the token may be valid
	forged   bool  // the signature matches no key
}

// VerifySignature implements oidc.KeySet.
func (a *recordingKeySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := a.KeySet.VerifySignature(ctx, token)
	if err != nil && strings.HasPrefix(err.Error(), "fetching keys") { // the library has no error type for it
		a.fetchErr = err
	} else {
		a.forged = err != nil
	}
	return payload, err
}

// issuerError returns a retryable error.
func issuerError(issuer string, err error) error {
	return temporal.NewApplicationError(fmt.Sprintf("issuer %s is unreachable: %s", issuer, clip(err.Error())), protocol.ErrIssuer)
}
