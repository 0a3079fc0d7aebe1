package workflows

import (
	"encoding/json"
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file answers queries. An answer may be larger than the limit of a payload (F8).

// largeAnswers caches the last large answers of a run, packed, so that all parts that a client fetches come from the same answer. They are
// not part of the state: an evicted answer is computed again.
type largeAnswers struct{ last []packedAnswer }

type packedAnswer struct {
	of     string
	packed protocol.Packed
}

// maxCachedAnswers is the size of the cache: two clients may query at the same time.
const maxCachedAnswers = 2

// inParts makes a query handler from answer. A client that does not fetch in parts gets a large answer truncated by cut, or an error if cut
// is nil.
func inParts[T any](a *largeAnswers, name string, answer func() (T, error), cut func(T) T) func(protocol.PartsQuery) (json.RawMessage, error) {
	return func(q protocol.PartsQuery) (json.RawMessage, error) {
		if part, known := a.part(q); known {
			return json.Marshal(part)
		}
		value, err := answer()
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(value)
		if err != nil || len(raw) <= protocol.MaxAnswer {
			return raw, err
		}
		if q.Parts {
			return a.begin(raw)
		}
		if cut != nil {
			raw, err = json.Marshal(cut(value))
		}
		if err == nil && len(raw) > protocol.MaxPayload {
			err = fmt.Errorf(`%s has %d bytes, but the limit is %d; request it in parts, with the input {"parts":true}, as this version of converge does`,
				name, len(raw), protocol.MaxPayload)
		}
		return raw, err
	}
}

// begin caches an answer and returns its first part.
func (a *largeAnswers) begin(raw json.RawMessage) (json.RawMessage, error) {
	packed, err := protocol.Pack(raw)
	if err != nil {
		return nil, err
	}
	of := entities.ShortDigestOf([]byte(packed))
	a.last = entities.KeepLast(append(a.last, packedAnswer{of, packed}), maxCachedAnswers)
	part, _ := a.part(protocol.PartsQuery{Digest: of})
	return json.Marshal(part)
}

// part returns a part of a cached answer.
func (a *largeAnswers) part(q protocol.PartsQuery) (protocol.Part, bool) {
	for _, one := range a.last {
		if one.of == q.Digest && q.Offset >= 0 && q.Offset < len(one.packed) {
			end := min(q.Offset+protocol.PartSize, len(one.packed))
			return protocol.Part{Schema: protocol.PartSchema, Digest: q.Digest, Offset: q.Offset, Size: len(one.packed), Packed: one.packed[q.Offset:end]}, true
		}
	}
	return protocol.Part{}, false
}

// The rest truncates answers for clients that do not fetch in parts, such as the Temporal UI.

// cutRuntime drops waiting leases first, from the end of the list, and then held leases.
func cutRuntime(s protocol.RuntimeStatus) protocol.RuntimeStatus {
	held, waiting := len(s.Held), len(s.Waiting)
	s.Audit = nil
	if s.Pause != nil && s.Pause.Drain != nil {
		s.Pause = s.Pause.WithOwnPermit("")
	}
	s.Held = entities.Fitting(s.Held, cutListBytes)
	s.Waiting = entities.Fitting(s.Waiting, cutListBytes)
	s.Problem = entities.Clip(fmt.Sprintf("truncated: %d more leases are held and %d more wait; request the answer in parts", held-len(s.Held), waiting-len(s.Waiting)), maxText)
	return s
}

// cutListBytes is the size in bytes of each of the two lists in a truncated answer.
const cutListBytes = 20 << 10

// cutApplication drops old incarnations, and the older joint releases.
func cutApplication(s protocol.ApplicationStatus) protocol.ApplicationStatus {
	s.Incarnations = entities.FittingLast(s.Incarnations, cutListBytes)
	s.Releases = entities.FittingLast(s.Releases, cutListBytes/2)
	s.Readers = entities.Fitting(s.Readers, cutListBytes/2) // at least one: none would be everybody
	s.Refused = nil
	s.Problem = entities.Clip("truncated: request the answer in parts; "+s.Problem, maxText)
	return s
}

// cutPlan drops the dependencies of nodes, then the nodes that are done.
func cutPlan(s protocol.PlanStatus) protocol.PlanStatus {
	nodes := make([]protocol.PlanNodeStatus, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		if n.State != string(plan.Done) {
			nodes = append(nodes, protocol.PlanNodeStatus{Node: n.Node, State: n.State, Text: n.Text})
		}
	}
	s.Nodes = entities.Fitting(nodes, 2*cutListBytes)
	s.StepError = entities.Clip(joinNotes(s.StepError, fmt.Sprintf("truncated: %d nodes are not listed; request the answer in parts", len(nodes)-len(s.Nodes))), maxText)
	return s
}
