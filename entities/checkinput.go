package entities

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// CheckInputSchema names the version of CheckInput. Within a version fields are only added.
const CheckInputSchema = "converge.check/v1"

// CheckInput is the input of a check (A20): commands get it as JSON, and expressions can use it. Services and channels have their current
// names. It contains no values of parameters and no secrets.
type CheckInput struct {
	Schema      string       `json:"schema"`
	Application string       `json:"application"`
	Service     string       `json:"service"`
	ServiceID   string       `json:"serviceId"`
	Channel     string       `json:"channel"` // the channel that the check runs for
	Release     CheckRelease `json:"release"`
	// Phases of the release, by channel: pending, in progress, succeeded, failed, rolled back, skipped or cancelled.
	Phases   map[string]string `json:"phases"`
	Channels []CheckChannel    `json:"channels"` // all channels of the service, in order
	Objects  []Object          `json:"objects"`  // of the channel, as last observed
	Omitted  int               `json:"omitted"`  // objects left out to limit the size
	// Addons of the service in the newest configuration, by name. If they do not fit, OmittedAddons counts them instead.
	Addons        map[string]Addon `json:"addons,omitempty"`
	OmittedAddons int              `json:"omittedAddons,omitempty"`
}

// Addon is data that a service declares for others to read (D1).
type Addon struct {
	Type  string         `json:"type"`
	Value map[string]any `json:"value,omitempty"`
}

// CheckRelease is the release that is checked. For a repair of drift only the versions are known.
type CheckRelease struct {
	ID          string    `json:"id"`
	Version     string    `json:"version"` // as a user or CI named it
	FullVersion string    `json:"fullVersion"`
	Incarnation int64     `json:"incarnation"`
	By          string    `json:"by"`
	Proven      bool      `json:"proven"` // a token proved By; otherwise it is only stated
	At          time.Time `json:"at"`
}

// CheckChannel is the state of a channel, as in `converge status`.
type CheckChannel struct {
	Name    string `json:"name"`
	Status  string `json:"status"`
	Health  string `json:"health"`
	Current string `json:"current"`
	Target  string `json:"target"`
}

// Bounded returns the input and its JSON with at most limit bytes. It omits objects from the end, then the other channels, then the addons.
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
			return in, data, nil // names have limits
		}
	}
}
