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

// explained is the number of instances of a fleet for which reasons are given.
const explained = 3

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
		for _, j := range v.out.Gates[:len(v.out.Gates)-len(v.ofStep)] { // the reasons of a step are in explainStep
			if j.Verdict != entities.Pass && j.Code != CodeNotAsked {
				v.reason(ReasonGate, v.line(j))
			}
		}
	case entities.StatusConverged:
	default:
		shown := 0
		for n := range v.insts {
			if i := &v.insts[n]; (!v.fleet() || entities.StatusOf(i.facts) == v.out.Status) && shown < explained {
				shown++
				v.explainInstance(i)
			}
		}
	}
	for _, text := range v.after {
		v.reason(ReasonProgress, text)
	}
}

// mayExplain reports whether the wait of one more instance is described: of a large fleet only the first are named.
func (v *view) mayExplain() bool {
	v.said++
	return v.said <= explained
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
		what := string(i.Status)
		if i.Status == entities.StatusConverged {
			what = "at " + cmp.Or(entities.ShownVersions(i.Current.Active), "nothing")
		}
		if count[what]++; count[what] == 1 {
			order = append(order, what)
		}
	}
	if len(order) == 1 && order[0] != string(v.out.Instances[0].Status) {
		return // all are where they should be: the other reasons concern the waiting release
	}
	parts := make([]string, len(order))
	for n, what := range order {
		parts[n] = fmt.Sprintf("%d %s", count[what], what)
	}
	v.reason(ReasonProgress, fmt.Sprintf("of %d instances %s", len(v.out.Instances), strings.Join(parts, ", ")))
}

