package board

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/overview"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/client/serve/access"
	"github.com/converge-engine/converge/client/serve/session"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/protocol"
)

const (
	pageLength = 50
	// statusPatience is how long a page waits for the statuses of its services. Unknown ones follow by the stream.
	statusPatience = time.Second
)

// filter selects services by the query of a page's URL.
type filter struct {
	overview.Filter
	after connection.ServiceName
}

func filterOf(q url.Values) filter {
	f := filter{Filter: overview.Filter{Application: q.Get("application"), Status: q.Get("status"), Name: q.Get("name"), Waiting: q.Get("waiting") != ""}}
	f.after.Application, f.after.Service, _ = strings.Cut(q.Get("after"), "/")
	return f
}

// next is the query of the page after a service.
func (f filter) next(last connection.ServiceName) string {
	f.after = last
	return f.query()
}

// query is the query of a page.
func (f filter) query() string {
	q := url.Values{}
	if f.after != (connection.ServiceName{}) {
		q.Set("after", f.after.String())
	}
	for name, value := range map[string]string{"application": f.Application, "status": f.Status, "name": f.Name} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Waiting {
		q.Set("waiting", strconv.FormatBool(true))
	}
	return "?" + q.Encode()
}

// matrix is the content of the page of services.
type matrix struct {
	Filter filter
	Groups []group // by application
	Counts []count // of the services that match but for their status
	Total  int
	Next   string // query of the next page; empty: this is the last
}

// count is how many services have a status, and the page that shows them.
type count struct {
	Status string
	N      int
	URL    string
	Here   bool
}

// countsOf returns how many services that a filter selects have each status, the worst first, each with the page of the filter with that status.
func (b *board) countsOf(f filter, allowed func(application string) bool) (counts []count) {
	any := f.Filter
	any.Status = ""
	for status, n := range b.Overview.Counts(func(s *overview.Service) bool { return any.Matches(s) && allowed(s.Application) }) {
		g := f
		g.Status, g.after = status, connection.ServiceName{}
		counts = append(counts, count{status, n, g.query(), status == f.Status})
	}
	slices.SortFunc(counts, func(a, b count) int {
		return cmp.Or(entities.Status(b.Status).Row().Severity-entities.Status(a.Status).Row().Severity, cmp.Compare(a.Status, b.Status))
	})
	return counts
}

// All is the page without a status.
func (m matrix) All() string {
	f := m.Filter
	f.Status, f.after = "", connection.ServiceName{}
	return f.query()
}

// group is the services of an application with its channels as columns.
type group struct {
	Application string
	Channels    []string
	Rows        []row
}

type row struct {
	Service overview.Service
	Cells   []cell // by channel of the group
	Known   bool   // the service has answered
	Why     string // for a service without channels
}

// cell is a service in a channel; Channel nil: it is not released there.
type cell struct {
	Channel *protocol.ChannelStatus
	Why     string
}

func (b *board) services(r *http.Request) (page, error) {
	f := filterOf(r.URL.Query())
	if _, err := b.Overview.Await(r.Context(), statusPatience); err != nil {
		return page{}, err
	}
	allowed, unknown := b.Readers.Allowed(r.Context(), b.Overview.Applications())
	matches := func(s *overview.Service) bool { return f.Matches(s) && allowed(s.Application) }
	found, total := b.Overview.SelectCurrent(r.Context(), matches, f.after, pageLength+1, statusPatience)
	m := matrix{Filter: f, Total: total, Counts: b.countsOf(f, allowed)}
	if len(found) > pageLength {
		found = found[:pageLength]
		m.Next = f.next(found[pageLength-1].ServiceName)
	}
	p := page{Name: "services", Title: "Services", Nav: "services", Lists: true}
	if unknown > 0 {
		p.Known = access.UnknownText(unknown) + "."
	}
	for _, s := range found {
		p.Watch = append(p.Watch, s.ServiceName.String())
	}
	m.Groups = groupsOf(found, b.Now())
	p.Content = m
	return p, nil
}

