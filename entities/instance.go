package entities

import (
	"fmt"
	"strings"
)

// InstanceID names an instance for good: the release channel that it is in, and its name there. State and
// keys always hold both; a person is shown the channel alone where it has one instance.
type InstanceID struct {
	Channel string
	Name    string
}

// OnlyInstance is the name of the one instance of a channel that declares no fleet.
const OnlyInstance = "main"

// Only is the id of the one instance of a channel that declares no fleet.
func Only(channel string) InstanceID { return InstanceID{Channel: channel, Name: OnlyInstance} }

// Key is the id as maps, stores and messages hold it: "production/main". Neither part has a slash.
func (id InstanceID) Key() string { return id.Channel + "/" + id.Name }

// String is the id as a person is shown it: "production", or "production/eu-3" in a fleet.
func (id InstanceID) String() string {
	if id.Name == OnlyInstance {
		return id.Channel
	}
	return id.Key()
}

// MarshalText writes the key, so that an id can be a key of a JSON object.
func (id InstanceID) MarshalText() ([]byte, error) { return []byte(id.Key()), nil }

// UnmarshalText reads a key.
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

// Target is the snapshot of desired state that an instance is moved to: one identity.
type Target struct {
	FullVersion string `json:"fullVersion"`
	Incarnation int64  `json:"incarnation"`
	Payload     string `json:"payload"` // digest
	// Runtime that the payload was rendered for, where that is not the one which the configuration names now.
	Runtime string `json:"runtime,omitempty"`
}

// Same tells whether two targets put the same thing there; the incarnation that said so may differ (A9).
func (t Target) Same(o Target) bool {
	return t.FullVersion == o.FullVersion && t.Payload == o.Payload
}
