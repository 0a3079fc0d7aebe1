package protocol

import (
	"fmt"
	"time"
)

// AllServices means every service of an application, including future ones.
const AllServices = "*"

// ManageRequest is the payload of an Application's unmanage and manage. An empty service is the whole application.
type ManageRequest struct {
	RequestMeta
	Service string `json:"service,omitempty"`
}

// Unmanaged says who unmanaged a service, and why.
type Unmanaged struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// ExportedBy is part of the termination reason of workflows whose installation continues elsewhere.
const ExportedBy = " exported by "

// UnmanagedBy is the prefix of the termination reason of an unmanaged service's workflow.
const UnmanagedBy = "unmanaged by "

// Text returns that reason.
func (u Unmanaged) Text() string { return fmt.Sprintf("%s%s: %s", UnmanagedBy, u.By, u.Reason) }

// UnmanagedServices are the unmanaged services, by name; AllServices is every one.
type UnmanagedServices map[string]Unmanaged

// Of reports whether a service is unmanaged, individually or with all others.
func (s UnmanagedServices) Of(service string) (Unmanaged, bool) {
	if u, ok := s[service]; ok {
		return u, true
	}
	u, ok := s[AllServices]
	return u, ok
}

// UnmanageRequest requests to end the workflows of unmanaged services.
type UnmanageRequest struct {
	Application string `json:"application"`
	Manifest    string `json:"manifest"` // digest of the manifest that declares them
	// Services are the reasons by name; AllServices is every one that the manifest declares.
	Services map[string]string `json:"services"`
}

// UnmanageAnswer names services whose workflows could not be ended, and undeclared services, for which nothing was done.
type UnmanageAnswer struct {
	Undeclared []string `json:"undeclared,omitempty"`
	Unreached
}
