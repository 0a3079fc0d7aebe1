package apiv1

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/converge-engine/converge/client/api"
	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/client/serve/access"
	"github.com/converge-engine/converge/entities/outcome"
)

// kinds are the properties of each kind of problem.
var kinds = map[api.Code]struct {
	status int
	title  string
}{
	api.Invalid:        {http.StatusUnprocessableEntity, "The request is invalid"},
	api.NotFound:       {http.StatusNotFound, "There is no such thing"},
	api.Refused:        {http.StatusConflict, "The act was refused; nothing changed"},
	api.Unmanaged:      {http.StatusConflict, "The service is not managed"},
	api.ReadOnly:       {http.StatusForbidden, "This server is read-only"},
	api.PausedWorkflow: {http.StatusConflict, "An operator has paused the workflow"},
	api.NoWorker:       {http.StatusServiceUnavailable, "No worker answers"},
	api.Unreachable:    {http.StatusServiceUnavailable, "The Temporal server or the store does not answer"},
	api.StoreElsewhere: {http.StatusConflict, "The store is not read here"},
	api.TooMany:        {http.StatusTooManyRequests, "The sender made too many requests"},
	api.TooLarge:       {http.StatusRequestEntityTooLarge, "The request is too large"},
	api.Internal:       {http.StatusInternalServerError, "The request failed"},
}

func newProblem(code api.Code, cause error) *api.Problem {
	k := kinds[code]
	return &api.Problem{Type: "urn:converge:problem:" + string(code), Title: k.title, Status: k.status, Detail: cause.Error(), Code: code, Exit: outcome.Error, Cause: cause}
}

// problemOf returns the problem that an error of a call is.
func problemOf(err error) error {
	if err == nil {
		return nil
	}
	var known *api.Problem
	var refused *connection.RefusedError
	var unmanaged *read.UnmanagedError
	var store *read.StoreError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &refused):
		return newProblem(api.Refused, errors.New(refused.Reason))
	case errors.As(err, &unmanaged):
		return newProblem(api.Unmanaged, err)
	case errors.As(err, &store):
		return newProblem(api.StoreElsewhere, err)
	case errors.Is(err, connection.ErrNotFound), errors.As(err, new(*access.HiddenError)):
		return newProblem(api.NotFound, err)
	case errors.Is(err, connection.ErrPaused):
		return newProblem(api.PausedWorkflow, err)
	case errors.Is(err, connection.ErrNoWorker):
		return newProblem(api.NoWorker, err)
	case errors.Is(err, connection.ErrLost), errors.Is(err, context.DeadlineExceeded):
		return newProblem(api.Unreachable, err)
	}
	return newProblem(api.Internal, err)
}

// invalidRequest is the problem that huma finds with a request before a handler sees it.
func invalidRequest(status int, message string, errs ...error) huma.StatusError {
	var texts []string
	for _, err := range errs {
		var detail *huma.ErrorDetail
		switch {
		case errors.As(err, &detail):
			texts = append(texts, detail.Location+": "+detail.Message)
		case err != nil:
			texts = append(texts, err.Error())
		}
	}
	if len(texts) == 0 {
		texts = []string{message}
	}
	code := api.Invalid
	switch {
	case status == http.StatusUnsupportedMediaType:
		texts = append(texts, "expected: Content-Type: application/json")
	case status == http.StatusRequestEntityTooLarge:
		code = api.TooLarge
	case status >= http.StatusInternalServerError:
		code = api.Internal
	}
	p := newProblem(code, errors.New(strings.Join(texts, "; ")))
	if status != 0 {
		p.Status = status
	}
	return p
}

func init() { //nolint:gochecknoinits // huma has one function for all of its APIs
	huma.NewError = invalidRequest
}
