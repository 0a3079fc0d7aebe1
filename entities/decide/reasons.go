package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
)

// This file computes the reasons of every status but CONVERGED. They are for people: no code depends on a text.

func (v *view) reason(code ReasonCode, text string) {
	v.out.Reasons = append(v.out.Reasons, Reason{code, text})
}

// maxExplained is the number of instances of a fleet for which reasons are given.
const maxExplained = 3

func (v *view) explain() {
	if v.fleet() {
		v.explainFleet()
	}
	v.explainStep()
	v.explainReport()
	switch v.out.Status {
	case entities.StatusPaused:
		v.explainPause()
	case entities.StatusBlocked, entities.StatusPreconditions, entities.StatusManualApproval:
		for _, j := range v.out.Gates[:len(v.out.Gates)-len(v.stepGates)] { // the reasons of a step are in explainStep
			if j.Verdict != entities.Pass && j.Code != CodeNotEvaluated {
				v.reason(ReasonGate, v.judgementText(j))
			}
		}
	case entities.StatusConverged:
	default:
		shown := 0
		for n := range v.insts {
			if i := &v.insts[n]; (!v.fleet() || entities.StatusOf(i.facts) == v.out.Status) && shown < maxExplained {
				shown++
				v.explainInstance(i)
			}
		}
	}
	for _, text := range v.extraReasons {
		v.reason(ReasonProgress, text)
	}
}

// mayExplain reports whether the wait of one more instance is described: of a large fleet only the first are named.
func (v *view) mayExplain() bool {
	v.waitsExplained++
	return v.waitsExplained <= maxExplained
}

// explainFleet counts the instances by status.
func (v *view) explainFleet() {
	if v.out.Status == entities.StatusConverged {
		return
	}
	count := map[string]int{}
	var order []string
	for n := range v.out.Instances {
		i := &v.out.Instances[n]
		label := string(i.Status)
		if i.Status == entities.StatusConverged {
			label = "at " + cmp.Or(entities.ShownVersions(i.Current.Active), "nothing")
		}
		if count[label]++; count[label] == 1 {
			order = append(order, label)
		}
	}
	if len(order) == 1 && order[0] != string(v.out.Instances[0].Status) {
		return // all are where they should be: the other reasons concern the waiting release
	}
	parts := make([]string, len(order))
	for n, label := range order {
		parts[n] = fmt.Sprintf("%d %s", count[label], label)
	}
	v.reason(ReasonProgress, fmt.Sprintf("of %d instances %s", len(v.out.Instances), strings.Join(parts, ", ")))
}

func (v *view) explainPause() {
	if len(v.insts) == 0 {
		if len(v.drained) > 0 {
			return // their reasons are given in drainInstances
		}
		pause, _ := v.s.PauseIn(v.spec.Name)
		v.reason(ReasonPause, "paused by "+pause.By+entities.Because(pause.Reason))
		return
	}
	for n := range v.insts { // the first paused one: a fleet may have more
		i := &v.insts[n]
		if !i.paused {
			if r := v.release(v.slot.Holder); r != nil && !v.paused && v.destinationPause(i, r) != "" {
				v.instanceReason(i, ReasonPause, "%s", v.destinationPause(i, r))
				break
			}
			continue
		}
		pause, _ := v.s.PauseOf(i.ID)
		text := fmt.Sprintf("paused by %s%s", pause.By, entities.Because(pause.Reason))
		if !v.paused {
			text = v.prefixInstance(i, text)
		}
		v.reason(ReasonPause, text)
		break
	}
	v.explainFailurePaused()
}

// explainFailurePaused describes a failure during a pause, and what follows after the pause.
func (v *view) explainFailurePaused() {
	n := slices.IndexFunc(v.insts, func(i instance) bool { return i.Delivery.Failure != "" })
	if n < 0 {
		return
	}
	i := &v.insts[n]
	v.instanceReason(i, ReasonFailure, "%s failed: %s", i.Delivery.Target.FullVersion, i.Delivery.Failure)
	if i.Delivery.Rollback != nil || v.pin != nil || v.spec.NoRollback || v.isReportOnly() {
		return
	}
	switch back, why := v.s.RollbackTarget(i.Instance); {
	case back != nil:
		v.instanceReason(i, ReasonRollback, "once resumed it is rolled back to %s", back.FullVersion)
	case why != "":
		v.instanceReason(i, ReasonRollback, "not rolled back once resumed: %s", why)
	}
}

