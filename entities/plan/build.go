package plan

import (
	"cmp"
	"slices"
)

// Build builds the plan. The error is an *UnknownError, an *AggregatorError or a *CycleError, for any scope.
func Build(services []Service, scope Scope) (*Plan, error) {
	b := builder{scope: scope, services: map[string]*Service{}}
	for n := range services {
		b.names = append(b.names, services[n].Name)
		b.services[services[n].Name] = &services[n]
	}
	slices.Sort(b.names)
	if err := b.check(); err != nil {
		return nil, err
	}
	b.addNodes()
	b.addEdges()
	if path := b.cycle(); path != nil {
		return nil, &CycleError{Path: path}
	}
	return b.pruned(), nil
}

// builder builds the whole plan and then prunes it, so that it finds errors in unchanged parts too.
type builder struct {
	scope       Scope
	services    map[string]*Service
	names       []string // sorted
	nodes       []Node
	nodesByKind map[Kind]map[string][]int // nodes by kind and service
}

// check finds unknown names.
func (b *builder) check() error {
	for _, name := range b.names {
		s := b.services[name]
		for _, f := range []struct {
			field string
			names []string
		}{{"requires", s.Requires}, {"reconcilers", s.ReconcilesAfter}, {"integrations", s.Integrations}, {"feeds", s.Feeds}} {
			for _, other := range f.names {
				if b.services[other] == nil {
					return &UnknownError{Service: name, Field: f.field, Name: other}
				}
			}
		}
		for _, other := range s.Feeds {
			if b.services[other].Aggregator == "" {
				return &AggregatorError{Service: name, Name: other}
			}
		}
	}
	for _, name := range b.scope.Changed {
		if b.services[name] == nil {
			return &UnknownError{Name: name}
		}
	}
	return nil
}

// addNodes adds the nodes (E1–E5).
func (b *builder) addNodes() {
	b.nodesByKind = map[Kind]map[string][]int{}
	for _, k := range kinds {
		b.nodesByKind[k] = map[string][]int{}
		for _, name := range b.names {
			s := b.services[name]
			switch {
			case k == Callback && s.SetupCallback || k == DNS && s.DNS:
				if len(b.nodesByKind[k]) == 0 {
					b.add(Node{Kind: k})
				}
			case k == Deploy, k == s.Aggregator, k == Reconcile && s.Reconciles:
				for _, target := range slices.Compact(slices.Sorted(slices.Values(s.Targets))) {
					b.add(Node{Kind: k, Service: name, Target: target})
				}
			}
		}
	}
}

func (b *builder) add(n Node) {
	b.nodesByKind[n.Kind][n.Service] = append(b.nodesByKind[n.Kind][n.Service], len(b.nodes))
	b.nodes = append(b.nodes, n)
}

// addEdges adds the edges. A node waits for its own service on its own target, and for other services on all targets.
func (b *builder) addEdges() {
	callback := b.nodesByKind[Callback][""]
	var collected []int
	if !b.scope.Eager {
		for _, name := range b.names {
			collected = append(append(collected, b.nodesByKind[Sync][name]...), b.nodesByKind[Redeploy][name]...)
		}
	}
	for i := range b.nodes {
		n := &b.nodes[i]
		s := b.services[n.Service]
		switch n.Kind {
		case Deploy:
			n.Needs = b.nodesOf(Deploy, s.Requires)
			if s.Captured {
				n.Needs = append(n.Needs, callback...)
			}
		case Callback:
			for _, name := range b.names {
				if b.services[name].SetupCallback {
					n.After = append(n.After, b.nodesByKind[Deploy][name]...)
				}
			}
		case Sync, Redeploy:
			n.Needs = append(b.ownDeploy(n), callback...)
		case Reconcile:
			n.Needs = slices.Concat(b.ownDeploy(n), collected, b.nodesOf(Reconcile, s.ReconcilesAfter))
			if s.ReconcilesCaptured {
				n.Needs = append(n.Needs, callback...)
			}
		}
		n.Needs = slices.Compact(slices.Sorted(slices.Values(n.Needs)))
	}
}

// ownDeploy returns the DEPLOY of a node's service on its target.
func (b *builder) ownDeploy(n *Node) []int {
	for _, i := range b.nodesByKind[Deploy][n.Service] {
		if b.nodes[i].Target == n.Target {
			return []int{i}
		}
	}
	return nil
}

func (b *builder) nodesOf(kind Kind, services []string) (all []int) {
	for _, name := range services {
		all = append(all, b.nodesByKind[kind][name]...)
	}
	return all
}

