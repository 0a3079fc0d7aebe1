package state

import (
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file leaves to the store what is heavy of releases that wait while many do: the digests of their payloads, and of what
// these were rendered from. The store keeps what a version is made of, so that they come back when its turn comes (B3, F8).
// All that decides stays here: phases, order, approvals, bypasses.

// MaxWhole is how many open releases, the newest, keep all that is known of them.
const MaxWhole = 70

// InStore stands for a digest that was left to the store.
const InStore = "in the store"

// Offload leaves to the store what is heavy of the open releases behind the newest ones. Those that are next in a channel stay
// whole.
func (s *State) Offload(next []*Release) {
	whole, brought := MaxWhole, map[*Instance]*Release(nil)
	for _, r := range slices.Backward(s.Releases) {
		if r.Over() {
			continue
		}
		if whole--; whole >= 0 || r.Offloaded() || slices.Contains(next, r) {
			continue
		}
		if brought == nil {
			brought = s.allBrought()
		}
		if s.mayOffload(r, brought) {
			r.offload()
		}
	}
}

// mayOffload: the release is in progress nowhere, and no instance is at it or may return to it. What takes another one back is
// made of several versions, which only the state knows.
func (s *State) mayOffload(r *Release, brought map[*Instance]*Release) bool {
	if r.Return || r.OfAspect() || s.needed(r, brought) {
		return false
	}
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for _, p := range r.Phases {
		if p.Phase == maestro.InProgress {
			return false
		}
	}
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for id, i := range s.Instances {
		if slices.ContainsFunc(i.Delivery.Earlier, r.Target(id).Same) {
			return false
		}
	}
	return true
}

func (r *Release) offload() {
	for _, digests := range []map[entities.InstanceID]string{r.Payloads, r.Templates} {
		for _, id := range entities.SortedIDs(digests) {
			digests[id] = InStore
		}
	}
}

// Offloaded tells whether the store alone knows what the release is made of.
func (r *Release) Offloaded() bool {
	// In any order: all are there, or all in the store.
	//workflowcheck:ignore
	for _, digest := range r.Payloads {
		return digest == InStore
	}
	return false
}

// Recalled takes in the digests of a release's payloads, from the store. It says for which instance there is none; nothing has
// changed then.
func (r *Release) Recalled(payloads map[entities.InstanceID]string) error {
	ids := entities.SortedIDs(r.Payloads)
	for _, id := range ids {
		if payloads[id] == "" {
			return fmt.Errorf("the store does not say what %s is made of in %s", r.FullVersion, id)
		}
	}
	for _, id := range ids {
		r.Payloads[id] = payloads[id]
	}
	return nil
}