// groupsOf groups services, which are sorted by name, by application.
func groupsOf(services []overview.Service, now time.Time) (groups []group) {
	for _, s := range services {
		if len(groups) == 0 || groups[len(groups)-1].Application != s.Application {
			groups = append(groups, group{Application: s.Application})
		}
		g := &groups[len(groups)-1]
		r := row{Service: s, Known: s.Status != nil}
		if s.Status != nil {
			for _, c := range s.Status.Channels {
				g.addChannel(c.Name)
			}
			if len(s.Status.Channels) == 0 {
				r.Why = s.Status.Headline
			}
		}
		g.Rows = append(g.Rows, r)
	}
	for n := range groups {
		groups[n].fill(now)
	}
	return groups
}

func (g *group) addChannel(name string) {
	if !slices.Contains(g.Channels, name) {
		g.Channels = append(g.Channels, name)
	}
}

// fill puts the channels of each service into the columns.
func (g *group) fill(now time.Time) {
	for n := range g.Rows {
		r := &g.Rows[n]
		r.Cells = make([]cell, len(g.Channels))
		if !r.Known {
			continue
		}
		for k, name := range g.Channels {
			for c := range r.Service.Status.Channels {
				if channel := &r.Service.Status.Channels[c]; channel.Name == name {
					r.Cells[k] = cell{channel, explain.WaitsFor(*channel, now)}
				}
			}
		}
	}
}

// waitingContent is the content of the landing page.
type waitingContent struct {
	Approvals []explain.OpenApproval
	Others    []explain.OpenApproval // that the person cannot give
	Failed    []overview.Service
	Waiting   []overview.Service // for a person, other than by an approval; or their status was not read yet
	Services  int                // that the person may read
	More      int                // services that need a person and are not shown
}

// needsPerson reports whether a service waits for a person, or failed in a way that only a person mends.
func needsPerson(s *overview.Service) bool {
	return s.WaitsForPerson() || statusOf(s.ListedService.Status).Tone == "bad" || s.ListedService.Status == "SUSPENDED"
}

func (b *board) waiting(r *http.Request) (page, error) {
	if _, err := b.Overview.Await(r.Context(), statusPatience); err != nil {
		return page{}, err
	}
	allowed, unknown := b.Readers.Allowed(r.Context(), b.Overview.Applications())
	_, services := b.Overview.Select(func(s *overview.Service) bool { return allowed(s.Application) }, connection.ServiceName{}, 0)
	needs := func(s *overview.Service) bool { return allowed(s.Application) && needsPerson(s) }
	found, total := b.Overview.SelectCurrent(r.Context(), needs, connection.ServiceName{}, pageLength, statusPatience)
	content := waitingContent{Services: services, More: total - len(found)}
	var all []protocol.Status
	p := page{Name: "waiting", Title: "Waiting for you", Nav: "waiting", Lists: true}
	if unknown > 0 {
		p.Known = access.UnknownText(unknown) + "."
	}
	for _, s := range found {
		p.Watch = append(p.Watch, s.ServiceName.String())
		if s.Status != nil {
			all = append(all, *s.Status)
		}
		switch {
		case statusOf(s.ListedService.Status).Tone == "bad":
			content.Failed = append(content.Failed, s)
		case s.Status == nil || len(explain.OpenApprovals([]protocol.Status{*s.Status})) == 0:
			content.Waiting = append(content.Waiting, s)
		}
	}
	who, known := session.From(r.Context())
	for _, a := range explain.OpenApprovals(all) {
		if known && !a.MayGive(who) {
			content.Others = append(content.Others, a)
		} else {
			content.Approvals = append(content.Approvals, a)
		}
	}
	p.Content = content
	return p, nil
}

// serviceContent is the content of the page of a service.
type serviceContent struct {
	Status   protocol.Status
	Channels []channelView
	Lines    []string
	Said     *said
	Acts     []link
	Tabs     tabs
}

// channelView is a channel of a service.
type channelView struct {
	protocol.ChannelStatus
	Why  string
	Rows []protocol.ConditionStatus // the conditions that do not pass
	Acts []link
}

// actLink returns the link to the sheet of an act, with some of its fields.
func actLink(n connection.ServiceName, name, text string, fields ...string) link {
	q := url.Values{}
	for k := 0; k < len(fields); k += 2 {
		q.Set(fields[k], fields[k+1])
	}
	target := servicePath(n) + "/act/" + name
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	main := slices.Contains([]string{protocol.Approve, protocol.Retry, protocol.Promote, protocol.Resume}, name)
	return link{text, target, main}
}

