package board

import (
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/overview"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
)

// applicationContent is the content of the page of an application.
type applicationContent struct {
	Status       protocol.ApplicationStatus
	Current      int64
	Incarnations []published // newest first
	Channels     []string
}

// published is an incarnation, and the number of the one before; 0: it is the first.
type published struct {
	protocol.Incarnation
	Before int64
}

const shownIncarnations = 20

// application shows the published incarnations, and leads to the plans.
func (b *board) application(r *http.Request) (page, error) {
	name := r.PathValue("application")
	s, err := b.readApplication(r)
	if err != nil {
		return page{}, err
	}
	c := applicationContent{Status: s, Current: s.Current()}
	for _, each := range s.Incarnations[max(0, len(s.Incarnations)-shownIncarnations):] {
		c.Incarnations = append(c.Incarnations, published{each, each.Number - 1})
	}
	slices.Reverse(c.Incarnations)
	if _, err := b.Overview.Await(r.Context(), statusPatience); err == nil { // the rest does not depend on it
		found, _ := b.Overview.SelectCurrent(r.Context(), func(s *overview.Service) bool { return s.Application == name }, connection.ServiceName{}, pageLength, statusPatience)
		for _, g := range groupsOf(found, b.Now()) {
			c.Channels = g.Channels
		}
	}
	return page{Name: "application", Title: "Application " + name, Nav: "services", Lists: true, Content: c}, nil
}

func (b *board) readApplication(r *http.Request) (protocol.ApplicationStatus, error) {
	name := r.PathValue("application")
	if !connection.IsName(name) {
		return protocol.ApplicationStatus{}, &pageError{http.StatusNotFound, name + " is no name of an application."}
	}
	return read.Application(r.Context(), b.Calls, name)
}

// planContent is the content of the page of a plan.
type planContent struct {
	Application, Channel string
	Incarnation          int64
	Missing              string // why there is no plan
	Summary              string
	Picture              template.HTML // made by package plan, which escapes texts
	Nodes                []planNode    // those that may begin first are first
}

type planNode struct {
	protocol.PlanNodeStatus
	Service connection.ServiceName // whose work it is; zero: of the application
	HoldsUp []string               // the nodes that cannot begin because it failed or is held
}

// heldUp returns the nodes that cannot begin because of a failed or a held one, directly or through others. A failed node has ended, so it holds up only
// those that need its success.
func heldUp(all []protocol.PlanNodeStatus, by int) (names []string) {
	waitsFor := func(n int) []int {
		if all[by].State == string(plan.Failed) {
			return all[n].Needs
		}
		return slices.Concat(all[n].Needs, all[n].After)
	}
	waits := make([]bool, len(all))
	waits[by] = true
	for found := true; found; {
		found = false
		for n := range all {
			if !waits[n] && slices.ContainsFunc(waitsFor(n), func(need int) bool { return waits[need] }) {
				waits[n], found = true, true
			}
		}
	}
	for n := range all {
		if waits[n] && n != by && all[n].State != string(plan.Done) {
			names = append(names, all[n].Node)
		}
	}
	return names
}

// planPage shows the newest plan of a release channel.
func (b *board) planPage(r *http.Request) (page, error) {
	s, err := b.readApplication(r)
	if err != nil {
		return page{}, err
	}
	c := planContent{Application: r.PathValue("application"), Channel: r.PathValue("channel"), Incarnation: s.Current()}
	if !connection.IsName(c.Channel) {
		return page{}, &pageError{http.StatusNotFound, c.Channel + " is no name of a release channel."}
	}
	title := fmt.Sprintf("Plan of %s in %s", c.Application, c.Channel)
	run, err := read.Plan(r.Context(), b.Calls, protocol.PlanOfIncarnation(c.Application, c.Channel, c.Incarnation))
	if errors.Is(err, connection.ErrNotFound) {
		c.Missing = fmt.Sprintf("Incarnation %d has no plan in %s: nothing was integrated, or its plan is over and forgotten.", c.Incarnation, c.Channel)
		return page{Name: "plan", Title: title, Nav: "services", Lists: true, Content: c}, nil
	}
	if err != nil {
		return page{}, err
	}
	graph, progress := read.Graph(run)
	c.Summary = explain.Plan(run)
	c.Picture = template.HTML(graph.SVG(progress)) //nolint:gosec // escaped
	for _, n := range graph.InOrder() {
		node := planNode{PlanNodeStatus: run.Nodes[n]}
		if node.State == string(plan.Failed) || node.State == string(plan.Held) {
			node.HoldsUp = heldUp(run.Nodes, n)
		}
		if service := plan.ParseNode(run.Nodes[n].Node).Service; service != "" {
			node.Service = connection.ServiceName{Application: c.Application, Service: service}
		}
		c.Nodes = append(c.Nodes, node)
	}
	return page{Name: "plan", Title: title, Nav: "services", Lists: true, Moves: !run.Over, Content: c}, nil
}

// diffContent is the content of the page of what changed between two incarnations.
type diffContent struct {
	Application string
	From, To    int64
	*incarnation.Difference
}

// diff shows what changed between two incarnations.
func (b *board) diff(r *http.Request) (page, error) {
	name := r.PathValue("application")
	if _, err := b.readApplication(r); err != nil {
		return page{}, err
	}
	from, err1 := strconv.ParseInt(r.URL.Query().Get("from"), 10, 64)
	to, err2 := strconv.ParseInt(r.URL.Query().Get("to"), 10, 64)
	if err1 != nil || err2 != nil || from < 1 || to < 1 {
		return page{}, &pageError{http.StatusBadRequest, "The address names no two incarnations: ?from=N&to=N"}
	}
	h, err := read.OpenIncarnations(r.Context(), b.Calls, name, b.Stores)
	if err != nil {
		return page{}, err
	}
	defer h.Store.Close() // only read
	a, err := h.Read(r.Context(), from)
	if err != nil {
		return page{}, err
	}
	z, err := h.Read(r.Context(), to)
	if err != nil {
		return page{}, err
	}
	d, err := incarnation.Diff(a, z)
	if err != nil {
		return page{}, err
	}
	return page{Name: "diff", Title: fmt.Sprintf("%s from incarnation %d to %d", name, from, to), Nav: "services", Content: diffContent{name, from, to, d}}, nil
}
