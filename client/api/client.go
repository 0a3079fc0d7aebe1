// Package api is a Go client of the HTTP API that converge serve has (docs/api.md). It needs no connection to Temporal.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
)

// Client sends requests to a server. The zero value of each optional field is the default.
type Client struct {
	URL   string       // of the server, such as https://converge.example
	Token string       // OIDC ID token that proves who acts; optional
	HTTP  *http.Client // optional
}

// maxAnswer limits an answer in bytes.
const maxAnswer = 64 << 20

// Get reads a path below /api/v1, such as "/applications/shop/services/web", into a value. An error that the server states is a
// *Problem.
func (c Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.do(ctx, http.MethodGet, path, nil, "", into)
}

// Act sends a verb to a service, an application, a runtime or the installation, by its path, and reads the answer into a value, or nowhere if
// it is nil. Two calls with the same request id are the same act.
func (c Client) Act(ctx context.Context, path, verb, requestID string, payload, into any) error {
	body, err := json.Marshal(payload)
	if err != nil {
		return fmt.Errorf("payload of %s: %w", verb, err)
	}
	return c.do(ctx, http.MethodPost, path+"/"+verb, body, requestID, into)
}

// ServicePath is the path of a service.
func ServicePath(application, service string) string {
	return "/applications/" + url.PathEscape(application) + "/services/" + url.PathEscape(service)
}

// Status returns the status of a service.
func (c Client) Status(ctx context.Context, application, service string) (s protocol.Status, err error) {
	err = c.Get(ctx, ServicePath(application, service), nil, &s)
	return s, err
}

// Wait waits until nothing more happens with a release without a person or a change, or the timeout has passed; without a release, with the
// service as it is. One request waits a minute at most, so that it sends several for a longer wait.
func (c Client) Wait(ctx context.Context, application, service, release string, timeout time.Duration) (out Outcome, err error) {
	for end := time.Now().Add(timeout); ; {
		rest := min(max(time.Until(end), time.Second), time.Minute).Round(time.Second)
		query := url.Values{"timeout": {rest.String()}}
		if release != "" {
			query.Set("release", release)
		}
		var last Outcome
		err := c.Get(ctx, ServicePath(application, service)+"/wait", query, &last)
		var problem *Problem
		passing := errors.As(err, &problem) && (problem.Code == NoWorker || problem.Code == Unreachable)
		if err == nil {
			out = last
		}
		if err != nil && !passing || err == nil && out.Over || time.Now().After(end) {
			return out, err
		}
		if passing {
			select {
			case <-ctx.Done():
				return out, ctx.Err()
			case <-time.After(time.Second):
			}
		}
	}
}

func (c Client) do(ctx context.Context, method, path string, body []byte, requestID string, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, c.URL+"/api/v1"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/json")
	}
	if requestID != "" {
		request.Header.Set("Idempotency-Key", requestID)
	}
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return err
	case len(data) > maxAnswer:
		return fmt.Errorf("%s %s: the answer is larger than %d bytes", method, path, maxAnswer)
	case response.StatusCode == http.StatusOK && into == nil:
		return nil
	case response.StatusCode == http.StatusOK:
		return json.Unmarshal(data, into)
	}
	var problem Problem
	if json.Unmarshal(data, &problem) != nil || problem.Detail == "" {
		return fmt.Errorf("%s %s: %s: %w", method, path, response.Status, errors.New(string(bytes.TrimSpace(data))))
	}
	return &problem
}
