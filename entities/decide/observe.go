package decide

import (
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// This file lists the required observations: of instances by runtime, and of checks by evaluator.

// RequiredObservation is one required observation: instances of one runtime that are either moving (observed often) or steady (seldom).
// There are at most two per runtime and part of the instances of a service.
type RequiredObservation struct {
	Runtime   string
	Moving    bool
	Part      int
	Position  int                // position of the runtime's first instance in that part, in the spec's order
	Instances []ObservedInstance // in the spec's order
}

// maxPartSize is the maximum number of instances of a service, in the spec's order, in one observation: its request fits into a
// payload (F8). The position decides, so an instance that begins to move does not shift others to another observation.
const maxPartSize = 100

// ObservedInstance is one instance of an observation.
type ObservedInstance struct {
	Instance entities.InstanceID
	Target   entities.Target // zero if nothing was applied yet
	Known    string          // digest of the known reading; empty: any reading is a change
}

// runtimePart is a runtime in a part of the instances of a service.
type runtimePart struct {
	runtime string
	part    int
}

// Key identifies an observation within a service.
func (w RequiredObservation) Key() string {
	key := w.Runtime + "/steady"
	if w.Moving {
		key = w.Runtime + "/moving"
	}
	if w.Part > 0 {
		key += fmt.Sprintf("/%d", w.Part)
	}
	return key
}

// RequiredObservations returns the required observations, sorted by key. whole: not split into parts. An instance with a running apply is
// not observed: the apply ends with a reading of its own.
func RequiredObservations(s *state.State, whole bool) []RequiredObservation {
	byKey := map[string]*RequiredObservation{}
	if s.Spec == nil {
		return nil
	}
	position, firstPositions := -1, map[runtimePart]int{}
	for n := range s.Spec.Channels {
		c := &s.Spec.Channels[n]
		for _, spec := range c.Instances {
			position++
			i := s.Instances[c.ID(spec)]
			if i == nil {
				continue
			}
			part := runtimePart{i.Runtime, position / maxPartSize}
			first := firstPosition(firstPositions, part, position)
			if !observable(s.RuntimeNamed(i.Runtime), i) || i.Delivery.Apply.Running {
				continue
			}
			w := RequiredObservation{Runtime: i.Runtime, Moving: moving(i) && (c.Report == "" || i.Observed.Requested || i.Observed.Digest == "")}
			if !whole {
				w.Part, w.Position = part.part, first
			}
			if byKey[w.Key()] == nil {
				byKey[w.Key()] = &w
			}
			byKey[w.Key()].Instances = append(byKey[w.Key()].Instances, observedInstance(i))
		}
	}
	out := make([]RequiredObservation, 0, len(byKey))
	for _, key := range entities.SortedKeys(byKey) {
		out = append(out, *byKey[key])
	}
	return out
}

// firstPosition is the first position of a runtime in a part, among the positions visited so far.
func firstPosition(positions map[runtimePart]int, part runtimePart, position int) int {
	if _, known := positions[part]; !known {
		positions[part] = position
	}
	return positions[part]
}

// observedInstance is an instance with its known digest.
func observedInstance(i *state.Instance) ObservedInstance {
	one := ObservedInstance{Instance: i.ID, Known: i.Observed.Digest}
	if i.Delivery.Target != nil {
		one.Target = *i.Delivery.Target
	}
	if i.Observed.Requested {
		one.Known = ""
	}
	return one
}

// observable reports whether an instance can be observed; by exit code only once it has a version to query (C7).
func observable(r *entities.RuntimeSpec, i *state.Instance) bool {
	return r.Observable && (r.Mode != entities.FetchExitCode || i.Delivery.Target != nil)
}

// moving reports whether a change is expected soon, so a short interval pays.
func moving(i *state.Instance) bool {
	d := &i.Delivery
	switch {
	case i.Observed.Requested || i.Observed.Digest == "":
		return true
	case d.Target == nil || d.Failure != "" && d.Apply.PutBacks == 0 || i.TakenDown:
		return false
	case !d.Converged:
		return true
	}
	return d.Apply.Attempts > 0 || !i.Observed.Fresh && d.Apply.OK
}

// Evaluations are the checks that a decision needs evaluated now, channel by channel.
func (d *Decision) Evaluations(s *state.State) []entities.Evaluation {
	if s.Spec == nil {
		return nil
	}
	var out []entities.Evaluation
	for n := range d.Channels {
		w := d.Channels[n].NeededChecks
		if w == nil {
			continue
		}
		c, _ := s.Spec.Channel(d.Channels[n].Channel)
		if release := s.ReleaseByID(w.Release); release != nil {
			out = appendWanted(out, s, &c, w.Checks, release)
		}
		out = appendWanted(out, s, &c, w.Repairs, nil)
		if release, check := s.ReleaseByID(w.SelectionFor), c.Selection(); release != nil && check != nil {
			e := s.Evaluation(&c, check, release)
			e.Candidates = w.Candidates
			out = append(out, s.WithKnownResult(e))
		}
		for k := range out {
			if out[k].Channel == c.Name && out[k].Release == "" && out[k].Kind == entities.CheckCapacity {
				out[k].Remaining, out[k].Total = s.RemainingInstances(c.Name)
			}
		}
	}
	return out
}

func appendWanted(out []entities.Evaluation, s *state.State, c *entities.ChannelSpec, wanted []string, r *state.Release) []entities.Evaluation {
	for n := range c.Checks {
		for _, id := range wanted {
			if check := &c.Checks[n]; check.ID == id {
				out = append(out, s.WithKnownResult(s.Evaluation(c, check, r)))
				break
			}
		}
	}
	return out
}
