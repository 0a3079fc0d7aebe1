package decide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// This file ends running work of cancelled releases, and reports what remains of them (A18, I2).

// applyCancelled reports whether the target was cancelled before it had converged. It is not applied any more, unless a person restarts it.
func (i *instance) applyCancelled() bool {
	return i.Delivery.Cancelled != "" && !i.Delivery.Converged && !i.Delivery.Restarting
}

// endCancelled requests the end of the applies of cancelled targets, also during a pause and before continue-as-new.
func (v *view) endCancelled() {
	for n := range v.insts {
		i := &v.insts[n]
		a := &i.Delivery.Apply
		if !i.applyCancelled() || !a.Running || !a.EndRequested.IsZero() || a.RunningVersion != i.Delivery.Target.FullVersion {
			continue
		}
		if op := (state.EndOp{Instance: i.ID}); !slices.Contains(v.d.Ends, op) {
			v.d.Ends = append(v.d.Ends, op)
		}
	}
}

// endExtensions requests the end of runs of extensions that were cancelled.
func (d *Decision) endExtensions(s *state.State) {
	for _, r := range s.Releases {
		for _, key := range entities.SortedKeys(r.Extensions) {
			if e := r.Extensions[key]; e.Running && e.Cancelled && e.EndRequested.IsZero() {
				d.Ends = append(d.Ends, state.EndOp{Release: r.ID, Extension: key})
			}
		}
	}
}

// endingRun is another release whose run of an extension was cancelled and has not ended yet, or nil. Two runs never overlap.
func (v *view) endingRun(r *state.Release, key string) *state.Release {
	for _, other := range v.s.Releases {
		if e := other.Extensions[key]; other != r && e != nil && e.Running && e.Cancelled {
			return other
		}
	}
	return nil
}

// explainCancelled states who cancelled the release of the current target, and what a person can do.
func (v *view) explainCancelled(i *instance) {
	d := &i.Delivery
	version := d.Target.FullVersion
	text := fmt.Sprintf("%s was cancelled %s, before it succeeded here", version, d.Cancelled)
	switch {
	case d.Converged:
		text += "; it is already deployed and stays until the next release"
	case strings.HasPrefix(d.Apply.Err, "interrupted: context "): // as requested
		text += "; its apply was ended"
	case d.Apply.Err != "":
		text += "; its apply ended: " + d.Apply.Err
	default:
		text += "; it is no longer applied"
	}
	v.instanceReason(i, ReasonFailure, "%s", text)
	name := v.s.Application + "/" + v.s.Title()
	v.reason(ReasonCommand, fmt.Sprintf("converge rollback %s %s, release another version, or: converge retry %s %s", name, version, name, version))
}
