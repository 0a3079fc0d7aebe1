package record

import (
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file judges that nothing counts of what a hostile client sends, by what was answered and by what history says.

// Mallory is the hostile client.
const Mallory = "mallory"

// checkHostile looks at what was answered, and at what history tells of it; that no gate was passed, and that nobody acted on a service
// whom nobody asked to, in the name of another either, is for the checks of gates and of what is kept.
func checkHostile(r *Record, f *Finding) {
	for _, a := range r.Attacks {
		if a.Sent {
			f.Compared++
		}
		if a.Answered != "" {
			f.violation("%s was answered at %s: %s", a.What, clock(a.At), a.Answered)
		}
	}
	for _, service := range entities.SortedKeys(r.History) {
		for _, l := range r.History[service] {
			if len(r.Attacks) > 0 && l.Who == nil && strings.Contains(l.Text+l.Reason, Mallory) {
				f.violation("%s: history tells of a hostile client at %s: %s", service, clock(l.At), l.Text)
			}
		}
	}
	for _, l := range r.Application {
		if who := nameOf(l); !r.askedFor(who, l.Kind) {
			f.violation("the application: %s did what nobody asked for at %s: %s", who, clock(l.At), l.Text)
		}
	}
	for _, number := range entities.SortedKeys(r.Incarnations) {
		if who := r.Incarnations[number]; !r.askedFor(who, entities.EventPublish) {
			f.violation("incarnation %d is by %s, whom nobody asked to publish", number, who)
		}
	}
}

// asked are the verbs of an application that people are asked for, by the kind of the line that they leave.
var asked = map[string][]string{
	entities.EventPublish: {protocol.Publish},
	entities.EventPause:   {protocol.Pause, protocol.Resume},
}

// askedFor tells whether somebody was asked for something that leaves a line of a kind in the history of the application. Nobody is asked
// to pin it.
func (r *Record) askedFor(who, kind string) bool {
	first := who == First && kind == entities.EventPublish
	restarted := who == "" && kind == entities.EventRestart
	return first || restarted || slices.ContainsFunc(r.Acts, func(a Act) bool {
		return a.Service == "" && a.By() == who && slices.Contains(asked[kind], a.Verb)
	})
}

func nameOf(l entities.AuditEntry) string {
	if l.Who == nil {
		return ""
	}
	return l.Who.Name
}

// checkProven: who acts has proven who it is, but for the first publication, which brings the rules.
func checkProven(r *Record, f *Finding) {
	if !r.Proven {
		return
	}
	judge := func(of string, lines []entities.AuditEntry) {
		for _, l := range lines {
			if l.Who == nil {
				continue
			}
			f.Compared++
			if !l.Who.Proven && l.Who.Name != First {
				f.violation("%s: %s has not proven who it is, and did at %s: %s", of, l.Who.Name, clock(l.At), l.Text)
			}
		}
	}
	for _, service := range entities.SortedKeys(r.History) {
		judge(service, r.History[service])
	}
	judge("the application", r.Application)
}
