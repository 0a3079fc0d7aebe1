package loop_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/loop"
	"github.com/converge-engine/converge/entities/loosen"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// world is a service with its environment: the time, the work that it has started, and the configuration that is published next. Stories
// drive it by commands, properties at random.
type world struct {
	s          *state.State
	now        time.Time
	next       entities.Spec // published by publish
	decision   *decide.Decision
	applies    map[entities.InstanceID]state.ApplyOp
	queries    map[entities.InstanceID]state.QueryOp
	removes    map[entities.InstanceID]state.RemoveOp
	leases     map[entities.InstanceID]state.LeaseOp
	renders    []state.RenderOp
	recalls    []state.RecallOp
	recalled   int                                       // releases that were loaded from the store
	store      map[string]map[entities.InstanceID]string // release id → templates that it was rendered from
	preflights map[string]state.PreflightOp              // by channel
	extensions map[string]state.ExtensionOp              // by name
}

var bob = entities.Who{Name: "bob"}

var dawn = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func newWorld() *world {
	return &world{
		s: state.New("shop", "web"), now: dawn, decision: &decide.Decision{},
		applies: map[entities.InstanceID]state.ApplyOp{}, queries: map[entities.InstanceID]state.QueryOp{},
		removes: map[entities.InstanceID]state.RemoveOp{}, leases: map[entities.InstanceID]state.LeaseOp{},
		store:      map[string]map[entities.InstanceID]string{},
		preflights: map[string]state.PreflightOp{}, extensions: map[string]state.ExtensionOp{},
		next: entities.Spec{
			Application: "shop", Service: "web", ServiceID: "shop/web", DeclaredAt: "web.converge.yaml:7",
			ConfigChanges: entities.ConfigRelease, ProgressDeadline: 10 * time.Minute,
			Runtimes: map[string]*entities.RuntimeSpec{
				"local": {Kind: entities.RuntimeFake, Mode: entities.FetchStructured, Observable: true, Timing: timing()},
				"other": {Kind: entities.RuntimeFake, Mode: entities.FetchStructured, Observable: true, Timing: timing()},
				"code":  {Kind: entities.RuntimeCustom, Mode: entities.FetchExitCode, Observable: true, Timing: timing()},
				"blind": {Kind: entities.RuntimeCustom, Timing: timing()},
			},
		},
	}
}

func timing() entities.RuntimeTiming {
	return entities.RuntimeTiming{
		PollInterval: 10 * time.Second, SteadyPollInterval: 5 * time.Minute, GracePeriod: 4 * time.Minute,
		ApplyTimeout: 5 * time.Minute, FetchTimeout: 30 * time.Second,
		MaxAttempts: 3, RetryBackoff: 10 * time.Second, RetryMax: time.Minute,
	}
}

// channel declares a channel of one instance, or changes a channel: the given fields replace the old ones.
func (w *world) channel(name string, change func(*entities.ChannelSpec)) {
	for i := range w.next.Channels {
		if w.next.Channels[i].Name == name {
			change(&w.next.Channels[i])
			return
		}
	}
	c := entities.ChannelSpec{
		Name: name, Drift: entities.DriftEnforce, ProgressDeadline: 10 * time.Minute, NoRollback: true,
		Instances: []entities.InstanceSpec{{Name: entities.OnlyInstance, Runtime: "local", Template: "t1"}},
	}
	change(&c)
	w.next.Channels = append(w.next.Channels, c)
}

// enforcement makes a channel enforced, or report-only.
func enforcement(c *entities.ChannelSpec, value string) {
	if c.Report != "" {
		c.Drift, c.Report = c.Report, ""
		c.Conditions = slices.DeleteFunc(slices.Clone(c.Conditions), func(cond entities.Condition) bool { return cond.Kind == entities.ReportOnlyMarker })
	}
	if value == "report" {
		c.SetReportOnly()
	}
}

// fleet declares n instances of a channel: eu-1 to eu-N.
func fleet(c *entities.ChannelSpec, n int, runtimes ...string) {
	c.Instances = make([]entities.InstanceSpec, n)
	for i := range c.Instances {
		c.Instances[i] = entities.InstanceSpec{Name: fmt.Sprintf("eu-%d", i+1), Runtime: runtimes[i%len(runtimes)], Template: "t1"}
	}
}

// stableAfter is the condition that `releaseChannelStable` compiles to.
func stableAfter(channels ...string) entities.Condition {
	return entities.Condition{ID: "channel-stable/" + strings.Join(channels, "+"), Kind: entities.ChannelStable, Channels: channels}
}

// publish applies the declared spec, and opens the release that follows from it, as the workflow does.
func (w *world) publish() *state.Release {
	w.next.Incarnation++
	spec := copyOf(&w.next) // a copy, so later changes do not affect it
	for _, c := range spec.Channels {
		for n := range c.Instances {
			if i := &c.Instances[n]; i.Runtime != "local" { // a payload names its runtime
				i.Template += " on " + i.Runtime
			}
		}
	}
	w.s.RecordLoosened(spec.Incarnation, entities.Who{Name: "alice"}, loosen.Rules(w.s.Spec, spec, loosen.Definitions{}), w.now)
	o := w.s.ApplySpec(spec, fmt.Sprintf("spec-%d", spec.Incarnation), w.now)
	if o == nil {
		return nil
	}
	return w.open(o.Version, o.FullVersion, "")
}

