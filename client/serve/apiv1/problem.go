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
)

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
		return api.NewProblem(api.Refused, errors.New(refused.Reason))
	case errors.As(err, &unmanaged):
		return api.NewProblem(api.Unmanaged, err)
	case errors.As(err, &store):
		return api.NewProblem(api.StoreElsewhere, err)
	case errors.Is(err, connection.ErrNotFound), errors.As(err, new(*access.HiddenError)):
		return api.NewProblem(api.NotFound, err)
	case errors.Is(err, connection.ErrPaused):
		return api.NewProblem(api.PausedWorkflow, err)
	case errors.Is(err, connection.ErrNoWorker):
		return api.NewProblem(api.NoWorker, err)
	case errors.Is(err, connection.ErrLost), errors.Is(err, context.DeadlineExceeded):
		return api.NewProblem(api.Unreachable, err)
	}
	return api.NewProblem(api.Internal, err)
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
	p := api.NewProblem(code, errors.New(strings.Join(texts, "; ")))
	if status != 0 {
		p.Status = status
	}
	return p
}

func init() { //nolint:gochecknoinits // huma has one function for all of its APIs
	huma.NewError = invalidRequest
}
