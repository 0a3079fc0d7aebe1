package board

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/converge-engine/converge/client/overview"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/view"
)

// fleetContent is the content of the page of a fleet.
type fleetContent struct {
	Tabs    tabs
	Channel string
	Policy  string // the rollout, in words
	Fleet   *view.FleetStatus
	Shown   []protocol.InstanceStatus
	From    int
	Status  string // of the instances that are shown; "": all
	Next    string // query of the next page; "": this is the last
	Checks  []protocol.CheckStatus
}

const fleetPage = 100 // instances

// fleet shows every instance of a release channel, in the order of its steps, and what the checks of the rollout measured.
func (b *board) fleet(r *http.Request) (page, error) {
	n, err := serviceOf(r)
	if err != nil {
		return page{}, err
	}
	status, err := read.Status(r.Context(), b.Calls, n)
	if err != nil {
		return page{}, err
	}
	var now state.State
	if err := read.Query(r.Context(), b.Calls, n, protocol.QueryState, &now); err != nil {
		return page{}, err
	}
	c := fleetContent{Tabs: tabs{n, "service"}, Channel: r.PathValue("channel"), Status: r.URL.Query().Get("status")}
	if c.Fleet = view.Fleet(&now, c.Channel, b.Now()); c.Fleet == nil {
		return page{}, &pageError{http.StatusNotFound, fmt.Sprintf("%s has no fleet in a release channel %s.", n, c.Channel)}
	}
	spec, _ := now.Spec.Channel(c.Channel)
	c.Policy = spec.Rollout.String()
	for _, each := range status.Channels {
		if each.Name == c.Channel {
			c.Checks = each.Checks
		}
	}
	selected := slices.DeleteFunc(slices.Clone(c.Fleet.Instances), func(i protocol.InstanceStatus) bool { return c.Status != "" && i.Status != c.Status })
	c.From, _ = strconv.Atoi(r.URL.Query().Get("from")) // text that is no number leads to the first page
	c.From = min(max(c.From, 0), len(selected))
	end := min(c.From+fleetPage, len(selected))
	if c.Shown = selected[c.From:end]; end < len(selected) {
		q := url.Values{"from": {strconv.Itoa(end)}}
		if c.Status != "" {
			q.Set("status", c.Status)
		}
		c.Next = "?" + q.Encode()
	}
	p := page{Name: "fleet", Title: "Fleet of " + n.String() + " in " + c.Channel, Nav: "services", Content: c}
	if p.Moves = overview.IsMoving(status); !p.Moves { // else it is read now and then: the service may change all the time, and its state is large
		p.Watch = []string{n.String()}
	}
	return p, nil
}
