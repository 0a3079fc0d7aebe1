package entities

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// This file judges what comes between stable objects and success: the windows of post-deployment
// checks and the post-deployment extensions (A19, A21). A channel without any is converged at once.

// window is one post-deployment check of a channel, from when to when its verdict counts.
type window struct {
	check      Check
	key        string // in Instance.Soaked
	begin, end time.Time
}

// windows of a channel whose objects are stable since then.
func (c *ChannelSpec) windows(stable time.Time) []window {
	var out []window
	for _, check := range c.Checks {
		for _, at := range check.At {
			if at.Stage == PostDeployment {
				begin := stable.Add(at.Delay)
				out = append(out, window{check, fmt.Sprintf("%s+%s", check.ID, at.Delay+at.For), begin, begin.Add(at.For)})
			}
		}
	}
	return out
}

// soaks tells whether anything comes between stable objects and success.
func (c *ChannelSpec) soaks() bool {
	return len(c.windows(time.Time{})) > 0 ||
		slices.ContainsFunc(c.Extensions, func(e Extension) bool { return e.Stage == PostDeployment })
}

// judgeMoving sees how far a target is that has not converged: its objects become stable, the
// post-deployment window passes, or something fails.
func (v *view) judgeMoving(holder *Release, broken string) {
	id := ""
	if holder != nil {
		id = holder.ID
	}
	stable := v.out.Current.Stable && (!v.inst.Return || v.inst.Progress.OK)
	soaking := !v.inst.StableSince.IsZero()
	switch {
	case broken != "":
		v.change(Change{Kind: ChangeFail, Release: id, Cause: broken})
	case stable && holder != nil && v.spec.soaks():
		v.soak(holder)
	case stable:
		v.change(Change{Kind: ChangeConverged, Release: id, Target: v.inst.Target})
	case !soaking:
		v.judgeProgress(id)
	case !v.out.Current.Known: // the window goes on; it does not end before something is known
		v.told = append(v.told, "soaking")
	case v.inst.Fresh && v.out.Current.Failed != "":
		v.change(Change{Kind: ChangeFail, Release: id, Cause: v.out.Current.Failed})
	default:
		v.change(Change{Kind: ChangeUnsettled, Release: id, Cause: v.out.Current.Reason})
	}
}

// deploymentBroken says which check fails the release while it is deploying, or "", and has those
// judged that may (A19).
func (v *view) deploymentBroken(r *Release) string {
	if r == nil || v.inst.Converged || !v.inst.StableSince.IsZero() {
		return ""
	}
	why := ""
	for i := range v.spec.Checks {
		c := &v.spec.Checks[i]
		if at := c.at(Deployment); at == nil || !at.Fails || r.bypassed(v.spec.Name, c.ID) != nil {
			continue
		}
		v.want(c, r.ID)
		if j, broken := v.breaks(c, r); broken && why == "" && !v.facts.Paused {
			why = c.ID + because(j.Reason)
		}
	}
	return why
}

// breaks tells whether a check fails a release that is in progress: it says WAIT or FAIL. An ERROR and
// a check that was not judged yet fail nothing (A19).
func (v *view) breaks(c *Check, r *Release) (Judgement, bool) {
	st := v.inst.reading(v.s.lookAt(v.spec, c, r))
	if st == nil || st.Verdict != Wait && st.Verdict != Fail {
		return Judgement{}, false
	}
	return v.judgeCheck(c, r), true
}

// soak goes through the post-deployment window of the release in progress. A verdict in its window
// that is neither PASS nor ERROR fails the channel; at the end a fresh look must PASS, and every
// extension must be done.
func (v *view) soak(r *Release) {
	if v.inst.StableSince.IsZero() {
		v.change(Change{Kind: ChangeStable, Release: r.ID, Target: v.inst.Target})
		return
	}
	if v.facts.Paused {
		v.told = append(v.told, "its post-deployment window stands still")
		return
	}
	if why := v.extensionFailed(r); why != "" {
		v.change(Change{Kind: ChangeFail, Release: r.ID, Cause: why})
		return
	}
	p := &passage{view: v, release: r, clear: true, asked: true}
	p.extensions(PostDeployment)
	for _, g := range p.gates {
		if g.Verdict != Pass {
			v.told = append(v.told, g.ID+" "+string(g.Verdict)+because(g.Reason))
		}
	}
	open, failed := v.judgeWindows(r)
	switch {
	case failed != "":
		v.change(Change{Kind: ChangeFail, Release: r.ID, Cause: failed})
	case !open && p.clear:
		v.change(Change{Kind: ChangeConverged, Release: r.ID, Target: v.inst.Target})
	}
}

