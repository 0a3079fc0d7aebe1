package board

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// trial is what a service would answer to an act now.
type trial struct {
	Refused string            // why it would refuse it; "": it would not, or that is unknown
	Answer  string            // what it would answer otherwise; "": unknown
	Targets map[string]string // the versions that channels would go to at once, where that changes
}

// try carries an act out on a copy of the state of a service, which is used up.
func (s *sheet) try(row *verb.Row, now state.State, given url.Values, at time.Time) trial {
	if row.Do == nil || now.Spec == nil {
		return trial{}
	}
	who := entities.Who{Name: cmp.Or(s.By, "you")}
	if s.Known {
		who = s.who
	}
	request, err := s.requestOf(row, who, given)
	if err != nil {
		return trial{Refused: err.Error()}
	}
	if s.Known {
		var channels []string
		if row.Channels != nil {
			channels = row.Channels(&now, request)
		}
		if err := entities.Authorize(now.Spec.Grants, row.GrantedAs(now.Spec.Grants), channels, who); err != nil {
			return trial{Refused: err.Error()}
		}
	}
	effect, err := row.Do(&now, request, who, at)
	if err != nil {
		return trial{Refused: err.Error()}
	}
	if effect == nil {
		return trial{}
	}
	before := targetsOf(&now)
	t := trial{Answer: effect(), Targets: map[string]string{}}
	if s.Approval != nil && s.Verb == protocol.Approve { // the sheet has its own words
		t.Answer = ""
	}
	for channel, version := range targetsOf(&now) {
		if version != before[channel] {
			t.Targets[channel] = version
		}
	}
	return t
}

// requestOf makes the request of an act from what a form has so far.
func (s *sheet) requestOf(row *verb.Row, who entities.Who, given url.Values) (verb.Request, error) {
	fields := fieldsOf(acts[row.Name], given)
	fields["by"], _ = json.Marshal(who.Name) // a text is always valid
	if s.Release != "" {
		fields["version"], _ = json.Marshal(entities.IDPrefix + s.Release)
	}
	if fields["reason"] == nil && (slices.Contains(row.Required, "reason") || requiredHere[row.Name] == "reason") {
		fields["reason"] = json.RawMessage(`"…"`) // a person fills it in
	}
	payload, err := json.Marshal(fields)
	if err != nil {
		return verb.Request{}, err
	}
	return row.Decode(payload)
}

// targetsOf are the versions that channels go to, or are at: of instances that differ, that of the last by name.
func targetsOf(s *state.State) map[string]string {
	targets := map[string]string{}
	for _, spec := range s.Spec.Channels {
		for _, i := range s.InstancesIn(spec.Name) {
			if i.Delivery.Target != nil {
				targets[spec.Name] = i.Delivery.Target.FullVersion
			}
		}
	}
	return targets
}

// versionsAfter are the versions that an act brings.
func (s *sheet) versionsAfter(t trial, given string) []string {
	switch s.Verb {
	case protocol.Bypass, protocol.Retry, protocol.Pin:
		if given != "" {
			return []string{given}
		}
	case protocol.Rollback, protocol.Unpin, protocol.Abort:
		versions := slices.Sorted(maps.Values(t.Targets))
		return slices.Compact(versions)
	}
	return nil
}
