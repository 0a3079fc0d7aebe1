package loop_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// aspectWorld is a world in which versions, configurations and values of two aspects are released in any order, and fail, are cancelled,
// rolled back and held. It checks for each change of a target what it changes.
type aspectWorld struct {
	*world
	t     *rapid.T
	order map[string]int // of releases, by id
	n     int
}

// TestAspectsAtRandom_B5: a release changes only its own aspect, one change at a time is in progress at an instance, a rollback changes
// one aspect, and with everything healthy every release ends.
func TestAspectsAtRandom_B5(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &aspectWorld{world: newWorld(), t: t, order: map[string]int{}}
		p.next.Maestro.Strategy = rapid.SampledFrom([]string{"latest", "train", "immediate"}).Draw(t, "strategy")
		for _, name := range []string{"flags", "size"} {
			p.next.Aspects = append(p.next.Aspects, entities.Aspect{Name: name, Parameters: []string{name}})
			p.next.Parameters = append(p.next.Parameters, entities.ParamSpec{Name: name, Type: entities.ParamString})
		}
		for n, name := range []string{"c0", "c1"} {
			p.channel(name, func(c *entities.ChannelSpec) {
				if size := rapid.SampledFrom([]int{1, 1, 3}).Draw(t, "instances"); size > 1 {
					fleet(c, size, "local")
					if rapid.Bool().Draw(t, "in steps") {
						one, two := &entities.Amount{Number: 1}, &entities.Amount{Number: 2}
						c.Rollout = &entities.Rollout{Steps: []entities.RolloutStep{{Instances: two}, {Pause: time.Minute}}, MaxUnavailable: one}
						if rapid.Bool().Draw(t, "two pauses") {
							c.Rollout.Steps = slices.Insert(c.Rollout.Steps, 0, entities.RolloutStep{Instances: one}, entities.RolloutStep{Pause: time.Minute})
						}
					}
				}
				c.NoRollback = rapid.IntRange(0, 3).Draw(t, "no rollback") == 0
				if n > 0 {
					c.Conditions = []entities.Condition{stableAfter("c0")}
					if rapid.Bool().Draw(t, "approval") {
						c.Conditions = append(c.Conditions, entities.Condition{ID: "approval/go", Kind: entities.ManualApproval, Topic: "go", MinApprovers: 1})
					}
				}
			})
		}
		p.publish()
		p.numberReleases()
		if steps := slices.ContainsFunc(p.next.Channels, func(c entities.ChannelSpec) bool { return c.Rollout != nil }); steps && rapid.Bool().Draw(t, "midway") {
			p.startMidway()
		}
		t.Repeat(p.events())
		p.finishReleases()
	})
}

// startMidway releases a version to all channels, and, if there are steps, starts another one, with values that pass it.
func (p *aspectWorld) startMidway() {
	for _, version := range []string{"v1", "v2"} {
		for range 5 {
			p.finishWork()
			p.now = p.now.Add(time.Hour)
		}
		_, _ = p.release(version, "")
		p.numberReleases()
	}
	p.finishWork()
	_ = p.releaseAspect("flags", "flags=a", "")
	for range 3 {
		p.start(p.settle())
		p.render()
	}
}

// numberReleases numbers releases in the order of their creation.
func (p *aspectWorld) numberReleases() {
	for _, r := range p.s.Releases {
		if _, known := p.order[r.ID]; !known {
			p.n++
			p.order[r.ID] = p.n
		}
	}
}

