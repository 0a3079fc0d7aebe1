package config

import (
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Addon is data of a service for validators, checks and programs that read assets (D1). It affects the running workload only if a
// payload refers to it.
type Addon struct {
	// The name of the addon, unique in the service. Payloads may use ${{ addons.NAME.FIELD }}.
	Name Name `json:"name"`
	// The type of the addon, which the application or an imported library declares.
	Type AddonTypeName `json:"type"`
	// The value. It has no substitutions and must not contain secrets.
	Value *Values `json:"value,omitempty"`
}

// AddonType declares a type of addons.
type AddonType struct {
	// The name of the type: a domain, a slash and a name.
	Name AddonTypeName `json:"name"`
	// A description of the type.
	Description string `json:"description,omitempty"`
	// A self-contained JSON Schema of the value. Without it any mapping is valid.
	Schema *Values `json:"schema,omitempty"`
}

// AddonTypeName is the name of a type of addons: example.com/oncall.
type AddonTypeName string

const addonTypePattern = `^[a-z0-9]([a-z0-9.-]{0,126}[a-z0-9])?/[A-Za-z][A-Za-z0-9._-]{0,62}$`

var addonTypeRE = strict.Pattern(addonTypePattern)

// Pattern returns the pattern for the JSON schema.
func (AddonTypeName) Pattern() string { return addonTypePattern }

// Check rejects invalid names of types.
func (n AddonTypeName) Check() *Fault {
	return strict.FaultUnless(addonTypeRE().MatchString(string(n)), "bad-name", "invalid addon type %q", string(n), "your domain, a slash and a name, such as example.com/oncall")
}
