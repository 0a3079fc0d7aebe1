package entities

import (
	"fmt"
	"sort"
	"strings"
	"time"
)

// world is a service with what surrounds it: the time, the work it has started, and the
// configuration that is published next. Stories drive it by hand, properties at random.
type world struct {
	s        *State
	now      time.Time
	next     Spec // published by publish
	applies  map[string]ApplyOp
	asks     map[string]AskOp
	renders  []RenderOp
	decision *Decision
	gateWork
	removes map[string]RemoveOp
}

var bob = Who{Name: "bob"}

var dawn = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func newWorld() *world {
	return &world{
		s: NewState("shop", "web"), now: dawn, decision: &Decision{},
		applies: map[string]ApplyOp{}, asks: map[string]AskOp{}, removes: map[string]RemoveOp{},
		next: Spec{
			Application: "shop", Service: "web", ServiceID: "shop/web", DeclaredAt: "web.converge.yaml:7",
			ConfigChanges: ConfigRelease, ProgressDeadline: 10 * time.Minute,
			Runtimes: map[string]RuntimeSpec{
				"local": {Kind: RuntimeFake, Mode: FetchStructured, Looks: true, Timing: testTiming()},
				"code":  {Kind: RuntimeCustom, Mode: FetchExitCode, Looks: true, Timing: testTiming()},
				"blind": {Kind: RuntimeCustom, Timing: testTiming()},
			},
		},
	}
}

func testTiming() RuntimeTiming {
	return RuntimeTiming{
		PollInterval: 10 * time.Second, SteadyPollInterval: 5 * time.Minute, GracePeriod: 4 * time.Minute,
		ApplyTimeout: 5 * time.Minute, FetchTimeout: 30 * time.Second,
		MaxAttempts: 3, RetryBackoff: 10 * time.Second, RetryMax: time.Minute,
	}
}

// channel declares a channel, or changes one: the fields given replace those it had.
func (w *world) channel(name string, change func(*ChannelSpec)) {
	for i := range w.next.Channels {
		if w.next.Channels[i].Name == name {
			change(&w.next.Channels[i])
			return
		}
	}
	c := ChannelSpec{Name: name, Runtime: "local", Template: "t1", Drift: DriftEnforce, ProgressDeadline: 10 * time.Minute, NoRollback: true}
	change(&c)
	w.next.Channels = append(w.next.Channels, c)
}

// stableIn is the condition that `releaseChannelStable` compiles to.
func stableAfter(channels ...string) Condition {
	return Condition{ID: "channel-stable/" + strings.Join(channels, "+"), Kind: ChannelStable, Channels: channels}
}

// publish takes the declared spec over, and opens what follows from it, as the workflow does.
func (w *world) publish() *Release {
	w.next.Incarnation++
	spec := w.next
	spec.Channels = append([]ChannelSpec(nil), w.next.Channels...)
	o := w.s.TakeSpec(&spec, fmt.Sprintf("spec-%d", spec.Incarnation), w.now)
	if o == nil {
		return nil
	}
	return w.open(o.Version, o.FullVersion, "")
}

func (w *world) release(version, id string) (*Release, error) {
	if err := w.s.CheckRelease(version, nil, nil); err != nil {
		return nil, err
	}
	return w.open(version, version, id), nil
}

func (w *world) open(version, fullVersion, id string) *Release {
	payloads := map[string]string{}
	for _, c := range w.s.Spec.Channels {
		payloads[c.Name] = payload(c.Template, fullVersion)
	}
	return w.s.OpenRelease(NewRelease{
		ID: id, Version: version, FullVersion: fullVersion, Incarnation: w.s.Spec.Incarnation, Payloads: payloads, By: "alice",
	}, w.now)
}

func payload(template, fullVersion string) string { return template + "@" + fullVersion }

// decide settles, and takes note of the work that this starts.
func (w *world) decide(mode Mode) *Decision {
	d := w.s.Settle(w.now, mode)
	for _, op := range d.Applies {
		w.applies[op.Channel] = op
	}
	for _, op := range d.Asks {
		w.asks[op.Channel] = op
	}
	w.renders, w.decision = d.Renders, d
	w.note(d)
	for _, op := range d.Removes {
		w.removes[op.Channel] = op
	}
	return d
}

// render answers what the last decision asked to be rendered.
func (w *world) render() {
	for _, op := range w.renders {
		template := w.s.ReleaseByID(op.Release).Templates[op.Channel]
		w.s.Rendered(op.Release, op.Channel, Target{FullVersion: op.Present, Payload: payload(template, op.Present)})
	}
	w.renders = nil
}

func (w *world) applyEnded(channel, err string, permanent bool) {
	op := w.applies[channel]
	delete(w.applies, channel)
	w.s.ApplyEnded(channel, op.Target, err, permanent, w.now)
}

// look hands in a reading of one object.
func (w *world) look(channel string, r Reading, fresh bool) {
	r.At = w.now
	asked := ""
	if i := w.s.Instances[channel]; i != nil {
		asked = i.present()
	}
	w.s.Looked(channel, asked, r, fresh, w.now)
}

func running(version string, status ObjectStatus) Reading {
	return Reading{Objects: []Object{{
		Name: "web", Type: "fake", Status: status, Versions: []ObjectVersion{{Version: version, Active: true}},
	}}}
}

// obey plays a runtime that does as it is told until nothing is left to do by itself.
func (w *world) obey() {
	for range 2000 {
		w.decide(Mode{})
		if len(w.applies)+len(w.asks)+len(w.renders) == 0 && !w.firstLooks() {
			return
		}
		w.render()
		for _, c := range SortedKeys(w.asks) {
			w.s.AskAnswered(c, w.asks[c].Target, Reading{At: w.now, Objects: []Object{{Name: "web", Type: "custom", Status: ObjectPending}}})
			delete(w.asks, c)
		}
		for _, c := range SortedKeys(w.applies) {
			version := w.applies[c].Target.FullVersion
			w.applyEnded(c, "", false)
			if w.looks(c) {
				w.look(c, running(version, ObjectSucceeded), true)
			}
		}
	}
	panic("the world does not come to rest:\n" + w.decision.String())
}

// firstLooks finds nothing where nobody has looked yet.
func (w *world) firstLooks() bool {
	any := false
	for _, c := range w.s.Spec.Channels {
		if w.looks(c.Name) && w.s.Instances[c.Name].Known == "" && (c.Runtime != "code" || w.s.Instances[c.Name].Target != nil) {
			w.look(c.Name, Reading{}, true)
			any = true
		}
	}
	return any
}

func (w *world) looks(channel string) bool { return w.s.runtime(channel).Looks }

// phases prints the releases: a line each, oldest first.
func (w *world) phases() string {
	var b strings.Builder
	for _, r := range w.s.Releases {
		var parts []string
		for _, c := range SortedKeys(r.Phases) {
			p := r.Phases[c]
			parts = append(parts, c+" "+string(p.Phase)+parenthesised(p.Reason))
		}
		fmt.Fprintf(&b, "%s %s: %s\n", r.ID, r.FullVersion, strings.Join(parts, ", "))
	}
	return b.String()
}

func parenthesised(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// targets prints what each channel is at.
func (w *world) targets() string {
	var parts []string
	for c, i := range w.s.Instances {
		if i.Target != nil {
			parts = append(parts, c+" "+i.Target.FullVersion)
		}
	}
	sort.Strings(parts)
	return strings.Join(parts, ", ")
}
