package config

import (
	"regexp"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// Addon is something that a service carries for others to read (D1): validators, checks, and whoever reads assets. It is part of what
// runs only as far as a payload names it.
type Addon struct {
	// The name of the addon, unique in the service. Payloads may use ${{ addons.NAME.FIELD }}.
	Name Name `json:"name"`
	// What it is: a type that the application, or a library that it imports, declares.
	Type AddonTypeName `json:"type"`
	// What it says. Nothing is substituted in it, and secrets have no place there.
	Value *Values `json:"value,omitempty"`
}

// AddonType declares a type of addons.
type AddonType struct {
	// The name of the type: a domain, a slash and a name.
	Name AddonTypeName `json:"name"`
	// What it is for, for people.
	Description string `json:"description,omitempty"`
	// A JSON Schema of the value, complete in itself. Without it any mapping will do.
	Schema *Values `json:"schema,omitempty"`
}

// AddonTypeName is the name of a type of addons: example.com/oncall.
type AddonTypeName string

const addonTypePattern = `^[a-z0-9]([a-z0-9.-]{0,126}[a-z0-9])?/[A-Za-z][A-Za-z0-9._-]{0,62}$`

var addonTypeRE = regexp.MustCompile(addonTypePattern)

// Pattern is for the JSON schema.
func (AddonTypeName) Pattern() string { return addonTypePattern }

// Check refuses what is no name of a type.
func (n AddonTypeName) Check() *Fault {
	return strict.Unless(addonTypeRE.MatchString(string(n)), "bad-name", "%q is no type of addons", string(n), "a domain of yours, a slash and a name, such as example.com/oncall")
}
