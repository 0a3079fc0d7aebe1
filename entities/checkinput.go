package entities

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// CheckInputSchema names the version of CheckInput. Within it fields are only added.
const CheckInputSchema = "converge.check/v1"

// CheckInput is what is known when a check is asked (A20): commands get it as JSON, and expressions are about it. Services and
// channels are called as people call them. No values of parameters and no secrets are in it.
type CheckInput struct {
	Schema      string       `json:"schema"`
	Application string       `json:"application"`
	Service     string       `json:"service"`
	ServiceID   string       `json:"serviceId"`
	Channel     string       `json:"channel"` // that is asked about
	Release     CheckRelease `json:"release"`
	// Phases of the release, by channel: pending, in progress, succeeded, failed, rolled back, skipped or cancelled.
	Phases   map[string]string `json:"phases"`
	Channels []CheckChannel    `json:"channels"` // all of the service, in order
	Objects  []Object          `json:"objects"`  // of the channel, as last observed there
	Omitted  int               `json:"omitted"`  // objects left out to bound the size
	// Addons of the service in the newest configuration, by name, or how many were left out: all of them, where they do not fit.
	Addons        map[string]Addon `json:"addons,omitempty"`
	OmittedAddons int              `json:"omittedAddons,omitempty"`
}

// Addon is something that a service carries for others to read (D1).
type Addon struct {
	Type  string         `json:"type"`
	Value map[string]any `json:"value,omitempty"`
}

// CheckRelease is the release that is asked about. Of a repair of drift only the versions are known.
type CheckRelease struct {
	ID          string    `json:"id"`
	Version     string    `json:"version"` // what a person or CI named
	FullVersion string    `json:"fullVersion"`
	Incarnation int64     `json:"incarnation"`
	By          string    `json:"by"`
	Proven      bool      `json:"proven"` // By is who a token proved it to be, not only who said so
	At          time.Time `json:"at"`
}

// CheckChannel is how a channel is, as `converge status` says it.
type CheckChannel struct {
	Name    string `json:"name"`
	Status  string `json:"status"`
	Health  string `json:"health"`
	Current string `json:"current"`
	Target  string `json:"target"`
}

// Bounded is the input and its JSON of at most limit bytes: objects are left out from the end, then the other channels, then the
// addons.
func (in CheckInput) Bounded(limit int) (CheckInput, []byte, error) {
	in.Objects = slices.Clone(in.Objects)
	for n := range in.Objects {
		in.Objects[n].Status = cmp.Or(in.Objects[n].Status, ObjectPending)
	}
	for {
		data, err := json.Marshal(in)
		switch {
		case err != nil || len(data) <= limit:
			return in, data, err
		case len(in.Objects) > 0:
			kept := len(in.Objects) * 3 / 4
			in.Omitted += len(in.Objects) - kept
			in.Objects = in.Objects[:kept]
		case len(in.Channels) > 1 || len(in.Phases) > 1:
			in.Channels = slices.DeleteFunc(slices.Clone(in.Channels), func(c CheckChannel) bool { return c.Name != in.Channel })
			in.Phases = map[string]string{in.Channel: in.Phases[in.Channel]}
		case len(in.Addons) > 0:
			in.OmittedAddons, in.Addons = len(in.Addons), nil
		default:
			return in, data, nil // names are bounded
		}
	}
}
