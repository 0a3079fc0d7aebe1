package checks

import (
	"context"
	"strings"

	"github.com/converge-engine/converge/entities"
)

// mostAsked bounds how many services are asked in search of a circle.
const mostAsked = 20

// circle looks for a way along which the other service waits for this one: from service to service by
// the conditions that block the next release of each, or its repair. Empty: there is none, or somebody could not be
// asked. What others say may be some seconds old, so a circle may be seen that is just being broken; the
// next evaluation does not see it any more.
func (p Sources) circle(ctx context.Context, a Asked, first other) string {
	me, from := self(a), otherOf(a)
	s := search{sources: p, goal: me, seen: map[node]bool{from: true}}
	way := s.walk(ctx, from, first)
	if way == nil {
		return ""
	}
	text := me.String() + " waits for " + from.title()
	for _, link := range way {
		text += ", which waits for " + link.title()
	}
	return text
}

type search struct {
	sources Sources
	goal    node
	seen    map[node]bool
}

// walk returns the sources on the way from at to the goal, which is the last; nil when there is no way.
func (s *search) walk(ctx context.Context, at node, o other) []node {
	var next []node
	for _, c := range o.blocked() {
		to, ok := waitsFor(at, c)
		switch {
		case !ok:
		case to == s.goal:
			return []node{to}
		default:
			next = append(next, to)
		}
	}
	for _, to := range next {
		if s.seen[to] || len(s.seen) >= mostAsked {
			continue
		}
		s.seen[to] = true
		o, err := s.sources.ask(ctx, to)
		if err != nil {
			continue // nothing is known of it, so nothing is said
		}
		if way := s.walk(ctx, to, o); way != nil {
			return append([]node{to}, way...)
		}
	}
	return nil
}

// blocked are the ids of what keeps the channel from moving on: conditions of its next release, and checks that a repair asks.
func (o other) blocked() []string {
	var ids []string
	add := func(id, verdict string) {
		if v := entities.Verdict(verdict); v == entities.Wait || v == entities.Fail {
			ids = append(ids, id)
		}
	}
	for _, c := range o.channel.Conditions {
		add(c.ID, c.Verdict)
	}
	for _, c := range o.channel.Checks {
		if id, repair := strings.CutPrefix(c.ID, entities.RepairKey("")); repair {
			add(id, c.Verdict)
		}
	}
	return ids
}

// waitsFor is the node that a condition of a service waits for.
func waitsFor(at node, id string) (node, bool) {
	service, channel, ok := entities.DependsOn(id)
	if !ok {
		return node{}, false
	}
	return at.named(service, channel), true
}
