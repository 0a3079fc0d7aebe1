package decide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// This file ends what runs for releases that were cancelled, and says what is left of them (A18, I2).

// stopped: the target was cancelled before it had arrived, so that it is applied no more, unless a person restarts what is there.
func (i *instance) stopped() bool {
	return i.Delivery.Cancelled != "" && !i.Delivery.Converged && !i.Delivery.Restarting
}

// endCancelled asks the applies of cancelled targets to end: paused or not, and before a run ends too.
func (v *view) endCancelled() {
	for n := range v.insts {
		i := &v.insts[n]
		a := &i.Delivery.Apply
		if !i.stopped() || !a.Running || !a.Ending.IsZero() || a.Of != i.Delivery.Target.FullVersion {
			continue
		}
		if op := (state.EndOp{Instance: i.ID}); !slices.Contains(v.d.Ends, op) {
			v.d.Ends = append(v.d.Ends, op)
		}
	}
}

// endExtensions asks the runs of extensions to end that nothing waits for any more.
func (d *Decision) endExtensions(s *state.State) {
	for _, r := range s.Releases {
		for _, key := range entities.SortedKeys(r.Extensions) {
			if e := r.Extensions[key]; e.Running && e.Cancelled && e.Ending.IsZero() {
				d.Ends = append(d.Ends, state.EndOp{Release: r.ID, Extension: key})
			}
		}
	}
}

// ending is another release whose run of an extension was cancelled and has not ended yet, or nil: the two are never beside each
// other.
func (v *view) ending(r *state.Release, key string) *state.Release {
	for _, other := range v.s.Releases {
		if e := other.Extensions[key]; other != r && e != nil && e.Running && e.Cancelled {
			return other
		}
	}
	return nil
}

// explainCancelled says who cancelled the release of what is there, and what a person can do.
func (v *view) explainCancelled(i *instance) {
	d := &i.Delivery
	version := d.Target.FullVersion
	text := fmt.Sprintf("%s was cancelled %s, before it had succeeded here", version, d.Cancelled)
	switch {
	case d.Converged:
		text += "; it has arrived, and stays until something else is released"
	case strings.HasPrefix(d.Apply.Err, "interrupted: context "): // as was asked
		text += "; its apply was ended"
	case d.Apply.Err != "":
		text += "; its apply ended: " + d.Apply.Err
	default:
		text += "; it is applied no more"
	}
	v.say(i, ReasonFailure, "%s", text)
	name := v.s.Application + "/" + v.s.Title()
	v.reason(ReasonCommand, fmt.Sprintf("converge rollback %s %s, release another one, or: converge retry %s %s", name, version, name, version))
}
