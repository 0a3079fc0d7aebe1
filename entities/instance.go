package entities

import (
	"fmt"
	"strings"
)

// InstanceID is the permanent name of an instance: its release channel, and its name there. State and keys always contain both. Users see
// only the channel if it has one instance.
type InstanceID struct {
	Channel string
	Name    string
}

// OnlyInstance is the name of the instance of a channel without a fleet.
const OnlyInstance = "main"

// Only returns the id of the instance of a channel without a fleet.
func Only(channel string) InstanceID { return InstanceID{Channel: channel, Name: OnlyInstance} }

// Key returns the id for maps, stores and messages: "production/main". Neither part contains a slash.
func (id InstanceID) Key() string { return id.Channel + "/" + id.Name }

// String returns the id for people: "production", or "production/eu-3" in a fleet.
func (id InstanceID) String() string {
	if id.Name == OnlyInstance {
		return id.Channel
	}
	return id.Key()
}

// MarshalText returns the key, so that an id can be a key of a JSON object.
func (id InstanceID) MarshalText() ([]byte, error) { return []byte(id.Key()), nil }

// UnmarshalText parses a key.
func (id *InstanceID) UnmarshalText(text []byte) error {
	channel, name, ok := strings.Cut(string(text), "/")
	if !ok || channel == "" || name == "" {
		return fmt.Errorf("instance %q: expected CHANNEL/NAME", text)
	}
	id.Channel, id.Name = channel, name
	return nil
}

// Compare orders ids by channel, then by name.
func (id InstanceID) Compare(other InstanceID) int {
	if c := strings.Compare(id.Channel, other.Channel); c != 0 {
		return c
	}
	return strings.Compare(id.Name, other.Name)
}

// Target is the snapshot of desired state that an instance moves to: one identity.
type Target struct {
	FullVersion string `json:"fullVersion"`
	Incarnation int64  `json:"incarnation"`
	Payload     string `json:"payload"` // digest
	// Runtime is the runtime that the payload was rendered for, if the configuration now names another one.
	Runtime string `json:"runtime,omitempty"`
}

// Same reports whether two targets have the same result. Their incarnations may differ (A9).
func (t Target) Same(o Target) bool {
	return t.FullVersion == o.FullVersion && t.Payload == o.Payload
}
