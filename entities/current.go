package entities

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Current is the current state of an entity, rolled up from its parts.
type Current struct {
	Active  []string // active versions, sorted, "?" for an unknown one
	Known   bool     // there is a reading; false never means "no difference"
	Stable  bool     // as in C5, at the target version
	Drifted bool
	// AsDeclared: it is not stable, and an apply would change nothing.
	AsDeclared bool
	Failed     string // why an object FAILED at the target version, or ""
	Reason     string // why it is not stable
	// Suspended says where an object waits at the target version, or "": until that time, or for a user.
	Suspended string
	Until     time.Time
}

// Progressing reports whether everything is as declared and some of it is not ready: pods that restart, more replicas than before (H8).
func (c Current) Progressing() bool {
	return c.Known && c.AsDeclared && c.Failed == ""
}

// Entity is anything with its own state that may need work to reach a target (A1). It knows nothing of conditions, parents or time. It
// reports its state, and whether that differs from the target. The decision starts the work. A new kind is a new type and a row of decide's
// table of kinds; neither the decision nor the other kinds change (A6).
type Entity interface {
	// Fetch rolls up the current state with respect to a target (nil: none yet).
	Fetch(target *Target) Current
	// HasWork reports whether the entity needs work, and why.
	HasWork(target *Target, current Current) (bool, string)
}

// RuntimeObject is one object as the runtime reports it (A2). It is read-only: it has no work, so it is no Entity.
type RuntimeObject struct{ *Object }

// Fetch judges the object by C5: SUCCEEDED, one of its versions is the target's, active and not drifted, and there is only one active
// version. An object that is no longer declared and was left in place counts neither for nor against stability (D10).
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
		c.Active = append(c.Active, cmp.Or(v.Version, "?")) // as unknown versions are shown
		c.Drifted = c.Drifted || v.Drifted
		if target != nil && v.Version == target.FullVersion && !v.Drifted {
			match = true
		}
	}
	switch {
	case !o.hasVersion(target):
	case o.Status == ObjectFailed:
		c.Failed = o.failure()
	default:
		c.Suspended, c.Until = o.Suspended, o.Until
	}
	c.Stable = match && active == 1 && o.Status == ObjectSucceeded
	if !c.Stable {
		c.AsDeclared = !c.Drifted && o.asDeclared(target)
		c.Reason = o.instabilityReason(active, match, c.Drifted)
	}
	return c
}

// hasVersion reports whether the object has the target's version, active or not. Only then does its failure concern the target, and not the
// previous version.
func (o RuntimeObject) hasVersion(target *Target) bool {
	for _, v := range o.Versions {
		if target != nil && v.Version == target.FullVersion {
			return true
		}
	}
	return false
}

// asDeclared reports whether the object is at the target, and an apply would not change it.
func (o RuntimeObject) asDeclared(target *Target) bool { return o.AsDeclared && o.hasVersion(target) }

// instabilityReason returns why the object is not stable.
func (o RuntimeObject) instabilityReason(active int, match, drifted bool) string {
	switch {
	case o.Status == ObjectFailed:
		return o.failure()
	case o.Suspended != "" && o.Until.IsZero():
		return o.describe("waits for a person")
	case o.Suspended != "":
		return o.describe("waits")
	case active == 0:
		return o.describe("not running")
	case drifted:
		return o.describe("drifted")
	case active > 1:
		return o.describe(fmt.Sprintf("%d active versions", active))
	case !match:
		return o.describe("at another version")
	}
	for _, v := range o.Versions {
		if v.Active && v.TargetReplicas > 0 && v.AvailableReplicas < v.TargetReplicas {
			return o.describe(fmt.Sprintf("%d of %d replicas", v.AvailableReplicas, v.TargetReplicas))
		}
	}
	return o.describe("not ready yet")
}

func (o RuntimeObject) describe(what string) string {
	return o.Name + " " + what + Because(o.Message)
}

// failure describes a failed object: by its message, or else by that of its latest debug event (C4).
func (o RuntimeObject) failure() string {
	if o.Message != "" || len(o.Events) == 0 {
		return o.describe("FAILED")
	}
	latest := slices.MaxFunc(o.Events, func(a, b Event) int { return a.Timestamp.Compare(b.Timestamp) })
	return o.describe("FAILED") + Because(latest.Message)
}

// FetchObjects rolls objects up: stable if there is at least one, and every one is (C5). Objects that are no longer declared and were left
// in place do not count (D10).
func FetchObjects(objects []Object, target *Target) Current {
	if len(objects) == 1 && !objects[0].Orphaned { // the most common case
		return RuntimeObject{&objects[0]}.Fetch(target)
	}
	c := Current{Known: true, Stable: true}
	declared := 0
	for n := range objects {
		if !objects[n].Orphaned {
			declared++
		}
		c.merge(RuntimeObject{&objects[n]}.Fetch(target))
	}
	if declared == 0 {
		c.Stable, c.AsDeclared, c.Reason = false, false, "nothing is running"
	}
	return c
}

// merge adds the state of another part.
func (c *Current) merge(part Current) {
	c.Active = addSorted(c.Active, part.Active)
	c.AsDeclared = (c.AsDeclared || part.AsDeclared) && (c.Stable || c.AsDeclared) && (part.Stable || part.AsDeclared)
	c.Known, c.Stable, c.Drifted = c.Known && part.Known, c.Stable && part.Stable, c.Drifted || part.Drifted
	if c.Failed == "" {
		c.Failed = part.Failed
	}
	// the reason shown is the one that needs a user
	if part.Suspended != "" && (c.Suspended == "" || part.Until.IsZero() && !c.Until.IsZero()) {
		c.Suspended, c.Until, c.Reason = part.Suspended, part.Until, part.Reason
	}
	if c.Reason == "" {
		c.Reason = part.Reason
	}
}

// RollUp returns the state of a channel or a service, which have no work of their own (A4), from the states of its instances.
func RollUp(parts []Current) Current {
	if len(parts) == 1 {
		return parts[0]
	}
	c := Current{Known: true, Stable: true}
	for _, part := range parts {
		c.merge(part)
	}
	return c
}

// addSorted merges versions into a sorted list without repeats.
func addSorted(list, more []string) []string {
	if len(list) == 0 && len(more) < 2 {
		return more
	}
	for _, m := range more {
		if at, found := slices.BinarySearch(list, m); !found {
			list = slices.Insert(list, at, m)
		}
	}
	return list
}

// ShownVersions joins active versions for people: "v1+v2", "" for none.
func ShownVersions(active []string) string { return strings.Join(active, "+") }