func (w *world) release(version, id string, strategy ...string) (*state.Release, error) {
	if err := w.s.CheckRelease(version, nil, nil); err != nil {
		return nil, err
	}
	r := w.open(version, version, id)
	r.Strategy = maestro.Strategy(strings.Join(strategy, ""))
	return r, nil
}

// releaseAspect releases values of an aspect, as the workflow does: "flagSet=dark".
func (w *world) releaseAspect(aspect, sets, strategy string) error {
	parameter, value, _ := strings.Cut(sets, "=")
	if err := w.s.CheckAspect(aspect, []string{parameter}, nil); err != nil {
		return err
	}
	payloads := map[entities.InstanceID]string{}
	for _, id := range w.s.Spec.IDs() {
		payloads[id] = ""
	}
	name := entities.ValuesName(aspect, map[string]any{parameter: value}, nil)
	w.s.OpenRelease(state.NewRelease{
		Version: name, FullVersion: name, Aspect: aspect, ValuesText: sets, Incarnation: w.s.Spec.Incarnation, Payloads: payloads, By: "alice",
		Strategy: maestro.Strategy(strategy),
	}, w.now)
	return nil
}

func (w *world) open(version, fullVersion, id string) *state.Release {
	payloads := map[entities.InstanceID]string{}
	for _, c := range w.s.Spec.Channels {
		for _, i := range c.Instances {
			payloads[c.ID(i)] = payload(i.Template, fullVersion)
		}
	}
	r := w.s.OpenRelease(state.NewRelease{
		ID: id, Version: version, FullVersion: fullVersion, Incarnation: w.s.Spec.Incarnation, Payloads: payloads, By: "alice",
	}, w.now)
	w.store[r.ID] = maps.Clone(r.Templates)
	return r
}

func payload(template, fullVersion string) string { return template + "@" + fullVersion }

// decide settles, and records the work that this starts.
func (w *world) decide(mode decide.Mode) *decide.Decision {
	d := loop.Settle(w.s, w.now, mode)
	w.renders, w.recalls, w.decision = d.Renders, d.Recalls, d
	w.start(d)
	return d
}

// start records the work that a decision starts.
func (w *world) start(d *decide.Decision) {
	for _, op := range d.Applies {
		w.applies[op.Instance] = op
	}
	for _, op := range d.Queries {
		w.queries[op.Instance] = op
	}
	for _, op := range d.Removes {
		w.removes[op.Instance] = op
	}
	for _, op := range d.Preflights {
		w.preflights[op.Channel] = op
	}
	for _, op := range d.Extensions {
		w.extensions[op.Extension.Name] = op
	}
	for _, op := range d.Leases {
		if op.Return {
			delete(w.leases, op.Instance)
		} else {
			w.leases[op.Instance] = op
		}
	}
}

// render answers the renders and the loads from the store of the last decision.
func (w *world) render() { w.renderExcept("", entities.InstanceID{}) }

// renderExcept is render; with a cause, the render for that instance fails.
func (w *world) renderExcept(cause string, not entities.InstanceID) {
	for _, op := range w.renders {
		if cause != "" && op.Instance == not {
			w.s.RecordRender(op.Release, op.Instance, entities.Target{FullVersion: op.Present})
			w.s.RecordRenderFailure(op.Release, op.Instance, cause, w.now)
			continue
		}
		template := w.store[op.Release][op.Instance]
		if w.s.ReleaseByID(op.Release).IsAspect() {
			template, _, _ = strings.Cut(w.s.Instances[op.Instance].Delivery.Target.Payload, "@")
		}
		w.s.RecordRender(op.Release, op.Instance, entities.Target{FullVersion: op.Present, Payload: payload(template, op.Present)})
		if op.FullVersion != "" {
			w.s.RecordMergedRender(op, entities.Target{FullVersion: op.FullVersion, Payload: payload(template, op.FullVersion)})
		}
	}
	for _, op := range w.recalls {
		w.recall(w.s.ReleaseByID(op.Release))
	}
	w.renders, w.recalls = nil, nil
}

// rollBack rolls a release back, as the workflow does.
func (w *world) rollBack(b state.RollbackRequest) (string, error) {
	b.RenderedTargets = map[entities.InstanceID]entities.Target{}
	for _, way := range w.s.RollbackTargets(b.Version, b.Channel) {
		template, _, _ := strings.Cut(w.s.Instances[way.Instance].Delivery.Target.Payload, "@")
		b.RenderedTargets[way.Instance] = entities.Target{FullVersion: way.FullVersion, Incarnation: way.Incarnation, Payload: payload(template, way.FullVersion)}
	}
	return perform(w.s.RollBack(b, w.now))
}

