package protocol

import "strings"

// Where the audit trails of what belongs to no application are: as if these were applications. None has such a name.
const (
	RuntimeTrails     = "_runtime"
	InstallationTrail = "_installation"
)

// TrailOf says where the store keeps the audit trail of a workflow: of which application and service, which is empty for an
// application's own.
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
