package checks

import (
	"context"
	"strings"

	"github.com/converge-engine/converge/entities"
)

// maxQueried limits the services that are queried in the search for a cycle.
const maxQueried = 20

// findCycle searches for a cycle: a path on which the other service waits for this one. It follows the conditions that block the next
// release of each service, or its repair. It returns "" if there is none, or if a query failed. Answers may be some seconds old, so it
// may find a cycle that is just being resolved; the next evaluation does not find it again.
func (p Sources) findCycle(ctx context.Context, a Request, first other) string {
	own, from := ownNode(a), dependencyNode(a)
	s := search{sources: p, goal: own, seen: map[node]bool{from: true}}
	path := s.walk(ctx, from, first)
	if path == nil {
		return ""
	}
	text := own.String() + " waits for " + from.title()
	for _, link := range path {
		text += ", which waits for " + link.title()
	}
	return text
}

type search struct {
	sources Sources
	goal    node
	seen    map[node]bool
}

// walk returns the nodes on the path from at to the goal, including the goal; nil if there is no path.
func (s *search) walk(ctx context.Context, at node, o other) []node {
	var next []node
	for _, c := range o.blockingConditions() {
		to, ok := dependencyOf(at, c)
		switch {
		case !ok:
		case to == s.goal:
			return []node{to}
		default:
			next = append(next, to)
		}
	}
	for _, to := range next {
		if s.seen[to] || len(s.seen) >= maxQueried {
			continue
		}
		s.seen[to] = true
		o, err := s.sources.query(ctx, to)
		if err != nil {
			continue // without an answer nothing is reported
		}
		if path := s.walk(ctx, to, o); path != nil {
			return append([]node{to}, path...)
		}
	}
	return nil
}

// blockingConditions returns the ids of the conditions of the next release and of the repair checks that block the channel.
func (o other) blockingConditions() []string {
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

// dependencyOf returns the node that a condition of a service waits for.
func dependencyOf(at node, id string) (node, bool) {
	service, channel, ok := entities.DependencyOf(id)
	if !ok {
		return node{}, false
	}
	return at.resolve(service, channel), true
}
