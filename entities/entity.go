package entities

import (
	"fmt"
	"strings"
)

// Current is the current state of an entity, rolled up from what it is made of.
type Current struct {
	Known   bool     // something was read; false is never "no difference"
	Active  []string // active versions, sorted, "?" for an unknown one
	Stable  bool     // C5 at the version asked for
	Drifted bool
	Failed  string // why an object FAILED at the version asked for, or ""
	Reason  string // why it is not stable
}

// Operation is something to do to an entity, and why.
type Operation struct {
	Kind   string // "apply"
	Target Target
	Cause  string
}

// Entity is anything the engine tracks (A1). It knows nothing of conditions, parents or time: it
// reports what is, tells whether that differs from its target, and says what to do about it. A new
// kind is a new type; neither the decision nor the other kinds change (A6).
type Entity interface {
	// Name identifies the entity among all kinds: "ServiceInstance/staging".
	Name() string
	// Children are the entities whose state its own is made of.
	Children() []Entity
	// Fetch rolls up the current state with respect to a target (nil: none yet).
	Fetch(target *Target) Current
	// HasWork tells whether the entity must be acted upon, and why.
	HasWork(target *Target, current Current) (bool, string)
	// Apply says what moves the entity to the target; nil is nothing.
	Apply(target *Target, cause string) *Operation
}

// Work is the operation that an entity needs now, or nil. It never depends on another entity, so
// that a slow one delays no other (A7).
func Work(e Entity, target *Target) (Current, *Operation) {
	current := e.Fetch(target)
	return current, workOn(e, target, current)
}

// workOn is Work for an entity whose current state has been fetched.
func workOn(e Entity, target *Target, current Current) *Operation {
	has, cause := e.HasWork(target, current)
	if !has {
		return nil
	}
	return e.Apply(target, cause)
}

// Order sorts a graph so that what is needed comes first, keeping the given order among equals.
// A cycle is returned instead, first node repeated at its end (A1).
func Order(nodes []string, needs func(string) []string) (order, cycle []string) {
	const visiting, done = 1, 2
	state := make(map[string]int, len(nodes))
	var path []string
	var visit func(string) bool
	visit = func(n string) bool {
		switch state[n] {
		case done:
			return true
		case visiting:
			for i, p := range path {
				if p == n {
					cycle = append(append([]string(nil), path[i:]...), n)
				}
			}
			return false
		}
		state[n] = visiting
		path = append(path, n)
		for _, m := range needs(n) {
			if !visit(m) {
				return false
			}
		}
		path = path[:len(path)-1]
		state[n] = done
		order = append(order, n)
		return true
	}
	for _, n := range nodes {
		if !visit(n) {
			return nil, cycle
		}
	}
	return order, nil
}

// RuntimeObject is one object as the runtime reports it (A2): it is only read.
type RuntimeObject struct{ Object }

// Name implements Entity.
func (o RuntimeObject) Name() string { return "RuntimeObject/" + o.Object.Type + "/" + o.Object.Name }

// Children implements Entity: an object has none.
func (o RuntimeObject) Children() []Entity { return nil }

// Fetch judges the object by C5: SUCCEEDED, one of its versions is the target's, active and not
// drifted, and there is only one active version. One that is no longer declared and was left in
// place speaks neither for nor against stability (D10).
func (o RuntimeObject) Fetch(target *Target) Current {
	c := Current{Known: true}
	if o.Orphaned {
		c.Stable = true
		return c
	}
	active, match := 0, false
	for _, v := range o.Versions {
		if !v.Active {
			continue
		}
		active++
		c.Active = append(c.Active, shownVersion(v.Version))
		c.Drifted = c.Drifted || v.Drifted
		if target != nil && v.Version == target.FullVersion && !v.Drifted {
			match = true
		}
	}
	if o.Status == ObjectFailed && o.has(target) {
		c.Failed = o.why("FAILED")
	}
	c.Stable = match && active == 1 && o.Status == ObjectSucceeded
	if !c.Stable {
		c.Reason = o.unstable(active, match, c.Drifted)
	}
	return c
}

// has tells whether the object reports the target's version, active or not: only then does its
// failure speak of the target, and not of what was there before.
func (o RuntimeObject) has(target *Target) bool {
	for _, v := range o.Versions {
		if target != nil && v.Version == target.FullVersion {
			return true
		}
	}
	return false
}

// unstable says why the object is not stable.
func (o RuntimeObject) unstable(active int, match, drifted bool) string {
	switch {
	case o.Status == ObjectFailed:
		return o.why("FAILED")
	case active == 0:
		return o.why("not running")
	case drifted:
		return o.why("drifted")
	case active > 1:
		return o.why(fmt.Sprintf("%d active versions", active))
	case !match:
		return o.why("at another version")
	}
	for _, v := range o.Versions {
		if v.Active && v.TargetReplicas > 0 && v.AvailableReplicas < v.TargetReplicas {
			return o.why(fmt.Sprintf("%d of %d replicas", v.AvailableReplicas, v.TargetReplicas))
		}
	}
	return o.why("not ready yet")
}