// extensionFailed says which post-deployment extension has spent its attempts, or "".
func (v *view) extensionFailed(r *Release) string {
	for _, e := range v.spec.Extensions {
		id := "extension/" + e.Name
		if s := r.Extensions[e.ExtensionKey()]; e.Stage == PostDeployment && s != nil && s.Failed && r.bypassed(v.spec.Name, id) == nil {
			return fmt.Sprintf("extension %s failed %s: %s", e.Name, times(s.Attempts), s.Err)
		}
	}
	return ""
}

// judgeWindows tells whether a window is still open, or which check fails the channel.
func (v *view) judgeWindows(r *Release) (open bool, failed string) {
	var told []string
	var ended []CheckLook
	var until time.Time
	for _, w := range v.spec.windows(v.inst.StableSince) {
		if slices.Contains(v.inst.Soaked, w.key) || r.bypassed(v.spec.Name, w.check.ID) != nil {
			continue
		}
		open = true
		if w.end.After(until) {
			until = w.end
		}
		if v.now.Before(w.begin) {
			v.due(w.begin)
			told = append(told, w.check.ID+" counts from "+clock(w.begin, v.now))
			continue
		}
		v.want(&w.check, r.ID)
		if j, broken := v.breaks(&w.check, r); broken {
			return true, w.check.ID + because(j.Reason)
		}
		told = append(told, tell(v.judgeCheck(&w.check, r)))
		if v.now.Before(w.end) {
			v.due(w.end)
			continue
		}
		ended = append(ended, v.s.lookAt(v.spec, &w.check, r))
	}
	if open {
		v.told = append(v.told, "soaking until "+clock(until, v.now)+": "+strings.Join(told, ", "))
	}
	v.lookAgain(r, ended)
	return open, ""
}

func tell(j Judgement) string {
	if j.Verdict == Pass {
		return j.ID + " PASS"
	}
	return j.ID + " " + string(j.Verdict) + because(j.Reason)
}

// lookAgain asks for the fresh look at checks whose window has ended.
func (v *view) lookAgain(r *Release, ended []CheckLook) {
	p := v.inst.Preflight
	switch {
	case len(ended) == 0 || v.mode.Drain || p != nil && p.Running:
	case p != nil && p.Window && p.Release == r.ID && v.now.Before(p.Next):
		v.due(p.Next)
	default:
		v.d.Preflights = append(v.d.Preflights, PreflightOp{Channel: v.spec.Name, Release: r.ID, Checks: ended, Window: true})
	}
}

// windowRead takes in the fresh look at the end of windows: what passes has soaked, an error is looked
// at again after the check's interval, and anything else fails the channel.
func (s *State) windowRead(op PreflightOp, readings map[string]CheckReading, now time.Time) {
	i := s.Instances[op.Channel]
	if i == nil {
		return // the channel was removed meanwhile
	}
	c, declared := s.Spec.Channel(op.Channel)
	if p := i.Preflight; p == nil || !p.Running || !p.Window || p.Release != op.Release {
		return
	}
	i.Preflight = nil
	if !declared || i.StableSince.IsZero() {
		return
	}
	again := time.Duration(0)
	for _, l := range op.Checks {
		r := l.answer(readings, now)
		s.CheckSeen(l, r, now)
		switch {
		case r.Verdict == Error && (again == 0 || l.Interval < again):
			again = max(l.Interval, time.Second)
		case r.Verdict == Pass:
			i.soaked(&c, l.ID, now)
		}
	}
	if again > 0 {
		i.Preflight = &Preflight{Release: op.Release, Window: true, Next: now.Add(again)}
	}
}

// soaked takes note that the windows of a check which have ended did so with a fresh PASS.
func (i *Instance) soaked(c *ChannelSpec, id string, now time.Time) {
	for _, w := range c.windows(i.StableSince) {
		if w.check.ID == id && !now.Before(w.end) && !slices.Contains(i.Soaked, w.key) {
			i.Soaked = append(i.Soaked, w.key)
		}
	}
}

// begins forgets what was read of the checks whose windows begin: what counts is read in them.
func (i *Instance) begins(c ChannelSpec) {
	for _, check := range c.Checks {
		if check.at(PostDeployment) != nil {
			delete(i.Checks, check.ID)
		}
	}
}

// settle ends a post-deployment window, however it went.
func (i *Instance) settle() {
	i.StableSince, i.Soaked = time.Time{}, nil
	if i.Preflight != nil && i.Preflight.Window && !i.Preflight.Running {
		i.Preflight = nil
	}
}

// clock is a time of day for people, with the day when it is another one.
func clock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04") + " UTC"
	}
	return t.Format("2006-01-02 15:04") + " UTC"
}