func (p *aspectWorld) events() map[string]func(*rapid.T) {
	value := func() string { return rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(p.t, "value") }
	channel := func() string { return rapid.SampledFrom([]string{"c0", "c1"}).Draw(p.t, "channel") }
	release := func() string {
		if len(p.s.Releases) == 0 {
			return "none"
		}
		return entities.IDPrefix + rapid.SampledFrom(p.s.Releases).Draw(p.t, "release").ID
	}
	all := map[string]func(*rapid.T){
		"version": func(*rapid.T) { _, _ = p.release(fmt.Sprint("v", p.n+1), "") },
		"flags":   func(*rapid.T) { _ = p.releaseAspect("flags", "flags="+value(), "") },
		"size":    func(*rapid.T) { _ = p.releaseAspect("size", "size="+value(), "") },
		"config": func(*rapid.T) {
			p.channel(channel(), func(c *entities.ChannelSpec) {
				c.Instances = slices.Clone(c.Instances)
				c.Instances[0].Template = fmt.Sprint("t", p.n)
			})
			p.publish()
		},
		"approve": func(*rapid.T) {
			_, _ = perform(p.s.Approve(release(), entities.Approval{Topic: "go", Who: bob, At: p.now}))
		},
		"cancel": func(*rapid.T) { _, _ = perform(p.s.Cancel(state.Cancellation{Version: release(), Who: bob}, p.now)) },
		"rollback": func(*rapid.T) {
			p.checkRollback(func() { _, _ = p.rollBack(state.RollbackRequest{Version: release(), Who: bob}) })
		},
		"retry":  func(*rapid.T) { _, _ = perform(p.s.Retry(release(), channel(), bob, p.now)) },
		"pause":  func(*rapid.T) { _, _ = perform(p.s.Pause(channel(), bob, "", p.now)) },
		"resume": func(*rapid.T) { _, _ = perform(p.s.Resume(channel(), bob, p.now)) },
		"falls over": func(*rapid.T) {
			p.makeUnhealthy(rapid.SampledFrom([]entities.ObjectStatus{entities.ObjectPending, entities.ObjectFailed}).Draw(p.t, "status"))
		},
		"render": func(*rapid.T) { p.render() },
		"unrendered": func(*rapid.T) {
			if len(p.renders) > 0 {
				p.renderExcept("no such template", rapid.SampledFrom(p.renders).Draw(p.t, "render").Instance)
			}
		},
		"rest": func(*rapid.T) { p.continueAsNew() },
		"time": func(*rapid.T) { p.now = p.now.Add(time.Minute) },
		"end":  func(*rapid.T) { p.endOne(rapid.SampledFrom([]string{"", "", "", "broken"}).Draw(p.t, "end")) },
		"end2": func(*rapid.T) { p.endOne("") },
	}
	for name, event := range all {
		all[name] = func(t *rapid.T) {
			p.now = p.now.Add(time.Second)
			event(t)
			p.numberReleases()
			p.firstReadings()
			p.start(p.settle())
		}
	}
	return all
}

func (p *aspectWorld) endOne(err string) {
	ids := entities.SortedIDs(p.applies)
	if len(ids) == 0 {
		return
	}
	id := ids[0]
	if b := p.s.Instances[id].Delivery.Rollback; err == "" || b != nil && b.Who != nil { // the target of a manual rollback is healthy
		p.succeedApply(id)
		return
	}
	p.applyEnded(id, err, true)
	p.observe(id, p.s.Instances[id].Observed.Reading, true) // unchanged
}

// makeUnhealthy makes a healthy instance unhealthy, until an apply of it succeeds.
func (p *aspectWorld) makeUnhealthy(status entities.ObjectStatus) {
	ids := slices.DeleteFunc(entities.SortedIDs(p.s.Instances), func(id entities.InstanceID) bool {
		d := &p.s.Instances[id].Delivery
		return !d.Converged || d.Apply.Running
	})
	if len(ids) > 0 {
		id := rapid.SampledFrom(ids).Draw(p.t, "instance")
		p.observe(id, running(p.targetVersion(id), status), true)
	}
}

// components are the version ("") and the values of each aspect at each instance.
func (p *aspectWorld) components() map[entities.InstanceID]map[string]string {
	out := map[entities.InstanceID]map[string]string{}
	for _, id := range entities.SortedIDs(p.s.Instances) {
		if full := p.targetVersion(id); full != "" {
			out[id] = componentsOf(full)
		}
	}
	return out
}

