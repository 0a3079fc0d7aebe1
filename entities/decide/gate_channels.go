package decide

import (
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// This file holds the gates that the channel itself is: nothing else is going on in it, what is there is known,
// and nobody holds it where it is.

func judgeInProgress(p *admission, _ entities.Stage) {
	if holder := p.view.release(p.turn.Holder); holder != nil {
		p.add(Judgement{
			Kind: KindInProgress, ID: string(KindInProgress), Verdict: entities.Wait,
			Reason: holder.FullVersion + " is in progress here", Since: holder.Phases[p.spec.Name].Since,
		})
		return
	}
	for n := range p.insts {
		if i := &p.insts[n]; i.Delivery.Apply.Running {
			p.add(Judgement{
				Kind: KindInProgress, ID: string(KindInProgress), Verdict: entities.Wait,
				Reason: p.of(i, "an apply is still running"), Since: i.Delivery.Apply.Started,
			})
			return
		}
	}
}

// judgeReading: an unknown state is never "no difference", so it holds ordinary promotion (D17).
func judgeReading(p *admission, _ entities.Stage) {
	for n := range p.insts {
		i := &p.insts[n]
		if !i.unknown() {
			continue
		}
		j := Judgement{Kind: KindReading, ID: string(KindReading), Verdict: entities.Wait, Reason: p.of(i, "no reading yet")}
		if e := i.Observed.Reading.Err; e != nil {
			j.Verdict, j.Reason, j.Since = entities.Error, p.of(i, e.Message), i.Observed.ErrSince
		}
		p.add(j)
		return
	}
}

func whereObservable(v *view, entered bool) []string {
	for n := range v.insts {
		if v.insts[n].runtime.Observable && !entered {
			return []string{string(KindReading)}
		}
	}
	return nil
}

func whereAsked(v *view, entered bool) []string {
	for n := range v.insts {
		if v.insts[n].runtime.Mode == entities.FetchExitCode && !entered {
			return []string{string(KindAsked)}
		}
	}
	return nil
}

// judgeRollback holds the next release while a rollback is under way, and after it failed: then only a release
// that was made since goes on.
func judgeRollback(p *admission, _ entities.Stage) {
	for n := range p.insts {
		i := &p.insts[n]
		b := i.Delivery.Rollback
		if b == nil || i.Delivery.Converged || !b.Failed.IsZero() && !p.release.At.Before(b.Failed) {
			continue
		}
		to := i.Delivery.Target.FullVersion
		j := Judgement{
			Kind: KindRollback, ID: string(KindRollback), Subject: to, Verdict: entities.Wait, Since: b.At,
			Reason: p.of(i, fmt.Sprintf("going back from %s to %s", b.From, to)),
		}
		if !b.Failed.IsZero() {
			j.Verdict, j.Since = entities.Fail, b.Failed
			j.Reason = p.of(i, fmt.Sprintf("the rollback to %s failed: only a release made since goes on", to))
		}
		p.add(j)
		return
	}
}

func unblockRollback(v *view, j *Judgement, _ *state.Release) string {
	if j.Verdict != entities.Fail {
		return ""
	}
	return v.retry(j.Subject)
}

// judgePin holds what is released while the channel is pinned.
func judgePin(p *admission, _ entities.Stage) {
	if p.pin != nil {
		p.add(Judgement{Kind: KindPin, ID: string(KindPin), Verdict: entities.Wait, Reason: p.pin.Text(), Since: p.pin.At})
	}
}

func unblockPin(v *view, _ *Judgement, _ *state.Release) string {
	return fmt.Sprintf("converge unpin %s/%s %s", v.s.Application, v.s.Service, v.spec.Name)
}
