package api

import (
	"net/http"

	"github.com/converge-engine/converge/entities/outcome"
)

// kinds are the properties of each kind of problem.
var kinds = map[Code]struct {
	status int
	title  string
}{
	Invalid:         {http.StatusUnprocessableEntity, "The request is invalid"},
	NotFound:        {http.StatusNotFound, "There is no such thing"},
	Refused:         {http.StatusConflict, "The act was refused; nothing changed"},
	Unmanaged:       {http.StatusConflict, "The service is not managed"},
	ReadOnly:        {http.StatusForbidden, "This server is read-only"},
	PausedWorkflow:  {http.StatusConflict, "An operator has paused the workflow"},
	NoWorker:        {http.StatusServiceUnavailable, "No worker answers"},
	Unreachable:     {http.StatusServiceUnavailable, "The Temporal server or the store does not answer"},
	Unauthenticated: {http.StatusUnauthorized, "The server does not know who sent the request"},
	StoreElsewhere:  {http.StatusConflict, "The store is not read here"},
	OtherSite:       {http.StatusForbidden, "The request is for another host, or of another site"},
	TooLarge:        {http.StatusRequestEntityTooLarge, "The request is too large"},
	TooMany:         {http.StatusTooManyRequests, "The sender made too many requests"},
	Internal:        {http.StatusInternalServerError, "The request failed"},
}

// NewProblem returns the problem of a kind with the status that it usually has (RFC 9457).
func NewProblem(code Code, cause error) *Problem {
	k := kinds[code]
	return &Problem{Type: "urn:converge:problem:" + string(code), Title: k.title, Status: k.status, Detail: cause.Error(), Code: code, Exit: outcome.Error, Cause: cause}
}
