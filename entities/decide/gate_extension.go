package decide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// This file holds extensions: commands of the user that run once per release at a stage, and hold everything after them until they
// succeed (A21).

func extensionID(name string) string { return string(KindExtension) + "/" + name }

// extensions adds the judgements of the extensions of a stage, and starts those that are due: each after the ones that it names.
func (p *admission) extensions(stage entities.Stage) {
	if len(p.spec.Extensions) == 0 {
		return
	}
	ready := p.clear && !p.changed && !p.paused
	for n := range p.spec.Extensions {
		if e := &p.spec.Extensions[n]; e.Stage == stage {
			p.add(p.judgeExtension(p.release, e, ready))
		}
	}
}

func (v *view) judgeExtension(r *state.Release, e *entities.Extension, ready bool) Judgement {
	j := Judgement{Kind: KindExtension, ID: extensionID(e.Name), Subject: e.Name, Verdict: entities.Wait}
	if r.BypassOf(v.spec.Name, j.ID) != nil {
		return j // it need not run
	}
	st := r.Extensions[e.RunKey()]
	elsewhere := ""
	if st != nil {
		j.Since = st.Since
		if st.Channel != v.spec.Name && st.Channel != "" {
			j.Elsewhere = st.Channel
			elsewhere = ", for " + st.Channel
		}
	}
	switch {
	case st != nil && st.Done:
		j.Verdict, j.Reason = entities.Pass, "succeeded"+elsewhere
	case st != nil && st.Failed:
		j.Verdict, j.Reason = entities.Fail, "failed "+entities.Times(st.Attempts)+entities.Because(st.Err)+elsewhere
	case st != nil && (st.Running || !st.NoWorkerSince.IsZero() || v.now.Before(st.Next)):
		v.describeExtension(&j, r, e, ready, elsewhere)
	case v.isReportOnly():
		j.Verdict, j.Reason = entities.Pass, "report only: it would run here"
	case !ready:
		return notEvaluated(KindExtension, j.ID, "runs once the earlier gates pass")
	default:
		j.Reason = v.startExtension(r, e)
	}
	return j
}

// describeExtension describes the progress of a started extension: it waits for a worker, runs, or waits for a retry.
func (v *view) describeExtension(j *Judgement, r *state.Release, e *entities.Extension, ready bool, elsewhere string) {
	st := r.Extensions[e.RunKey()]
	switch {
	case !st.NoWorkerSince.IsZero():
		if !st.Running && ready {
			v.startExtension(r, e)
		}
		j.Reason, j.Since = entities.CodeNoWorker+": "+st.Err, st.NoWorkerSince
	case st.Running:
		where := ""
		if e.Place != "" {
			where = " as " + e.Place
		}
		j.Reason = fmt.Sprintf("runs%s, attempt %d%s", where, st.Attempts+1, elsewhere)
	default:
		j.Reason, j.Next = "failed "+entities.Times(st.Attempts)+entities.Because(st.Err), st.Next
		if ready {
			v.due(st.Next)
		}
	}
}

func unblockExtension(v *view, _ *Judgement, r *state.Release) string {
	return v.command("retry", r)
}

// startExtension starts an extension unless something else must happen first, and returns the reason.
func (v *view) startExtension(r *state.Release, e *entities.Extension) string {
	op := state.ExtensionOp{Channel: v.spec.Name, Release: r.ID, Extension: *e, Attempt: 1}
	if st := r.Extensions[e.RunKey()]; st != nil && !st.Over() {
		op.Attempt = st.Attempts + 1
	}
	if e.Stage == entities.OnRollback {
		op.BackTo = v.rollbackVersion()
	}
	switch missing := v.missingExtensions(r, e); {
	case len(missing) > 0:
		return "runs after " + strings.Join(missing, ", ")
	case v.endingRun(r, e.RunKey()) != nil:
		return "runs once the cancelled run for " + v.endingRun(r, e.RunKey()).FullVersion + " has ended"
	case v.mode.NoNewWork:
		return "runs once the workflow has continued as new"
	}
	if by := v.startedFor(r, e); by != "" { // another channel that shares it starts it in this decision
		return "runs for " + by
	}
	v.d.Extensions = append(v.d.Extensions, op)
	return "starts"
}

// startedFor is the channel for which this decision starts an extension, or "".
func (v *view) startedFor(r *state.Release, e *entities.Extension) string {
	for n := range v.d.Extensions {
		if o := &v.d.Extensions[n]; o.Release == r.ID && o.Extension.RunKey() == e.RunKey() {
			return o.Channel
		}
	}
	return ""
}

// missingExtensions are the extensions that must succeed first and have not.
func (v *view) missingExtensions(r *state.Release, e *entities.Extension) []string {
	var out []string
	for n := range v.spec.Extensions {
		first := &v.spec.Extensions[n]
		if !slices.Contains(e.After, first.Name) {
			continue
		}
		st := r.Extensions[first.RunKey()]
		if (st == nil || !st.Done || v.startedFor(r, first) != "") && r.BypassOf(v.spec.Name, extensionID(first.Name)) == nil {
			out = append(out, first.Name)
		}
	}
	return out
}

// extensionIDs lists those that can be bypassed: all before the release enters, then those that run afterwards.
func extensionIDs(v *view, entered bool) []string {
	var out []string
	for n := range v.spec.Extensions {
		if e := &v.spec.Extensions[n]; e.Stage == entities.PostDeployment || !entered && e.Stage.BeforeEntry() {
			out = append(out, extensionID(e.Name))
		}
	}
	return out
}

func refusedByExtension(r *state.Release, c *entities.ChannelSpec) bool {
	for n := range c.Extensions {
		e := &c.Extensions[n]
		st := r.Extensions[e.RunKey()]
		if e.Stage.BeforeEntry() && st != nil && st.Failed && r.BypassOf(c.Name, extensionID(e.Name)) == nil {
			return true
		}
	}
	return false
}