// instanceReason adds a reason of one instance.
func (v *view) instanceReason(i *instance, code ReasonCode, format string, args ...any) {
	v.reason(code, v.prefixInstance(i, fmt.Sprintf(format, args...)))
}

func (v *view) explainInstance(i *instance) {
	d := &i.Delivery
	switch v.out.Status {
	case entities.StatusFailedRollback, entities.StatusRollingBack, entities.StatusRolledBack:
		v.explainRollback(i)
	case entities.StatusFailed:
		v.instanceReason(i, ReasonFailure, "%s failed: %s", d.Target.FullVersion, d.Failure)
		if v.pin != nil {
			v.reason(ReasonPin, v.pin.Text())
		}
		if back, why := v.s.RollbackTarget(i.Instance); back == nil && why != "" && !v.spec.NoRollback {
			v.instanceReason(i, ReasonRollback, "not rolled back: %s", why)
			v.reason(ReasonCommand, "release a fix, or, "+v.s.FloorBypassCommand(i.Instance))
		}
		if i.current.Stable {
			v.instanceReason(i, ReasonProgress, "its objects are stable now; retry accepts it")
		}
		v.explainMaintenance(i)
	case entities.StatusUnknown:
		switch e := i.Observed.Reading.Err; {
		case !d.Apply.NoWorkerSince.IsZero(): // explainApply describes it
		case e != nil:
			v.instanceReason(i, ReasonFailure, "%s: %s", e.Code, e.Message)
			if e.Code == entities.CodeNoWorker {
				v.adviseWorker(i)
			}
		case i.unread:
			v.instanceReason(i, ReasonProgress, "no reading since the progress deadline passed")
		default:
			v.instanceReason(i, ReasonProgress, "no reading yet")
		}
		v.explainApply(i)
	case entities.StatusCancelled:
		v.explainCancelled(i)
	case entities.StatusSuspended, entities.StatusConverging, entities.StatusDegraded, entities.StatusProgressing:
		v.explainMoving(i)
	}
}

func (v *view) explainApply(i *instance) {
	d := &i.Delivery
	switch a := &d.Apply; {
	case !a.NoWorkerSince.IsZero():
		v.instanceReason(i, ReasonFailure, "%s: %s; %s is applied once one does", entities.CodeNoWorker, a.Err, d.Target.FullVersion)
		v.adviseWorker(i)
	case a.Running && a.RunningVersion == "":
		v.instanceReason(i, ReasonProgress, "%s is applied once its removal has ended", d.Target.FullVersion)
	case a.Running && a.RunningVersion != "" && a.RunningVersion != d.Target.FullVersion:
		v.instanceReason(i, ReasonProgress, "%s is applied once the apply of %s has ended", d.Target.FullVersion, a.RunningVersion)
	case a.Running && !a.EndRequested.IsZero():
		v.instanceReason(i, ReasonProgress, "the apply of %s is being ended", d.Target.FullVersion)
	case a.Running:
		v.instanceReason(i, ReasonProgress, "%s", i.applyingText())
	case a.Err != "" && a.Attempts == 0:
		v.instanceReason(i, ReasonFailure, "the apply cannot begin: %s", a.Err)
	case a.Err != "":
		v.instanceReason(i, ReasonFailure, "apply failed %s: %s", entities.Times(a.Attempts), a.Err)
	}
}

// applyingText says which attempt runs, and why the last one failed.
func (i *instance) applyingText() string {
	a := &i.Delivery.Apply
	text := "applying " + i.Delivery.Target.FullVersion
	if a.Attempts == 0 {
		return text
	}
	text += fmt.Sprintf(", attempt %d", a.Attempts+1)
	if !i.Delivery.Converged { // repairs have no limit
		text += fmt.Sprintf(" of %d", i.runtime.Timing.MaxAttempts)
	}
	if a.Err != "" {
		text += "; the last failed: " + a.Err
	}
	return text
}

// adviseWorker adds the command that starts a worker for a runtime without one.
func (v *view) adviseWorker(i *instance) {
	runtime, _ := v.s.Runtime(i.ID)
	command := "start a worker that can reach it: converge worker --runtime " + runtime
	if !slices.ContainsFunc(v.out.Reasons, func(r Reason) bool { return r.Text == command }) {
		v.reason(ReasonCommand, command)
	}
}