func componentsOf(full string) map[string]string {
	version, values := entities.SplitVersion(full)
	out := map[string]string{"": version}
	for _, v := range values {
		out[entities.AspectOf(v)] = v
	}
	return out
}

// differingAspects names the aspects in which two full versions differ.
func differingAspects(a, b map[string]string) (aspects []string) {
	for _, aspect := range []string{"", "flags", "size"} {
		if a[aspect] != b[aspect] {
			aspects = append(aspects, aspect)
		}
	}
	return aspects
}

// checkRollback checks a manual rollback.
func (p *aspectWorld) checkRollback(act func()) {
	before := p.components()
	act()
	for id, now := range p.components() {
		if aspects := differingAspects(before[id], now); len(aspects) > 1 {
			p.t.Fatalf("the rollback of %s changes more than one aspect, %q: %v, before %v\n%s%s", id, aspects, now, before[id], p.phases(), p.journal())
		}
	}
}

func (p *aspectWorld) journal() string {
	var texts []string
	for _, entry := range p.s.Journal {
		texts = append(texts, entry.Channel+" "+entry.Text)
	}
	return strings.Join(texts, "\n")
}

// settle decides pass by pass, and checks each pass.
func (p *aspectWorld) settle() *decide.Decision {
	all := &decide.Decision{}
	for range 100 {
		d := decide.Decide(p.s, p.now, decide.Mode{})
		for _, c := range d.Changes {
			p.judge(c, d)
		}
		p.s.Commit(d.Changes, &d.Work, p.now)
		all.Join(d)
		p.renders, p.recalls, p.decision = d.Renders, d.Recalls, d
		if !d.HasEffects() {
			return all
		}
	}
	p.t.Fatalf("the decision does not settle:\n%s\n%s%s\n%s", p.decision, p.phases(), p.targets(), p.journal())
	return nil
}

func (p *aspectWorld) judge(c state.Change, d *decide.Decision) {
	r := p.s.ReleaseByID(c.Release)
	fail := func(format string, args ...any) {
		p.t.Fatalf("%s\n%s\n%s%s", fmt.Sprintf(format, args...), d, p.phases(), p.targets())
	}
	if (c.Kind == state.ChangePromote || c.Kind == state.ChangeTarget) && r.Aside(c.Channel) {
		fail("%s continues although it is set aside", r.FullVersion)
	}
	for _, m := range c.Moves {
		before := p.components()[m.Instance]
		aspects := differingAspects(before, componentsOf(m.Target.FullVersion))
		own := r == nil || len(aspects) == 0 || len(aspects) == 1 && aspects[0] == r.Track()
		if before != nil && !own {
			fail("%s of %s changes %q of %s", c.Kind, r.FullVersion, aspects, m.Instance)
		}
		if c.Kind != state.ChangePromote && c.Kind != state.ChangeTarget || r.Return {
			continue
		}
		i := p.s.Instances[m.Instance]
		if by := p.s.TargetRelease(i); by != nil && i.Delivery.Rollback == nil && !i.Delivery.Converged && by.Track() != r.Track() {
			fail("%s is deployed to %s on top of %s, which has not succeeded yet", r.FullVersion, m.Instance, by.FullVersion)
		}
	}
	if c.Kind == state.ChangePromote {
		for _, o := range p.s.Releases {
			also := func(k state.ChangeKind) bool {
				return slices.ContainsFunc(d.Changes, func(x state.Change) bool { return x.Kind == k && x.Release == o.ID })
			}
			may := o.Track() == r.Track() && also(state.ChangeSkip) || o.Track() != r.Track() && r.IsAspect() && (o.Aside(c.Channel) || also(state.ChangeAside))
			if ph, _ := o.PhaseIn(c.Channel); o != r && ph == maestro.InProgress && !may {
				fail("%s enters while %s is in progress", r.FullVersion, o.FullVersion)
			}
			if ph, _ := o.PhaseIn(c.Channel); o.Track() == r.Track() && ph.Entered() && p.order[o.ID] > p.order[r.ID] && !r.Return && !r.Reopened(c.Channel) {
				fail("%s enters after %s", r.FullVersion, o.FullVersion)
			}
		}
	}
	if c.Kind == state.ChangeSkip {
		if newest := slices.IndexFunc(p.s.Releases, func(o *state.Release) bool {
			ph, _ := o.PhaseIn(c.Channel)
			return o.Track() == r.Track() && p.order[o.ID] > p.order[r.ID] && (ph.Entered() || slices.ContainsFunc(d.Changes, func(x state.Change) bool { return x.Release == o.ID }))
		}); newest < 0 {
			fail("%s is skipped in %s although nothing of its aspect overtook it", r.FullVersion, c.Channel)
		}
	}
}

