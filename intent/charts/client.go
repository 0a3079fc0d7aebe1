package charts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"
)

// fetchTimeout bounds one fetch.
const fetchTimeout = 2 * time.Minute

// Client fetches charts. The zero value uses the network, with the credentials of docker's configuration and netrc.
type Client struct {
	HTTP *http.Client             // nil: the default one
	Env  func(name string) string // nil: the environment of the process
}

func (c Client) env(name string) string {
	if c.Env == nil {
		return os.Getenv(name)
	}
	return c.Env(name)
}

// FetchAddress returns the content with a digest from an https:// address. The result is cached.
func (c Client) FetchAddress(ctx context.Context, address, digest string) ([]byte, error) {
	return fetchCached(ctx, digest, func(ctx context.Context) ([]byte, error) { return c.download(ctx, address, address, MaxChart) })
}

// Fetch returns the chart of a lock entry, from the cache if possible.
func (c Client) Fetch(ctx context.Context, e Entry) ([]byte, error) {
	return fetchCached(ctx, e.Digest, func(ctx context.Context) ([]byte, error) {
		if e.Repository == "" {
			return c.blob(ctx, e.Chart, e.Digest)
		}
		return c.download(ctx, e.Repository, e.URL, MaxChart)
	})
}

// Resolve finds the newest matching version of a chart, and fetches it.
func (c Client) Resolve(ctx context.Context, r Ref) (Entry, []byte, error) {
	if problem, expected := r.Check(); problem != "" {
		return Entry{}, nil, fmt.Errorf("%s; expected %s", problem, expected)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	resolve := c.resolveInRepository
	if r.Repository == "" {
		resolve = c.resolveInRegistry
	}
	e, data, err := resolve(ctx, r)
	if err == nil {
		writeCache(cachePath(e.Digest), data)
	}
	return e, data, err
}

// download fetches a file of a repository. Only the repository's host receives its credentials.
func (c Client) download(ctx context.Context, repository, address string, limit int64) ([]byte, error) {
	from, err := url.Parse(repository)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	creds, err := credentialsOf(from.Hostname(), c.env)
	if err != nil {
		return nil, err
	}
	answer, err := c.restrictedClient(from, creds).Do(request)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer answer.Body.Close() // read-only
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answered %s", answer.Status)
	}
	return bounded(answer.Body, limit)
}

func bounded(from io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it has more than %d bytes", limit)
	}
	return data, err
}

// withoutURL removes the URL from an error, because its query may contain a signature that grants access.
func withoutURL(err error) error {
	if urlErr := new(url.Error); errors.As(err, &urlErr) {
		return urlErr.Err
	}
	return err
}

// restrictedClient returns the HTTP client for one repository.
func (c Client) restrictedClient(from *url.URL, creds *credentials) *http.Client {
	base := cmp.Or(c.HTTP, http.DefaultClient)
	restricted := *base
	transport := base.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	restricted.Transport = &restrictedTransport{transport, from, creds}
	restricted.Jar = nil
	return &restricted
}

// restrictedTransport is the transport that checks each request, including redirects and authentication.
type restrictedTransport struct {
	base  http.RoundTripper
	from  *url.URL
	creds *credentials // nil: none
}

// RoundTrip rejects requests without TLS, and redirects from other hosts to this machine. Only the host of the repository receives
// credentials.
func (g *restrictedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	loopback := Loopback(r.URL.Hostname())
	switch {
	case r.URL.Scheme != "https" && (r.URL.Scheme != "http" || !loopback):
		return nil, fmt.Errorf("it requests %s://%s, which is not supported; expected https://", r.URL.Scheme, r.URL.Host)
	case loopback && !Loopback(g.from.Hostname()):
		return nil, fmt.Errorf("%s redirects to %s, which is this machine", g.from.Host, r.URL.Host)
	}
	if g.creds != nil && r.URL.Host == g.from.Host && r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.SetBasicAuth(g.creds.user, g.creds.password)
	}
	return g.base.RoundTrip(r)
}
