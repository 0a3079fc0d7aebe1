package entities

import (
	"slices"
	"time"

	"github.com/converge-engine/converge/entities/maestro"
)

// judge holds one pass to what never may happen.
func (w *storm) judge(d *Decision, mode Mode) {
	for _, c := range d.Changes {
		w.judgeChange(c, mode, d)
	}
	for _, op := range d.Applies {
		w.judgeApply(op, mode, d)
	}
	for _, op := range d.Removes {
		_, paused := w.s.PauseOf(op.Channel)
		_, applying := w.applies[op.Channel]
		if paused || applying || mode.Drain || w.s.declared(op.Channel) || len(w.removes) > 0 || len(d.Removes) > 1 {
			w.t.Fatalf("never to be removed:\n%s", d)
		}
	}
	for _, op := range d.Preflights {
		if p, runs := w.preflights[op.Channel]; runs || mode.Drain {
			w.t.Fatalf("a preflight beside another (%v):\n%s", p, d)
		}
	}
	for _, op := range d.Extensions {
		_, paused := w.s.PauseOf(op.Channel)
		if r := w.s.ReleaseByID(op.Release); paused || mode.Drain || r.Phases[op.Channel].Phase.Over() {
			w.t.Fatalf("an extension while paused, draining, or of a release that is over:\n%s", d)
		}
	}
}

func (w *storm) judgeChange(c Change, mode Mode, d *Decision) {
	i := w.s.Instance(c.Channel)
	_, paused := w.s.PauseOf(c.Channel)
	_, pinned := w.s.PinOf(c.Channel)
	refuse := func(why string) { w.t.Fatalf("%s of %s %s:\n%s%s", c.Kind, c.Channel, why, d, w.phases()) }
	switch c.Kind {
	case ChangePromote, ChangeUnchanged:
		r := w.s.ReleaseByID(c.Release)
		switch {
		case paused || pinned || mode.Drain:
			refuse("while paused, pinned or draining")
		case r.Phases[c.Channel].Phase != maestro.Pending:
			refuse("though it is barred or over")
		case w.applies[c.Channel].Channel != "":
			refuse("while an apply runs")
		case i.Rollback != nil && !i.Converged && (i.Rollback.Failed.IsZero() || r.At.Before(i.Rollback.Failed)):
			refuse("past a way back")
		}
		w.judgeGates(r, c, refuse)
	case ChangeRollback:
		spec, _ := w.s.Spec.Channel(c.Channel)
		if paused || pinned || i.Rollback != nil || spec.NoRollback || i.Progress.Running || i.Converged {
			refuse("though it must not be taken back")
		}
	case ChangePin:
		if paused {
			refuse("while paused")
		}
	case ChangeConverged:
		w.judgeSuccess(c, i, refuse)
	}
}

// judgeGates: each condition holds, or a person let the release pass it.
func (w *storm) judgeGates(r *Release, c Change, refuse func(string)) {
	spec, _ := w.s.Spec.Channel(c.Channel)
	waived := func(id string) bool { return w.waived[w.known(r.ID, c.Channel, id)] }
	for _, cond := range spec.Conditions {
		switch {
		case waived(cond.ID):
		case cond.Kind == ManualApproval:
			w.judgeApprovals(r, cond, refuse)
		default:
			for _, up := range cond.Channels {
				if p := r.Phases[up]; p != nil && p.Phase != maestro.Succeeded {
					refuse("past " + up)
				}
			}
		}
	}
	for _, check := range spec.Checks {
		held := slices.ContainsFunc(check.At, func(at CheckAt) bool { return at.Stage != PostDeployment })
		if !held || waived(check.ID) {
			continue
		}
		if w.truth[c.Channel] != Pass {
			refuse("though its check says " + string(w.truth[c.Channel]))
		}
		if c.Kind == ChangePromote && !w.fresh[c.Channel+"/"+r.ID] {
			refuse("without a preflight")
		}
	}
	for _, e := range spec.Extensions {
		if st := r.Extensions[e.ExtensionKey()]; e.Stage != PostDeployment && (st == nil || !st.Done) && !waived(extensionID(e.Name)) {
			refuse("before " + e.Name + " succeeded")
		}
	}
}

func (w *storm) judgeApprovals(r *Release, c Condition, refuse func(string)) {
	who := map[string]bool{}
	for _, a := range r.Approvals {
		switch {
		case a.Topic != c.Topic:
		case a.Reject:
			refuse("though it was rejected")
		case slices.Contains(c.Approvers, a.Who.Name):
			who[a.Who.Name] = true
		}
	}
	if len(who) < c.MinApprovers {
		refuse("without enough approvals")
	}
}

