package entities

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// This file holds extensions: commands of the user's that run once per release at a stage, and hold
// what comes after until they have succeeded (A21).

// extensions adds the judgements of the extensions of a stage, and starts those whose turn it is.
func (p *passage) extensions(stage Stage) {
	if len(p.spec.Extensions) == 0 {
		return
	}
	ready := p.clear && !p.changed && !p.facts.Paused
	for _, j := range p.runExtensions(p.release, stage, ready) {
		p.add(j)
	}
}

// runExtensions judges the extensions of a stage for a release. When ready, it starts those that may
// run: each after those it names.
func (v *view) runExtensions(r *Release, stage Stage, ready bool) []Judgement {
	var out []Judgement
	for i := range v.spec.Extensions {
		if e := &v.spec.Extensions[i]; e.Stage == stage {
			out = append(out, v.runExtension(r, e, ready))
		}
	}
	return out
}

func (v *view) runExtension(r *Release, e *Extension, ready bool) Judgement {
	j := Judgement{ID: extensionID(e.Name), Verdict: Wait}
	if b := r.bypassed(v.spec.Name, j.ID); b != nil {
		return b.judgement()
	}
	st := r.Extensions[e.ExtensionKey()]
	if st != nil {
		j.Since = st.Since
	}
	switch {
	case st != nil && st.Done:
		j.Verdict, j.Reason = Pass, "succeeded"+v.elsewhere(st)
	case st != nil && st.Failed:
		j.Verdict, j.Reason = Fail, "failed "+times(st.Attempts)+because(st.Err)+v.elsewhere(st)
		j.Unblock = v.command("retry", r)
	case st != nil && st.Running:
		j.Reason = fmt.Sprintf("runs, attempt %d%s", st.Attempts+1, v.elsewhere(st))
	case st != nil && v.now.Before(st.Next):
		j.Reason, j.Next = "failed "+times(st.Attempts)+because(st.Err), st.Next
		if ready {
			v.due(st.Next)
		}
	default:
		j.Reason = v.startExtension(r, e, ready)
	}
	return j
}

// startExtension starts an extension unless something comes first, and says what.
func (v *view) startExtension(r *Release, e *Extension, ready bool) string {
	op := ExtensionOp{Channel: v.spec.Name, Release: r.ID, Extension: *e, Attempt: 1}
	if st := r.Extensions[e.ExtensionKey()]; st != nil {
		op.Attempt = st.Attempts + 1
	}
	switch missing := v.missing(r, e); {
	case !ready:
		return "runs" + unasked
	case len(missing) > 0:
		return "runs after " + strings.Join(missing, ", ")
	case v.mode.Drain:
		return "runs once the workflow has continued as new"
	}
	for i := range v.d.Extensions { // another channel that shares it starts it in this very moment
		if o := &v.d.Extensions[i]; o.Release == r.ID && o.Extension.ExtensionKey() == e.ExtensionKey() {
			return "runs for " + o.Channel
		}
	}
	v.d.Extensions = append(v.d.Extensions, op)
	return "starts"
}

// missing are the extensions that must have succeeded first, and have not.
func (v *view) missing(r *Release, e *Extension) []string {
	var out []string
	for i := range v.spec.Extensions {
		first := &v.spec.Extensions[i]
		if !slices.Contains(e.After, first.Name) {
			continue
		}
		st := r.Extensions[first.ExtensionKey()]
		if (st == nil || !st.Done) && r.bypassed(v.spec.Name, extensionID(first.Name)) == nil {
			out = append(out, first.Name)
		}
	}
	return out
}

// elsewhere says for which other channel a shared extension ran.
func (v *view) elsewhere(st *ExtensionState) string {
	if st.Channel == v.spec.Name || st.Channel == "" {
		return ""
	}
	return ", for " + st.Channel
}

func extensionID(name string) string { return "extension/" + name }

// ExtensionEnded takes in how a run of an extension ended; an empty err is success. A failed one is
// tried again with backoff until its attempts are spent. Tail is the end of its output, log the key
// of all of it in the store.
func (s *State) ExtensionEnded(op ExtensionOp, err, tail, log string, now time.Time) {
	r := s.ReleaseByID(op.Release)
	if r == nil || r.Extensions[op.Extension.ExtensionKey()] == nil {
		return
	}
	st := r.Extensions[op.Extension.ExtensionKey()]
	if st.Done {
		return
	}
	st.Running, st.Since, st.Err, st.Tail, st.Log = false, now, err, tail, log
	st.Attempts++
	e := &op.Extension
	switch {
	case err == "":
		st.Done = true
		s.Record(now, op.Channel, fmt.Sprintf("extension %s of %s succeeded", e.Name, r.FullVersion))
	case st.Attempts >= e.MaxAttempts:
		st.Failed = true
		s.Record(now, op.Channel, fmt.Sprintf("extension %s of %s failed %s: %s", e.Name, r.FullVersion, times(st.Attempts), err))
	default:
		st.Next = now.Add(backoff(RuntimeTiming{RetryBackoff: e.RetryBackoff, RetryMax: e.RetryMax}, st.Attempts))
	}
}

// retryExtensions lets failed extensions of a release run again in a channel, and tells whether there
// are any. One that waits for its next attempt is tried at once.
func (s *State) retryExtensions(r *Release, channel string, now time.Time) bool {
	again := false
	spec, _ := s.Spec.Channel(channel)
	for n := range spec.Extensions {
		st := r.Extensions[spec.Extensions[n].ExtensionKey()]
		if st == nil || st.Running || st.Done || !st.Failed && st.Next.IsZero() {
			continue
		}
		st.Failed, st.Attempts, st.Next, st.Since = false, 0, time.Time{}, now
		again = true
	}
	return again
}
