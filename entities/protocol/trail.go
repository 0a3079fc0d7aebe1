package protocol

import "strings"

// Locations of the audit trails that belong to no application. They have the form of application names, but no application has such a name.
const (
	RuntimeTrails     = "_runtime"
	InstallationTrail = "_installation"
)

// TrailOf returns where the store keeps the audit trail of a workflow: its application and service. The service is empty for an
// application's own trail.
func TrailOf(id string) (application, service string) {
	if id == InstallationID() {
		return InstallationTrail, ""
	}
	kind, name, _ := strings.Cut(id, "/")
	if kind == "runtime" {
		return RuntimeTrails, name
	}
	if kind == "application" {
		return name, ""
	}
	application, service, _ = ParseServiceID(id)
	return application, service
}
