package protocol

import (
	"fmt"
	"time"
)

// AllServices stands, where services are named, for every one of an application, those to come included.
const AllServices = "*"

// ManageRequest is the payload of an Application's unmanage and manage. An empty service is the whole application.
type ManageRequest struct {
	Act
	Service string `json:"service,omitempty"`
}

// Unmanaged says who keeps a service down, and why.
type Unmanaged struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// ExportedBy is in the reason for which workflows are ended whose installation goes on elsewhere.
const ExportedBy = " exported by "

// UnmanagedBy is how the reason begins for which the workflow of an unmanaged service is ended.
const UnmanagedBy = "unmanaged by "

// Text is that reason.
func (u Unmanaged) Text() string { return fmt.Sprintf("%s%s: %s", UnmanagedBy, u.By, u.Reason) }

// UnmanagedServices are those that nobody looks after, by name; AllServices is every one.
type UnmanagedServices map[string]Unmanaged

// Of tells whether a service is kept down, by itself or with all others.
func (s UnmanagedServices) Of(service string) (Unmanaged, bool) {
	if u, ok := s[service]; ok {
		return u, true
	}
	u, ok := s[AllServices]
	return u, ok
}

// UnmanageRequest asks to end the workflows of services that are kept down.
type UnmanageRequest struct {
	Application string `json:"application"`
	Manifest    string `json:"manifest"` // digest of the one that declares them
	// Services are the reasons by name; AllServices is every one that the manifest declares.
	Services map[string]string `json:"services"`
}

// UnmanageAnswer names services that could not be ended, and those that are not declared, of which nothing was ended.
type UnmanageAnswer struct {
	Undeclared []string `json:"undeclared,omitempty"`
	Unreached
}
