package state

import (
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file moves large data of waiting releases to the store while many wait: the digests of their payloads and of the templates. The
// store keeps the contents of each version, so the digests are loaded again when the release is next (B3, F8). Everything that affects
// decisions stays here: phases, order, approvals, bypasses.

// MaxWhole is the number of newest open releases that keep all their data.
const MaxWhole = 70

// InStore replaces a digest that was moved to the store.
const InStore = "in the store"

// Offload moves the large data of the open releases behind the newest ones to the store. Releases that are next in a channel stay
// complete.
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

// mayOffload reports whether the release is in progress nowhere, and no instance is at it or may return to it. A release that takes
// another one back consists of several versions, which only the state knows.
func (s *State) mayOffload(r *Release, brought map[*Instance]*Release) bool {
	if r.Return || r.OfAspect() || s.needed(r, brought) {
		return false
	}
	// The order does not affect the result.
	//workflowcheck:ignore
	for _, p := range r.Phases {
		if p.Phase == maestro.InProgress {
			return false
		}
	}
	// The order does not affect the result.
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

// Offloaded reports whether only the store has the digests of the release.
func (r *Release) Offloaded() bool {
	// The order does not affect the result: all digests are here, or all in the store.
	//workflowcheck:ignore
	for _, digest := range r.Payloads {
		return digest == InStore
	}
	return false
}

// Recalled adds the digests of a release's payloads from the store. It returns an error for an instance without one, and then changes
// nothing.
func (r *Release) Recalled(payloads map[entities.InstanceID]string) error {
	ids := entities.SortedIDs(r.Payloads)
	for _, id := range ids {
		if payloads[id] == "" {
			return fmt.Errorf("the store has no payload of %s for %s", r.FullVersion, id)
		}
	}
	for _, id := range ids {
		r.Payloads[id] = payloads[id]
	}
	return nil
}