func (v *view) explainPause() {
	if len(v.insts) == 0 {
		if len(v.away) > 0 {
			return // their reasons are given in leaveAll
		}
		pause, _ := v.s.PauseIn(v.spec.Name)
		v.reason(ReasonPause, "paused by "+pause.By+entities.Because(pause.Reason))
		return
	}
	for n := range v.insts { // the first paused one: a fleet may have more
		i := &v.insts[n]
		if !i.paused {
			if r := v.release(v.turn.Holder); r != nil && !v.paused && v.heldThere(i, r) != "" {
				v.say(i, ReasonPause, "%s", v.heldThere(i, r))
				break
			}
			continue
		}
		pause, _ := v.s.PauseOf(i.ID)
		text := fmt.Sprintf("paused by %s%s", pause.By, entities.Because(pause.Reason))
		if !v.paused {
			text = v.of(i, text)
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
	v.say(i, ReasonFailure, "%s failed: %s", i.Delivery.Target.FullVersion, i.Delivery.Failure)
	if i.Delivery.Rollback != nil || v.pin != nil || v.spec.NoRollback || v.reports() {
		return
	}
	switch back, why := v.s.ReturnsTo(i.Instance); {
	case back != nil:
		v.say(i, ReasonRollback, "once resumed it is rolled back to %s", back.FullVersion)
	case why != "":
		v.say(i, ReasonRollback, "not rolled back once resumed: %s", why)
	}
}

// say adds a reason of one instance.
func (v *view) say(i *instance, code ReasonCode, format string, args ...any) {
	v.reason(code, v.of(i, fmt.Sprintf(format, args...)))
}

func (v *view) explainInstance(i *instance) {
	d := &i.Delivery
	switch v.out.Status {
	case entities.StatusFailedRollback, entities.StatusRollingBack, entities.StatusRolledBack:
		v.explainRollback(i)
	case entities.StatusFailed:
		v.say(i, ReasonFailure, "%s failed: %s", d.Target.FullVersion, d.Failure)
		if v.pin != nil {
			v.reason(ReasonPin, v.pin.Text())
		}
		if back, why := v.s.ReturnsTo(i.Instance); back == nil && why != "" && !v.spec.NoRollback {
			v.say(i, ReasonRollback, "not rolled back: %s", why)
			v.reason(ReasonCommand, "release a fix, or, "+v.s.PassFloor(i.Instance))
		}
		if i.current.Stable {
			v.say(i, ReasonProgress, "its objects are stable now; retry accepts it")
		}
	case entities.StatusUnknown:
		switch e := i.Observed.Reading.Err; {
		case !d.Apply.Untaken.IsZero(): // explainApply describes it
		case e != nil:
			v.say(i, ReasonFailure, "%s: %s", e.Code, e.Message)
			if e.Code == entities.CodeNoWorker {
				v.startWorker(i)
			}
		default:
			v.say(i, ReasonProgress, "no reading yet")
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
	case !a.Untaken.IsZero():
		v.say(i, ReasonFailure, "%s: %s; %s is applied once one does", entities.CodeNoWorker, a.Err, d.Target.FullVersion)
		v.startWorker(i)
	case a.Running && a.Of == "":
		v.say(i, ReasonProgress, "%s is applied once its removal has ended", d.Target.FullVersion)
	case a.Running && a.Of != "" && a.Of != d.Target.FullVersion:
		v.say(i, ReasonProgress, "%s is applied once the apply of %s has ended", d.Target.FullVersion, a.Of)
	case a.Running && !a.Ending.IsZero():
		v.say(i, ReasonProgress, "the apply of %s is being ended", d.Target.FullVersion)
	case a.Running && a.Attempts > 0:
		v.say(i, ReasonProgress, "applying %s, attempt %d", d.Target.FullVersion, a.Attempts+1)
	case a.Running:
		v.say(i, ReasonProgress, "applying %s", d.Target.FullVersion)
	case a.Err != "" && a.Attempts == 0:
		v.say(i, ReasonFailure, "the apply cannot begin: %s", a.Err)
	case a.Err != "":
		v.say(i, ReasonFailure, "apply failed %s: %s", entities.Times(a.Attempts), a.Err)
	}
}

// startWorker adds the command that starts a worker for a runtime without one.
func (v *view) startWorker(i *instance) {
	runtime, _ := v.s.Runtime(i.ID)
	command := "start a worker that can reach it: converge worker --runtime " + runtime
	if !slices.ContainsFunc(v.out.Reasons, func(r Reason) bool { return r.Text == command }) {
		v.reason(ReasonCommand, command)
	}
}

func (v *view) explainMoving(i *instance) {
	if len(v.soaking) > 0 {
		for _, text := range v.soaking {
			v.reason(ReasonProgress, text)
		}
		v.soaking, v.soaked = nil, true
	}
	if v.soaked {
		return // the reasons concern all instances
	}
	a, before := &i.Delivery.Apply, len(v.out.Reasons)
	v.explainApply(i)
	if i.current.Reason != "" && (!a.Running || a.OK) {
		v.say(i, ReasonProgress, "%s", i.current.Reason)
	}
	switch {
	case len(v.out.Reasons) > before || before > 0 && !v.fleet():
	case i.current.Stable:
		v.say(i, ReasonProgress, "stable")
	default:
		v.say(i, ReasonProgress, "%s is to be applied", i.Delivery.Target.FullVersion)
	}
	if v.out.Status == entities.StatusDegraded {
		v.explainUnrepaired(i)
	}
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
	if v.reports() {
		return
	}
	what := v.s.Application + "/" + v.s.Title()
	command := fmt.Sprintf("release a fix, or: converge restart %s %s", what, v.spec.Name)
	if back, _ := v.s.ReturnsTo(i.Instance); back != nil && v.pin == nil {
		command += fmt.Sprintf(", or roll back to %s: converge rollback %s %s --channel %s", back.FullVersion, what, i.Delivery.Target.FullVersion, v.spec.Name)
	}
	v.reason(ReasonCommand, command)
}

// explainRollback describes a rollback, its cause, and what a person can do.
func (v *view) explainRollback(i *instance) {
	b, back := i.Delivery.Rollback, i.Delivery.Target.FullVersion
	switch {
	case !b.Failed.IsZero():
		v.say(i, ReasonFailure, "the rollback to %s failed: %s", back, i.Delivery.Failure)
		v.say(i, ReasonRollback, "%s was %s", b.From, b.Text())
		v.reason(ReasonCommand, v.retry(back))
	case !i.Delivery.Converged:
		v.say(i, ReasonRollback, "%s was %s; rolling back to %s", b.From, b.Text(), back)
		v.explainApply(i)
		if a := &i.Delivery.Apply; i.current.Known && i.current.Reason != "" && (!a.Running || a.OK) {
			v.say(i, ReasonProgress, "%s", i.current.Reason)
		}
	default:
		v.say(i, ReasonRollback, "%s was %s; it is barred here, %s stays until a newer release", b.From, b.Text(), back)
		v.reason(ReasonCommand, v.retry(b.From))
	}
}

// retry is the advice for a version that failed.
func (v *view) retry(version string) string {
	return fmt.Sprintf("release a fix, or: converge retry %s/%s %s", v.s.Application, v.s.Title(), version)
}