func (o RuntimeObject) why(what string) string {
	text := o.Object.Name + " " + what
	if o.Message != "" {
		text += ": " + o.Message
	}
	return text
}

// HasWork implements Entity: never (A2).
func (o RuntimeObject) HasWork(*Target, Current) (bool, string) { return false, "" }

// Apply implements Entity: nothing (A2).
func (o RuntimeObject) Apply(*Target, string) *Operation { return nil }

// ServiceInstance is a service in a channel (A3): its state is that of its objects, and its apply
// hands the rendered payload to the runtime.
type ServiceInstance struct{ *Instance }

// Name implements Entity.
func (i ServiceInstance) Name() string { return "ServiceInstance/" + i.Channel }

// Children implements Entity.
func (i ServiceInstance) Children() []Entity {
	out := make([]Entity, len(i.Reading.Objects))
	for n, o := range i.Reading.Objects {
		out[n] = RuntimeObject{o}
	}
	return out
}

// Fetch rolls the objects up: stable when there is at least one and every one is (C5). While looks
// fail nothing is known, though the last good objects are kept to be shown; and a look from before
// the last apply ended does not show what that did.
func (i ServiceInstance) Fetch(target *Target) Current {
	c := Current{Known: i.Known != "" && i.Reading.Err == nil, Stable: true}
	declared := 0
	for _, o := range i.Reading.Objects {
		if !o.Orphaned {
			declared++
		}
		oc := RuntimeObject{o}.Fetch(target)
		c.Active = addSorted(c.Active, oc.Active)
		c.Stable = c.Stable && oc.Stable
		c.Drifted = c.Drifted || oc.Drifted
		if c.Failed == "" {
			c.Failed = oc.Failed
		}
		if c.Reason == "" {
			c.Reason = oc.Reason
		}
	}
	switch {
	case !c.Known:
		c.Stable = false
	case declared == 0:
		c.Stable, c.Reason = false, "nothing is running"
	case c.Stable && !i.Fresh:
		c.Stable, c.Reason = false, "not looked at since the last apply"
	}
	return c
}

// HasWork implements Entity: the target is not what is there, or what is there is not stable, or
// it drifted (A3). An unknown state is no reason to act by itself, but a target that was never
// applied is.
func (i ServiceInstance) HasWork(target *Target, current Current) (bool, string) {
	switch {
	case target == nil:
		return false, ""
	case i.Return && !i.Converged && !i.Progress.OK:
		return true, "return to " + target.FullVersion
	case current.Stable:
		return false, ""
	case !i.Converged && !i.Progress.OK:
		return true, "move to " + target.FullVersion
	case !current.Known:
		return false, ""
	}
	return true, current.Reason
}

// Apply implements Entity.
func (i ServiceInstance) Apply(target *Target, cause string) *Operation {
	return &Operation{Kind: "apply", Target: *target, Cause: cause}
}

// ServiceEntity is a service as a whole (A4): a roll-up of its instances, without work of its own.
type ServiceEntity struct{ *State }

// Name implements Entity.
func (s ServiceEntity) Name() string { return "Service/" + s.Service }

// Children implements Entity: the instances in the channels' order.
func (s ServiceEntity) Children() []Entity {
	var out []Entity
	if s.Spec == nil {
		return nil
	}
	for _, c := range s.Spec.Channels {
		if i := s.Instances[c.Name]; i != nil {
			out = append(out, ServiceInstance{i})
		}
	}
	return out
}

// Fetch rolls up the instances, each against its own target.
func (s ServiceEntity) Fetch(*Target) Current {
	c := Current{Known: true, Stable: true}
	for _, e := range s.Children() {
		i := e.(ServiceInstance)
		ic := i.Fetch(i.Target)
		c.Known, c.Stable, c.Drifted = c.Known && ic.Known, c.Stable && ic.Stable, c.Drifted || ic.Drifted
		c.Active = addSorted(c.Active, ic.Active)
		if c.Reason == "" && ic.Reason != "" {
			c.Reason = i.Channel + ": " + ic.Reason
		}
	}
	return c
}

// HasWork implements Entity: never (A4).
func (s ServiceEntity) HasWork(*Target, Current) (bool, string) { return false, "" }

// Apply implements Entity: nothing (A4).
func (s ServiceEntity) Apply(*Target, string) *Operation { return nil }

// shownVersion shows a version to a person; an unknown one is "?".
func shownVersion(v string) string {
	if v == "" {
		return "?"
	}
	return v
}

// addSorted merges versions into a sorted list without repeats.
func addSorted(list, more []string) []string {
	if len(list) == 0 && len(more) < 2 {
		return more
	}
	for _, m := range more {
		at := 0
		for at < len(list) && list[at] < m {
			at++
		}
		if at < len(list) && list[at] == m {
			continue
		}
		list = append(list, "")
		copy(list[at+1:], list[at:])
		list[at] = m
	}
	return list
}

// ShownVersions joins active versions for a person: "v1+v2", "" for none.
func ShownVersions(active []string) string { return strings.Join(active, "+") }
