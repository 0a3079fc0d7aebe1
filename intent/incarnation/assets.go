package incarnation

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/converge-engine/converge/entities"
)

// AssetKind is the kind of an asset.
type AssetKind string

// The kinds of assets.
const (
	AssetChannel  AssetKind = "ReleaseChannel"
	AssetService  AssetKind = "Service"
	AssetInstance AssetKind = "Instance" // a service in a channel
)

// AssetKinds lists the kinds.
func AssetKinds() []AssetKind { return []AssetKind{AssetChannel, AssetService, AssetInstance} }

// Asset is a part of an incarnation in its public form (D1, D7).
type Asset struct {
	ID   string    `json:"id"` // ReleaseChannel/prod, Service/web, Instance/web/prod/main: unique in its incarnation
	Kind AssetKind `json:"kind"`
	// Labels are those of the channel; an instance also has those of its runtime, which take precedence.
	Labels  map[string]string         `json:"labels,omitempty"`
	Payload any                       `json:"payload"`
	Addons  map[string]entities.Addon `json:"addons,omitempty"` // of a service, by name
}

// HasAddon reports whether the asset has an addon of a type.
func (a Asset) HasAddon(kind string) bool {
	for _, name := range entities.SortedKeys(a.Addons) {
		if a.Addons[name].Type == kind {
			return true
		}
	}
	return false
}

// Has reports whether the asset has all of these labels.
func (a Asset) Has(labels map[string]string) bool {
	for _, name := range entities.SortedKeys(labels) {
		if value, ok := a.Labels[name]; !ok || value != labels[name] {
			return false
		}
	}
	return true
}

// Assets lists the parts of an incarnation: channels in their order, then each service, by name, with its instances.
func (i *Incarnation) Assets() ([]Asset, error) {
	all := []Asset{}
	labels := map[string]map[string]string{}
	for _, c := range i.doc.Channels {
		labels[c.Name] = c.Labels
		all = append(all, Asset{ID: "ReleaseChannel/" + c.Name, Kind: AssetChannel, Labels: c.Labels, Payload: c})
	}
	for _, s := range i.doc.Services {
		payload, err := without(s, "channels", "addons")
		if err != nil {
			return nil, err
		}
		all = append(all, Asset{ID: "Service/" + s.Name, Kind: AssetService, Payload: payload, Addons: s.Addons})
		for _, instance := range s.Channels {
			for _, m := range instance.members() {
				own := maps.Clone(labels[instance.Channel])
				if own == nil {
					own = map[string]string{}
				}
				maps.Copy(own, m.RuntimeLabels)
				one := instance
				one.Member, one.Fleet = *m, nil
				all = append(all, Asset{ID: fmt.Sprintf("Instance/%s/%s", s.Name, instance.id(m).Key()), Kind: AssetInstance, Labels: own, Payload: one})
			}
		}
	}
	return all, nil
}

// without returns the JSON form of a value without some of its fields.
func without(v any, fields ...string) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	err = json.Unmarshal(text, &all)
	for _, field := range fields {
		delete(all, field)
	}
	return all, err
}