// finishWork lets runtimes carry out all work until nothing is left to do.
func (p *aspectWorld) finishWork() {
	for range 200 {
		p.start(p.settle())
		if len(p.applies)+len(p.renders)+len(p.recalls) == 0 && !p.firstReadings() {
			return
		}
		p.render()
		for _, id := range entities.SortedIDs(p.applies) {
			p.succeedApply(id)
		}
	}
	p.t.Fatalf("the work does not end:\n%s\n%s%s", p.decision, p.phases(), p.targets())
}

// finishReleases: with everything healthy, approved and resumed, every release ends, unless it failed before.
func (p *aspectWorld) finishReleases() {
	for _, channel := range []string{"", "c0", "c1"} {
		_, _ = perform(p.s.Resume(channel, bob, p.now))
	}
	for _, id := range entities.SortedIDs(p.s.Instances) {
		if d := &p.s.Instances[id].Delivery; d.Target != nil && !d.Apply.Running && !d.Apply.Ended.IsZero() {
			p.observe(id, running(p.targetVersion(id), entities.ObjectSucceeded), true)
		}
	}
	if _, err := p.release("last", ""); err != nil {
		p.t.Fatal(err)
	}
	for _, fix := range []string{"flags", "size"} { // a failure that was not rolled back is fixed by a release of its own aspect
		if err := p.releaseAspect(fix, fix+"=last", ""); err != nil {
			p.t.Fatal(err)
		}
	}
	p.numberReleases()
	for _, id := range entities.SortedIDs(p.s.Instances) { // a person fixes simultaneous failures of two aspects in a fleet
		if by := p.s.TargetRelease(p.s.Instances[id]); by != nil && p.s.Instances[id].Delivery.Cancelled != "" && p.s.AsideIn(id.Channel) != nil {
			_, _ = p.rollBack(state.RollbackRequest{Version: entities.IDPrefix + by.ID, Channel: id.Channel, Who: bob})
		}
		if p.s.Instances[id].Delivery.Failure != "" {
			_, _ = perform(p.s.Retry(p.targetVersion(id), id.Channel, bob, p.now))
		}
	}
	for range 8 + 3*len(p.s.Releases) { // each may pause between its steps
		for _, r := range p.s.Releases {
			_, _ = perform(p.s.Approve(entities.IDPrefix+r.ID, entities.Approval{Topic: "go", Who: bob, At: p.now}))
		}
		p.finishWork()
		p.now = p.now.Add(time.Hour)
	}
	for _, r := range p.s.Releases {
		for _, channel := range []string{"c0", "c1"} {
			ph, _ := r.PhaseIn(channel)
			if !ph.Over() && ph != "" && !(channel == "c1" && r.Phases["c0"].Phase != maestro.Succeeded) {
				p.t.Fatalf("%s is %s in %s:\n%s\n%s%s", r.FullVersion, ph, channel, p.decision, p.phases(), p.targets())
			}
		}
	}
}