func (w *world) recall(r *state.Release) {
	if r == nil || !r.Offloaded() {
		return
	}
	w.recalled++
	made := map[entities.InstanceID]string{}
	for id, template := range w.store[r.ID] {
		made[id] = payload(template, r.FullVersion)
	}
	if err := r.RestoreDigests(made); err != nil {
		panic(err)
	}
}

func (w *world) applyEnded(id entities.InstanceID, err string, permanent bool) {
	op := w.applies[id]
	delete(w.applies, id)
	w.s.ApplyEnded(id, op.Target, err, permanent, w.now)
}

func (w *world) extensionEnded(name, err string) {
	op := w.extensions[name]
	delete(w.extensions, name)
	w.s.ExtensionEnded(op, err, "the end of its output", "log-1", w.now)
}

// observe reports a reading of an instance.
func (w *world) observe(id entities.InstanceID, r entities.Reading, fresh bool) {
	r.At = w.now
	w.s.RecordReading(id, w.targetVersion(id), r, fresh, w.now)
}

// targetVersion is the full version of the target of an instance, or "".
func (w *world) targetVersion(id entities.InstanceID) string {
	if i := w.s.Instances[id]; i != nil && i.Delivery.Target != nil {
		return i.Delivery.Target.FullVersion
	}
	return ""
}

func (w *world) answer(id entities.InstanceID, r entities.Reading) {
	r.At = w.now
	op := w.queries[id]
	delete(w.queries, id)
	w.s.RecordQueryAnswer(id, op.Target, r)
}

// evaluated records the result of a check, as the activity reports it: a known result is ignored. False: it was ignored.
func (w *world) evaluated(e entities.Evaluation, r entities.CheckReading) bool {
	if e.KnownDigest != "" && r.Digest() == e.KnownDigest && !r.ReasonChanged(e) {
		return false
	}
	w.s.RecordCheck(e, r, w.now)
	return true
}

func running(version string, status entities.ObjectStatus) entities.Reading {
	return entities.Reading{Objects: []entities.Object{{
		Name: "web", Type: "fake", Status: status, Versions: []entities.ObjectVersion{{Version: version, Active: true}},
	}}}
}

// workPending is the answer of an exit-code runtime if there is something to do.
func workPending() entities.Reading {
	return entities.Reading{Objects: []entities.Object{{Name: "web", Type: "custom", Status: entities.ObjectPending}}}
}

// applyAll simulates a runtime that carries out all work until nothing is left to do.
func (w *world) applyAll() {
	for range 4000 {
		w.decide(decide.Mode{})
		if len(w.applies)+len(w.queries)+len(w.renders)+len(w.recalls) == 0 && !w.firstReadings() {
			return
		}
		w.render()
		for _, id := range entities.SortedIDs(w.queries) {
			w.answer(id, workPending())
		}
		for _, id := range entities.SortedIDs(w.applies) {
			w.succeedApply(id)
		}
	}
	panic("the work does not end:\n" + w.decision.String())
}

// succeedApply ends an apply with success, and observes its effect.
func (w *world) succeedApply(id entities.InstanceID) {
	version := w.applies[id].Target.FullVersion
	w.applyEnded(id, "", false)
	if w.observable(id) {
		w.observe(id, running(version, entities.ObjectSucceeded), true)
	}
}

// firstReadings reports empty readings of instances without a reading.
func (w *world) firstReadings() bool {
	any := false
	for _, id := range w.s.Spec.IDs() {
		i := w.s.Instances[id]
		_, rt := w.s.Runtime(id)
		if rt.Observable && i.Observed.Digest == "" && (rt.Mode != entities.FetchExitCode || i.Delivery.Target != nil) {
			w.observe(id, entities.Reading{}, true)
			any = true
		}
	}
	return any
}

func (w *world) observable(id entities.InstanceID) bool {
	_, rt := w.s.Runtime(id)
	return rt.Observable
}

// phases prints the releases: a line each, oldest first.
func (w *world) phases() string {
	var b strings.Builder
	for _, r := range w.s.Releases {
		var parts []string
		for _, c := range entities.SortedKeys(r.Phases) {
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

// targets prints the target of each instance.
func (w *world) targets() string {
	var parts []string
	for _, id := range entities.SortedIDs(w.s.Instances) {
		if i := w.s.Instances[id]; i.Delivery.Target != nil {
			parts = append(parts, id.String()+" "+i.Delivery.Target.FullVersion)
		}
	}
	return strings.Join(parts, ", ")
}

// continueAsNew passes the state to another run, as continue-as-new does.
func (w *world) continueAsNew() {
	w.s = copyOf(w.s)
}

// copyOf is the value that another process reads after this one wrote it.
func copyOf[T any](of *T) *T {
	raw, err := json.Marshal(of)
	if err != nil {
		panic(err)
	}
	out := new(T)
	if err := json.Unmarshal(raw, out); err != nil {
		panic(err)
	}
	return out
}

// perform carries out a valid verb.
func perform(effect state.Effect, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return effect(), nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
