package ecsfake

import (
	"bytes"
	"io"
	"net/http"
)

// HTTPClient returns a client for requests of the SDK to a server that answers at once, like this one. The SDK closes a request's body
// as soon as there is an answer (smithy-go, ClientHandler.Handle). At that time net/http may still check whether the body has ended.
// Then it closes the connection during the answer, and an answer longer than its buffer is lost as "use of closed network connection".
// A body in memory cannot be closed too early.
func HTTPClient() *http.Client {
	return &http.Client{Transport: inMemory{&http.Transport{MaxIdleConnsPerHost: 16}}}
}

type inMemory struct{ *http.Transport }

// RoundTrip sends a request after it has read the whole body.
func (t inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return t.Transport.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body.Close()
	sent := r.Clone(r.Context())
	sent.Body = io.NopCloser(bytes.NewReader(body))
	return t.Transport.RoundTrip(sent)
}