// judgeApply: one at a time, of the present target, with what its runtime asks for.
func (w *storm) judgeApply(op ApplyOp, mode Mode, d *Decision) {
	_, paused := w.s.PauseOf(op.Channel)
	_, twice := w.applies[op.Channel]
	_, removing := w.removes[op.Channel]
	i := w.s.Instances[op.Channel]
	if paused || twice || removing || mode.Drain || *i.Target != op.Target || op.Timeout <= 0 {
		w.t.Fatalf("never to be applied (paused %v, one runs %v, being removed %v):\n%s", paused, twice, removing, d)
	}
	rt := w.s.runtime(op.Channel)
	if rt.MaxApplies > 0 && (i.Lease == nil || i.Lease.Granted.IsZero() || i.Lease.Used || i.Lease.Version != op.Target.FullVersion) {
		w.t.Fatalf("an apply without a lease of its own:\n%s", d)
	}
	back := i.Rollback != nil && !i.Converged
	waived := slices.ContainsFunc(w.s.Releases, func(r *Release) bool {
		return r.FullVersion == op.Target.FullVersion && w.waived[w.known(r.ID, op.Channel, applyApproval(op.Channel))]
	})
	if a := i.ApplyApproved; rt.ApproveApplies && !back && !waived && (a == nil || a.Version != op.Target.FullVersion) {
		w.t.Fatalf("an apply that nobody approved:\n%s", d)
	}
}

// judgeSuccess: nothing succeeds before its extensions, and the windows of its checks.
func (w *storm) judgeSuccess(c Change, i *Instance, refuse func(string)) {
	spec, _ := w.s.Spec.Channel(c.Channel)
	r := w.s.ReleaseByID(c.Release)
	if i.Progress.Running {
		refuse("while an apply runs")
	}
	if r == nil {
		return // a way back, a pin, or what was cancelled
	}
	waived := func(id string) bool { return w.waived[w.known(r.ID, c.Channel, id)] }
	for _, e := range spec.Extensions {
		if st := r.Extensions[e.ExtensionKey()]; e.Stage == PostDeployment && (st == nil || !st.Done) && !waived(extensionID(e.Name)) {
			refuse("before " + e.Name)
		}
	}
	for n := range spec.Checks {
		if check := &spec.Checks[n]; check.at(PostDeployment) == nil || waived(check.ID) {
			continue
		}
		if !w.passed[c.Channel+"/"+r.ID] || w.now.Before(i.StableSince.Add(time.Hour+time.Minute)) {
			refuse("before its window has passed")
		}
	}
}

// judgeRest holds what is left once nothing changes any more to what never may be.
func (w *storm) judgeRest(mode Mode) {
	if due := w.decision.Wake; !due.IsZero() && !due.After(w.now) {
		w.t.Fatalf("wake-up in the past:\n%s", w.decision)
	}
	for _, c := range w.decision.Channels {
		if c.Status != StatusConverged && len(c.Reasons) == 0 {
			w.t.Fatalf("%s is %s for no reason:\n%s", c.Channel, c.Status, w.decision)
		}
	}
	for _, name := range SortedKeys(w.s.Instances) {
		l := w.s.Instances[name].Lease
		switch _, looks := w.preflights[name]; {
		case l == nil || mode.Drain:
		case l.Used && !w.s.Instances[name].Progress.Running:
			w.t.Fatalf("%s keeps the lease of an apply that has ended:\n%s", name, w.decision)
		case !l.Used && !l.Granted.IsZero() && !looks:
			w.t.Fatalf("%s holds a lease while it waits:\n%s", name, w.decision)
		}
	}
	w.judgeAudit()
}

// judgeAudit: lines are numbered without gaps, whoever takes them away.
func (w *storm) judgeAudit() {
	for _, l := range w.s.Audit {
		if l.N <= w.audited {
			continue
		}
		if l.N != w.audited+1 {
			w.t.Fatalf("audit line %d follows %d", l.N, w.audited)
		}
		w.audited = l.N
	}
	if w.audited != w.s.AuditLines || len(w.s.Audit) > MaxAudit {
		w.t.Fatalf("%d audit lines of %d were seen, %d are kept", w.audited, w.s.AuditLines, len(w.s.Audit))
	}
}
