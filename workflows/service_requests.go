package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
)

// request is the payload of any verb, decoded; which fields are filled depends on the verb.
type request struct {
	protocol.Act
	verb      string
	release   protocol.ReleaseRequest
	version   string
	channel   string
	topic     string
	condition string
	comment   string
}

// decode reads a payload strictly: a misspelt field must not be a field left out. What it accepts
// is complete and within bounds.
func decode(verb string, raw json.RawMessage) (request, error) {
	r, err := decodeVerb(verb, raw)
	if err != nil {
		return request{}, err
	}
	if err := checkAct(r.Act); err != nil {
		return request{}, err
	}
	if err := r.checkBounds(); err != nil {
		return request{}, err
	}
	return r, r.checkComplete()
}

func decodeVerb(verb string, raw json.RawMessage) (request, error) {
	r := request{verb: verb}
	var err error
	switch verb {
	case protocol.Release:
		err = decodeStrictly(verb, raw, &r.release)
		r.Act, r.version = r.release.Act, r.release.Version
	case protocol.Cancel, protocol.Retry:
		var p protocol.VersionRequest
		err = decodeStrictly(verb, raw, &p)
		r.Act, r.version, r.channel = p.Act, p.Version, p.Channel
	case protocol.Approve, protocol.Reject:
		var p protocol.ApprovalRequest
		err = decodeStrictly(verb, raw, &p)
		r.Act, r.version, r.topic, r.comment = p.Act, p.Version, p.Topic, p.Comment
		if r.comment == "" {
			r.comment = p.Reason
		}
	case protocol.Bypass:
		var p protocol.BypassRequest
		err = decodeStrictly(verb, raw, &p)
		r.Act, r.version, r.channel, r.condition = p.Act, p.Version, p.Channel, p.Condition
	case protocol.Pin, protocol.Unpin:
		var p protocol.PinRequest
		err = decodeStrictly(verb, raw, &p)
		r.Act, r.version, r.channel = p.Act, p.Version, p.Channel
	case protocol.Rollback:
		var p protocol.RollbackRequest
		err = decodeStrictly(verb, raw, &p)
		r.Act, r.version, r.channel = p.Act, p.Version, p.Channel
	case protocol.Delete:
		var p protocol.DeleteRequest
		err = decodeStrictly(verb, raw, &p)
		r.Act = p.Act
	default:
		var p protocol.ScopeRequest
		err = decodeStrictly(verb, raw, &p)
		r.Act, r.channel = p.Act, p.Channel
	}
	return r, err
}

// checkBounds refuses names that are longer than any name is. The version of a release has a bound
// of its own (State.CheckRelease).
func (r request) checkBounds() error {
	for _, f := range [...]struct {
		name, text string
		most       int
	}{
		{"id", r.release.ID, maxName},
		{"channel", r.channel, maxName},
		{"topic", r.topic, maxName},
		{"condition", r.condition, maxName},
		{"comment", r.comment, maxReason},
	} {
		if n := len(f.text); n > f.most {
			return fmt.Errorf(`"%s" is %d bytes long; at most %d`, f.name, n, f.most)
		}
	}
	if n := len(r.version); n > maxName && r.verb != protocol.Release {
		return fmt.Errorf(`"version" is %d bytes long; at most %d`, n, maxName)
	}
	return nil
}

// checkComplete refuses a payload without what its verb needs.
func (r request) checkComplete() error {
	fields := map[string]string{"version": r.version, "channel": r.channel, "topic": r.topic, "condition": r.condition}
	for _, name := range needed(r.verb) {
		if fields[name] == "" {
			return fmt.Errorf(`"%s" is missing`, name)
		}
	}
	switch {
	case r.verb == protocol.Bypass && strings.TrimSpace(r.Reason) == "":
		return errors.New(`"reason" is missing: a bypass says why`)
	case r.verb == protocol.Unpin && r.version != "":
		return errors.New(`"version" is not for unpin: a channel has one pin`)
	}
	return nil
}

// needed are the fields that a verb cannot go without; a release says itself what it lacks.
func needed(verb string) []string {
	switch verb {
	case protocol.Cancel, protocol.Retry:
		return []string{"version"}
	case protocol.Approve, protocol.Reject:
		return []string{"version", "topic"}
	case protocol.Bypass:
		return []string{"version", "channel", "condition"}
	case protocol.Pin:
		return []string{"channel", "version"}
	case protocol.Unpin:
		return []string{"channel"}
	}
	return nil
}

func decodeStrictly(verb string, raw json.RawMessage, into any) error {
	if err := checkRaw(verb, raw); err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("payload of %s: %s", verb, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}