// actsOf returns the acts that a channel may need now, those that help first.
func actsOf(n connection.ServiceName, s protocol.Status, c protocol.ChannelStatus) (links []link) {
	version := c.Desired
	for _, k := range c.Conditions {
		if k.Code == "open" {
			links = append(links, actLink(n, protocol.Approve, "Approve "+k.Subject, "version", version, "topic", k.Subject),
				actLink(n, protocol.Reject, "Reject "+k.Subject, "version", version, "topic", k.Subject))
		}
	}
	switch entities.Status(c.Status) {
	case entities.StatusFailed, entities.StatusFailedRollback:
		links = append(links, actLink(n, protocol.Retry, "Retry", "version", c.Target, "channel", c.Name))
	case entities.StatusSuspended:
		links = append(links, actLink(n, protocol.Promote, "Promote", "channel", c.Name), actLink(n, protocol.Abort, "Abort", "channel", c.Name))
	}
	isPaused := func(channel string) bool {
		return slices.ContainsFunc(s.Pauses, func(p entities.Pause) bool { return p.Channel == channel && p.Scope == "" })
	}
	switch {
	case isPaused(""): // all channels are: the links of the service resume them
	case isPaused(c.Name):
		links = append(links, actLink(n, protocol.Resume, "Resume", "channel", c.Name))
	default:
		links = append(links, actLink(n, protocol.Pause, "Pause", "channel", c.Name))
	}
	if slices.ContainsFunc(s.Pins, func(p protocol.PinStatus) bool { return p.Channel == c.Name }) {
		links = append(links, actLink(n, protocol.Unpin, "Unpin", "channel", c.Name))
	} else {
		links = append(links, actLink(n, protocol.Pin, "Pin", "channel", c.Name, "version", c.Target))
	}
	for _, k := range c.Conditions {
		if k.Bypassable && k.Verdict != string(entities.Pass) {
			links = append(links, actLink(n, protocol.Bypass, "Bypass "+k.ID, "version", version, "channel", c.Name, "condition", k.ID))
		}
	}
	return append(links, actLink(n, protocol.Rollback, "Roll back", "channel", c.Name), actLink(n, protocol.RestartService, "Restart", "channel", c.Name))
}

// isOpen reports whether a release may still enter a channel, or is in one.
func isOpen(r protocol.ReleaseStatus) bool {
	for _, phase := range r.Phases {
		if phase == string(maestro.Pending) || phase == string(maestro.InProgress) {
			return true
		}
	}
	return false
}

func (b *board) service(r *http.Request) (page, error) {
	n, err := serviceOf(r)
	if err != nil {
		return page{}, err
	}
	s, err := read.AnyStatus(r.Context(), b.Calls, n)
	if err != nil {
		return page{}, err
	}
	if entities.Status(s.Status) != entities.StatusUnmanaged {
		b.Overview.Learn(s)
	}
	now := b.Now()
	s.Board = "" // this page
	content := serviceContent{Tabs: tabs{n, "service"}, Status: s, Lines: explain.LinesWithLookup(s, "", read.Others(r.Context(), b.Calls), now)}
	for _, c := range s.Channels {
		v := channelView{ChannelStatus: c, Why: explain.WaitsFor(c, now), Acts: actsOf(n, s, c)}
		for _, k := range c.Conditions {
			if k.Verdict != "PASS" && k.Code != "not-asked" {
				v.Rows = append(v.Rows, k)
			}
		}
		content.Channels = append(content.Channels, v)
	}
	content.Said = takeSaid(r, n)
	content.Acts = []link{actLink(n, protocol.Release, "Release a version")}
	if slices.ContainsFunc(s.Releases, isOpen) {
		content.Acts = append(content.Acts, actLink(n, protocol.Cancel, "Cancel a release"))
	}
	if slices.ContainsFunc(s.Pauses, func(p entities.Pause) bool { return p.Channel == "" && p.Scope == "" }) {
		content.Acts = append(content.Acts, actLink(n, protocol.Resume, "Resume all channels"))
	} else {
		content.Acts = append(content.Acts, actLink(n, protocol.Pause, "Pause all channels"))
	}
	title := statusOf(s.Status).Word + " · " + n.String()
	return page{Name: "service", Title: title, Nav: "services", Watch: []string{n.String()}, Content: content}, nil
}
