package publish

import (
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
)

// BaselineGates are gates that the baseline of the installation adds to channels of services.
type BaselineGates struct {
	Rules    int64    `json:"rules"` // number
	Channel  string   `json:"channel"`
	Gates    []string `json:"gates"`
	Services []string `json:"services"`
}

// String is one line for display.
func (d BaselineGates) String() string {
	of := Loosened{Services: d.Services, Loosening: entities.Loosening{Channel: d.Channel, Text: strings.Join(d.Gates, ", ")}}
	return fmt.Sprintf("by the baseline (rules %d): %s", d.Rules, of)
}

// baselineGates lists what the installation requires of the published services, grouped by equal requirements. The worker enforces it,
// with the rules in force at that time.
func (p *publication) baselineGates() []BaselineGates {
	var out []BaselineGates
	for _, service := range entities.SortedKeys(p.specs) {
		spec := p.specs[service]
		spec.Channels = slices.Clone(spec.Channels)
		p.rules.ApplyBaseline(p.rules.Number, &spec, nil)
		for _, c := range spec.Channels {
			demanded := gatesOfBaseline(c)
			if len(demanded) == 0 {
				continue
			}
			at := slices.IndexFunc(out, func(d BaselineGates) bool { return d.Channel == c.Name && slices.Equal(d.Gates, demanded) })
			if at < 0 {
				at, out = len(out), append(out, BaselineGates{Rules: p.rules.Number, Channel: c.Name, Gates: demanded})
			}
			out[at].Services = append(out[at].Services, spec.Title())
		}
	}
	return out
}

func gatesOfBaseline(c entities.ChannelSpec) []string {
	var ids []string
	for _, k := range c.Checks {
		if entities.IsBaselineID(k.ID) {
			ids = append(ids, k.ID)
		}
	}
	for _, k := range c.Conditions {
		if entities.IsBaselineID(k.ID) {
			ids = append(ids, k.ID)
		}
	}
	return ids
}
