package record

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file judges what people asked for by what they were answered and by what history says of it.

func checkAnswered(r *Record, f *Finding) {
	released := 0
	for _, a := range r.Acts {
		f.Compared++
		if a.Outcome == Unanswered {
			f.violation("%s was not answered from %s to %s: %s", a, clock(a.Sent), clock(a.Done), a.Message)
		}
		if a.Verb == protocol.Release {
			released++
			if a.Outcome == Refused {
				f.violation("%s was refused: %s", a, a.Message)
			}
		}
	}
	if released < r.Releases {
		f.violation("%d releases were asked for, and %d were made", r.Releases, released)
	}
}

// traces are the kinds of history line by which a verb is known; none: it leaves no trace.
var traces = map[string][]string{
	protocol.Release:  {entities.EventRelease},
	protocol.Approve:  {entities.EventApproval},
	protocol.Reject:   {entities.EventRejection},
	protocol.Bypass:   {entities.EventBypass},
	protocol.Pause:    {entities.EventPause},
	protocol.Resume:   {entities.EventPause},
	protocol.Pin:      {entities.EventPin},
	protocol.Unpin:    {entities.EventPin},
	protocol.Cancel:   {entities.EventCancel},
	protocol.Retry:    {entities.EventRetry, entities.EventTarget},
	protocol.Rollback: {entities.EventRollback},
}

// past are the verbs that bring something past its gates, which history tells as a bypass.
var past = []string{protocol.Rollback, protocol.Pin}

// accounts are what history tells of everybody: service and name → kind, channel and version of a line → how often.
type accounts map[string]map[string]int

func (r *Record) accounts() accounts {
	out := accounts{}
	for _, service := range entities.SortedKeys(r.History) {
		for _, l := range r.History[service] {
			if l.Who == nil || l.Kind == entities.EventRules { // what a publication loosens names who published it
				continue
			}
			who := service + " " + l.Who.Name
			if out[who] == nil {
				out[who] = map[string]int{}
			}
			out[who][l.Kind+" "+l.Channel+" "+l.Version]++
		}
	}
	return out
}

// take is what history tells of somebody, who is accounted for by that.
func (t accounts) take(service string, a Act) map[string]int {
	who := service + " " + a.By()
	defer delete(t, who)
	return t[who]
}

func checkKept(r *Record, f *Finding) {
	lines := r.accounts()
	for _, a := range r.Acts {
		switch {
		case a.Verb == protocol.Publish: // each service may have released its new configuration
			for _, service := range entities.SortedKeys(r.History) {
				if found := lines.take(service, a); len(found) > 1 {
					f.violation("%s had more than one effect on %s: %v", a, service, entities.SortedKeys(found))
				} else {
					f.once(a, found)
				}
			}
		case a.Service != "" && traces[a.Verb] != nil:
			f.Compared++
			found := lines.take(a.Service, a)
			f.once(a, found)
			f.kept(a, found)
		}
	}
	for _, who := range entities.SortedKeys(lines) {
		f.violation("%s did what nobody asked for: %v", who, entities.SortedKeys(lines[who]))
	}
}

// once: no line is there twice.
func (f *Finding) once(a Act, found map[string]int) {
	for _, what := range entities.SortedKeys(found) {
		if found[what] > 1 {
			f.violation("%s is in history %d times: %s", a, found[what], what)
		}
	}
}

// kept: what was answered is there, unless there was nothing to do; what was refused is not, and neither is anything that was not asked.
func (f *Finding) kept(a Act, found map[string]int) {
	there := false
	for _, what := range entities.SortedKeys(found) {
		kind, _, _ := strings.Cut(what, " ")
		asked := slices.Contains(traces[a.Verb], kind)
		passes := kind == entities.EventBypass && slices.Contains(past, a.Verb)
		if there = there || asked; !asked && !passes {
			f.violation("%s has a line in history that it did not ask for: %s", a, what)
		}
	}
	switch {
	case a.Outcome == Answered && !there && !strings.Contains(a.Message, " already "):
		f.violation("%s was answered at %s (%s), and is not in history", a, clock(a.Done), cmp.Or(a.Message, "by a signal"))
	case a.Outcome == Refused && len(found) > 0:
		f.violation("%s was refused (%s), and is in history", a, a.Message)
	}
}

func checkPublished(r *Record, f *Finding) {
	times := map[string][]int64{}
	for _, number := range slices.Sorted(maps.Keys(r.Incarnations)) {
		times[r.Incarnations[number]] = append(times[r.Incarnations[number]], number)
	}
	for _, a := range r.Acts {
		if a.Verb != protocol.Publish {
			continue
		}
		f.Compared++
		if numbers := times[a.By()]; a.Outcome == Answered && !slices.Equal(numbers, []int64{a.Incarnation}) {
			f.violation("%s was answered as incarnation %d, and is %v", a, a.Incarnation, numbers)
		}
	}
}

func checkNumbered(r *Record, f *Finding) {
	for _, service := range entities.SortedKeys(r.History) {
		for n, l := range r.History[service] {
			f.Compared++
			if l.N != int64(n+1) {
				f.violation("%s: line %d of history has the number %d: %s %s", service, n+1, l.N, l.Kind, l.Text)
				break
			}
		}
	}
}
