package checks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
)

const (
	defaultHTTPTimeout = 10 * time.Second
	maxRedirects       = 5
	maxExcerpt         = 200     // bytes of a body in a reason
	maxResponse        = 4 << 20 // bytes of an answer that are read
)

// httpCheck passes while a GET returns one of the listed status codes (A20).
type httpCheck struct{ sources Sources }

func (c httpCheck) Evaluate(ctx context.Context, a Request) (entities.CheckReading, error) {
	d := a.Definition.HTTP
	if d == nil {
		return incomplete(a)
	}
	r := httpRequest{sources: c.sources, url: d.URL, headers: d.Headers, timeout: d.Timeout, follow: true}
	got, err := r.do(ctx)
	if err != nil {
		return entities.CheckReading{}, err
	}
	expected := got.status >= 200 && got.status < 300
	if len(d.Statuses) > 0 {
		expected = slices.Contains(d.Statuses, got.status)
	}
	reason := fmt.Sprintf("%s answered %d", r.hostName(), got.status)
	if expected {
		return pass("%s", reason)
	}
	if excerpt := oneLine(got.text, maxExcerpt); excerpt != "" {
		reason += ": " + excerpt
	}
	return wait("%s", reason)
}

// httpRequest is one HTTP request to an external system, limited in time and size. Its errors contain neither a secret nor the part of a
// URL after the host.
type httpRequest struct {
	sources Sources
	method  string // default GET
	url     string
	body    func() (io.Reader, string) // with its content type
	headers map[string]entities.Value
	token   *entities.Value
	timeout time.Duration
	follow  bool // follow redirects, but never with secrets to another host
	secrets secrets
}

type response struct {
	status int
	body   []byte
	text   string // the body without secrets
}

func (r *httpRequest) do(ctx context.Context) (response, error) {
	if r.sources.HTTP == nil {
		return response{}, errors.New("the network is not available here")
	}
	r.secrets = secrets{source: r.sources.Secrets}
	timeout := r.timeout
	if timeout <= 0 {
		timeout = defaultHTTPTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	req, err := r.build(ctx)
	if err != nil {
		return response{}, err
	}
	client := *r.sources.HTTP
	client.CheckRedirect = r.redirect
	res, err := client.Do(req)
	if err != nil {
		return response{}, r.wrapError(ctx, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxResponse+1))
	switch {
	case err != nil:
		return response{}, r.wrapError(ctx, err)
	case len(body) > maxResponse:
		return response{}, fmt.Errorf("%s answered more than %d MiB", r.hostName(), maxResponse>>20)
	}
	return response{status: res.StatusCode, body: body, text: r.secrets.hide(string(body[:min(len(body), 8<<10)]))}, nil
}

func (r *httpRequest) build(ctx context.Context) (*http.Request, error) {
	parsed, err := url.Parse(r.url)
	if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return nil, errors.New("invalid URL; expected http://… or https://…") // not included: it may contain a password
	}
	if password, ok := parsed.User.Password(); ok {
		r.secrets.values = append(r.secrets.values, password)
	}
	method, body, kind := r.method, io.Reader(nil), ""
	if method == "" {
		method = http.MethodGet
	}
	if r.body != nil {
		body, kind = r.body()
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url, body)
	if err != nil {
		return nil, errors.New("invalid URL; expected http://… or https://…")
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	req.Header.Set("User-Agent", "converge")
	for _, name := range slices.Sorted(maps.Keys(r.headers)) {
		value, err := r.secrets.resolve(ctx, "header "+name, r.headers[name])
		if err != nil {
			return nil, err
		}
		req.Header.Set(name, value)
		if http.CanonicalHeaderKey(name) == "Host" {
			req.Host = value
		}
	}
	if r.token != nil {
		token, err := r.secrets.resolve(ctx, "the token", *r.token)
		if err != nil {
			return nil, err
		}
		r.secrets.values = append(r.secrets.values, token) // a literal token is a secret too
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

// redirect follows a few redirects. A request with a secret is not redirected to another host.
func (r *httpRequest) redirect(next *http.Request, before []*http.Request) error {
	first := before[0].URL
	switch {
	case !r.follow:
		return http.ErrUseLastResponse
	case len(before) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case len(r.secrets.values) > 0 && (next.URL.Scheme != first.Scheme || next.URL.Host != first.Host):
		return fmt.Errorf("it redirects to %s://%s, and secrets are not sent there", next.URL.Scheme, next.URL.Host)
	}
	return nil
}

// wrapError explains a failed request without the URL, which may contain confidential data.
func (r *httpRequest) wrapError(ctx context.Context, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%s: %s", r.hostName(), r.secrets.hide(err.Error()))
}

// hostName returns the host, for messages.
func (r *httpRequest) hostName() string {
	parsed, err := url.Parse(r.url)
	if err != nil {
		return "it"
	}
	return parsed.Host
}
