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

// MaxLoaded is the number of newest open releases that keep all their data.
const MaxLoaded = 70

// OffloadedDigest replaces a digest that was moved to the store.
const OffloadedDigest = "in the store"

// Offload moves the large data of the open releases behind the newest ones to the store. Releases that are next in a channel stay
// complete.
func (s *State) Offload(next []*Release) {
	remaining, targetReleases := MaxLoaded, map[*Instance]*Release(nil)
	for _, r := range slices.Backward(s.Releases) {
		if r.Over() {
			continue
		}
		if remaining--; remaining >= 0 || r.Offloaded() || slices.Contains(next, r) {
			continue
		}
		if targetReleases == nil {
			targetReleases = s.targetReleases()
		}
		if s.canOffload(r, targetReleases) {
			r.offload()
		}
	}
}

// canOffload reports whether the release is in progress nowhere, and no instance is at it or may return to it. A release that
// rolls another one back consists of several versions, which only the state knows.
func (s *State) canOffload(r *Release, targetReleases map[*Instance]*Release) bool {
	if r.Return || r.IsAspect() || s.isNeeded(r, targetReleases) {
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
		if slices.ContainsFunc(i.Delivery.EarlierGood, r.Target(id).Same) {
			return false
		}
	}
	return true
}

func (r *Release) offload() {
	for _, digests := range []map[entities.InstanceID]string{r.Payloads, r.Templates} {
		for _, id := range entities.SortedIDs(digests) {
			digests[id] = OffloadedDigest
		}
	}
}

// Offloaded reports whether only the store has the digests of the release.
func (r *Release) Offloaded() bool {
	// The order does not affect the result: all digests are here, or all in the store.
	//workflowcheck:ignore
	for _, digest := range r.Payloads {
		return digest == OffloadedDigest
	}
	return false
}

// RestoreDigests adds the digests of a release's payloads from the store. It returns an error for an instance without one, and then changes
// nothing.
func (r *Release) RestoreDigests(payloads map[entities.InstanceID]string) error {
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
