package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/timeline"
)

// Problem is why a request was not carried out (RFC 9457).
type Problem struct {
	Type   string `json:"type" doc:"URI of the kind of problem: urn:converge:problem: and the code"`
	Title  string `json:"title" doc:"The kind of problem, in words"`
	Status int    `json:"status" doc:"HTTP status code"`
	Detail string `json:"detail" doc:"What is wrong, where, and what was expected"`
	Code   Code   `json:"code" doc:"The kind of problem"`
	Exit   int    `json:"exit" doc:"Exit status of the command line for the same problem"`
	// Cause is the error behind it, for the server.
	Cause error `json:"-"`
}

// Code is a kind of problem.
type Code string

// The kinds of problems.
const (
	Invalid         Code = "invalid"           // the request itself is wrong
	NotFound        Code = "not-found"         // there is no such application, service, channel or release
	Refused         Code = "refused"           // the workflow refused the act; nothing changed
	Unmanaged       Code = "unmanaged"         // the service is not managed now, so that it accepts no acts
	ReadOnly        Code = "read-only"         // this server carries out no acts
	PausedWorkflow  Code = "paused-workflow"   // an operator has paused the workflow in Temporal
	NoWorker        Code = "no-worker"         // no worker answers
	Unreachable     Code = "unreachable"       // the Temporal server or the store does not answer
	Unauthenticated Code = "unauthenticated"   // the server does not know who sent the request
	StoreElsewhere  Code = "store-elsewhere"   // the store that the service reports is not read by this server
	OtherSite       Code = "other-site"        // the request is of a page of another site, or for another host
	TooLarge        Code = "too-large"         // the request is too large
	TooMany         Code = "too-many-requests" // the sender makes too many requests
	Internal        Code = "internal"
)

func (p *Problem) Error() string { return p.Detail }
func (p *Problem) Unwrap() error { return p.Cause }

// GetStatus returns the HTTP status code.
func (p *Problem) GetStatus() int { return p.Status }

// Write sends it as the answer to a request.
func (p *Problem) Write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client is gone
}

// ContentType marks the answer as a problem.
func (*Problem) ContentType(string) string { return "application/problem+json" }

// ApplicationItem is an application in a list.
type ApplicationItem struct {
	Name string `json:"name"`
}

// ServiceItem is a service in a list, as Temporal lists it. It may be some seconds old.
type ServiceItem struct {
	Application string   `json:"application"`
	Service     string   `json:"service"`
	Status      string   `json:"status" doc:"Status of the worst channel; empty: it has none yet"`
	Version     string   `json:"version,omitempty" doc:"Version of the newest release"`
	WaitingFor  []string `json:"waitingFor,omitempty" doc:"What it waits for, such as approval:go-live"`
}

// Alive is the data of an event that says that a stream is alive.
type Alive struct {
	AsOf time.Time `json:"asOf,omitzero" doc:"When Temporal last said what has changed"`
}

// Reset is the event after which a client reads everything again: its first one, or after it has missed too much.
type Reset struct {
	Services int  `json:"services" doc:"Number of services that are known"`
	Complete bool `json:"complete" doc:"Whether all are known"`
}

// Changed is the event that services have changed.
type Changed struct {
	Services []ServiceItem `json:"services"`
}

// ServicesPage is a page of services.
type ServicesPage struct {
	Page[ServiceItem]
	Total    int       `json:"total" doc:"Number of services that match, on all pages"`
	Complete bool      `json:"complete" doc:"Whether all services are known yet"`
	At       time.Time `json:"at,omitzero" doc:"When all services were last listed; changes since then are included"`
}

// Timeline is the timeline of a service.
type Timeline struct {
	Entries []timeline.Entry `json:"entries"`
	Problem string           `json:"problem,omitempty" doc:"Why the current state is unknown"`
}

// Logs are the output of commands, and what runs now.
type Logs struct {
	Entries []read.Log          `json:"entries"`
	Running []protocol.Progress `json:"running"`
}

// Outcome is what became of a release, or of a service, when a wait ended.
type Outcome struct {
	Over bool   `json:"over" doc:"Whether nothing more happens without a person or a change; false: the wait timed out"`
	Exit int    `json:"exit" doc:"Exit status of converge wait: 0 converged, 2 failed or rolled back, 3 timed out, 8 waits for a person"`
	Why  string `json:"why" doc:"What happened, or what it waits for"`
	Next string `json:"next,omitempty" doc:"What a person can do"`
}

// ReleaseAnswer is the answer to release.
type ReleaseAnswer struct {
	protocol.ReleaseAnswer
	Outcome *Outcome `json:"outcome,omitempty" doc:"What became of it, if the request waited"`
}

// Page is a part of a list.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty" doc:"The value of after for the next page; absent: this is the last one"`
	// Problems are texts for people.
	Problems []string `json:"problems,omitempty" doc:"What could not be read now, and is left out"`
}