func (v *view) explainMoving(i *instance) {
	if len(v.soakTexts) > 0 {
		for _, text := range v.soakTexts {
			v.reason(ReasonProgress, text)
		}
		v.soakTexts, v.soakReported = nil, true
	}
	if v.soakReported {
		return // the reasons concern all instances
	}
	a, before := &i.Delivery.Apply, len(v.out.Reasons)
	if v.explainFlapping(i) {
		return
	}
	v.explainApply(i)
	if known := i.Flapping() && i.current.Reason == a.RepairCause; !known && i.current.Reason != "" && (!a.Running || a.OK) {
		v.instanceReason(i, ReasonProgress, "%s", i.current.Reason)
	}
	switch {
	case len(v.out.Reasons) > before || before > 0 && !v.fleet():
	case i.current.Stable:
		v.instanceReason(i, ReasonProgress, "stable")
	default:
		v.instanceReason(i, ReasonProgress, "%s is to be applied", i.Delivery.Target.FullVersion)
	}
	if v.out.Status == entities.StatusDegraded {
		v.explainUnrepaired(i)
	}
}

// explainFlapping names how often an instance that does not stay stable was repaired, the cause, and what ends it. It reports whether it is
// stable now, so that no more is to be said.
func (v *view) explainFlapping(i *instance) bool {
	if !i.Flapping() {
		return false
	}
	v.instanceReason(i, ReasonFlapping, "%s: %s", i.RepairsText(), i.Delivery.Apply.RepairCause)
	if i.current.Stable {
		v.instanceReason(i, ReasonProgress, "stable now; it is CONVERGED once it has been stable for %s", entities.RoundDuration(i.runtime.Timing.RetryMax))
	}
	return i.current.Stable
}

// explainUnrepaired states why a degraded instance is not repaired, and what a person can do; nothing if it is being repaired.
func (v *view) explainUnrepaired(i *instance) {
	why := ""
	switch {
	case !v.spec.Repairs():
		why = "not repaired: drift is only observed here"
	case i.Delivery.Converged && i.current.Known && i.current.AsDeclared:
		why = "not repaired: it is as declared, so an apply would change nothing"
	}
	if why == "" || slices.ContainsFunc(v.out.Reasons, func(r Reason) bool { return r.Text == why }) {
		return
	}
	v.reason(ReasonProgress, why)
	if v.isReportOnly() {
		return
	}
	name := v.s.Application + "/" + v.s.Title()
	command := fmt.Sprintf("release a fix, or: converge restart %s %s", name, v.spec.Name)
	if back, _ := v.s.RollbackTarget(i.Instance); back != nil && v.pin == nil {
		command += fmt.Sprintf(", or roll back to %s: converge rollback %s %s --channel %s", back.FullVersion, name, i.Delivery.Target.FullVersion, v.spec.Name)
	}
	v.reason(ReasonCommand, command)
}

// explainRollback describes a rollback, its cause, and what a person can do.
func (v *view) explainRollback(i *instance) {
	b, back := i.Delivery.Rollback, i.Delivery.Target.FullVersion
	switch {
	case !b.Failed.IsZero():
		v.instanceReason(i, ReasonFailure, "the rollback to %s failed: %s", back, i.Delivery.Failure)
		v.instanceReason(i, ReasonRollback, "%s was %s", b.From, b.Text())
		v.explainMaintenance(i)
		v.reason(ReasonCommand, v.retryAdvice(back))
	case !i.Delivery.Converged:
		v.instanceReason(i, ReasonRollback, "%s was %s; rolling back to %s", b.From, b.Text(), back)
		v.explainApply(i)
		if a := &i.Delivery.Apply; i.current.Known && i.current.Reason != "" && (!a.Running || a.OK) {
			v.instanceReason(i, ReasonProgress, "%s", i.current.Reason)
		}
	default:
		v.instanceReason(i, ReasonRollback, "%s was %s; it is barred here, %s stays until a newer release", b.From, b.Text(), back)
		v.reason(ReasonCommand, v.retryAdvice(b.From))
	}
}

// retryAdvice is the advice for a version that failed.
func (v *view) retryAdvice(version string) string {
	return fmt.Sprintf("release a fix, or: converge retry %s/%s %s", v.s.Application, v.s.Title(), version)
}