// cycle returns a cycle of nodes, or nil.
func (b *builder) cycle() []Node {
	const (
		onPath  = 1 + iota // on the current path
		acyclic            // no cycle leads through it
	)
	marks, path := make([]int, len(b.nodes)), []int{}
	var visit func(i int) []Node
	visit = func(i int) []Node {
		if marks[i] == onPath {
			loop := []Node{}
			for _, j := range path[slices.Index(path, i):] {
				loop = append(loop, b.nodes[j])
			}
			return append(loop, b.nodes[i])
		}
		if marks[i] == acyclic {
			return nil
		}
		marks[i], path = onPath, append(path, i)
		for _, j := range slices.Concat(b.nodes[i].Needs, b.nodes[i].After) {
			if found := visit(j); found != nil {
				return found
			}
		}
		marks[i], path = acyclic, path[:len(path)-1]
		return nil
	}
	for i := range b.nodes {
		if found := visit(i); found != nil {
			return found
		}
	}
	return nil
}

// pruned omits the nodes that the changes do not reach, and their edges (E7).
func (b *builder) pruned() *Plan {
	if b.scope.All {
		return &Plan{Nodes: b.nodes}
	}
	services := b.affectedServices()
	p := &Plan{Nodes: []Node{}}
	newIndex := make([]int, len(b.nodes)) // the new index of a node, counted from 1
	for i, n := range b.nodes {
		if b.affected(&n, services) {
			p.Nodes = append(p.Nodes, n)
			newIndex[i] = len(p.Nodes)
		}
	}
	for i := range p.Nodes {
		for _, edges := range []*[]int{&p.Nodes[i].Needs, &p.Nodes[i].After} {
			var kept []int
			for _, j := range *edges {
				if newIndex[j] > 0 {
					kept = append(kept, newIndex[j]-1)
				}
			}
			*edges = kept
		}
	}
	return p
}

// affectedServices returns the changed services and their integrations: one hop.
func (b *builder) affectedServices() map[string]bool {
	affected := map[string]bool{}
	for _, name := range b.names {
		affected[name] = slices.Contains(b.scope.Changed, name) ||
			slices.ContainsFunc(b.services[name].Integrations, func(other string) bool { return slices.Contains(b.scope.Changed, other) })
	}
	return affected
}

func (b *builder) affected(n *Node, services map[string]bool) bool {
	anyService := func(has func(s *Service) bool) bool {
		return slices.ContainsFunc(b.names, func(name string) bool { return services[name] && has(b.services[name]) })
	}
	switch n.Kind {
	case Callback:
		return anyService(func(s *Service) bool { return s.SetupCallback })
	case DNS:
		return anyService(func(s *Service) bool { return s.DNS })
	case Sync, Redeploy:
		return services[n.Service] || anyService(func(s *Service) bool { return slices.Contains(s.Feeds, n.Service) })
	default:
		return services[n.Service]
	}
}

// dependents lists for each node the nodes that wait for it.
func (p *Plan) dependents() [][]int {
	dependents := make([][]int, len(p.Nodes))
	for n := range p.Nodes {
		for _, m := range slices.Concat(p.Nodes[n].Needs, p.Nodes[n].After) {
			dependents[m] = append(dependents[m], n)
		}
	}
	return dependents
}

// ranks returns for each node the length of the longest chain of nodes that wait for it. The node with the longest chain goes first.
func (p *Plan) ranks() []int {
	dependents := p.dependents()
	ranks := make([]int, len(p.Nodes))
	var rank func(n int) int
	rank = func(n int) int {
		if ranks[n] == 0 {
			ranks[n] = 1
			for _, m := range dependents[n] {
				ranks[n] = max(ranks[n], 1+rank(m))
			}
		}
		return ranks[n]
	}
	for n := range p.Nodes {
		rank(n)
	}
	return ranks
}

// LongestPath lists the nodes of the longest path through the plan, in order. Of several it takes the one whose nodes are listed first.
func (p *Plan) LongestPath() (path []int) {
	ranks, dependents := p.ranks(), p.dependents()
	for next := indexRange(len(p.Nodes)); len(next) > 0; next = dependents[path[len(path)-1]] {
		path = append(path, slices.MaxFunc(next, func(a, b int) int { return cmp.Or(cmp.Compare(ranks[a], ranks[b]), b-a) }))
	}
	return path
}

// byRank lists all nodes, those with the longest chain behind them first. The order does not change during a walk.
func (p *Plan) byRank() []int {
	if p.ranked == nil {
		ranks := p.ranks()
		p.ranked = indexRange(len(p.Nodes))
		slices.SortStableFunc(p.ranked, func(a, b int) int { return cmp.Compare(ranks[b], ranks[a]) })
	}
	return p.ranked
}

// indexRange returns 0 to n-1.
func indexRange(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
