package apiv1

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/converge-engine/converge/client/api"
	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/overview"
	"github.com/converge-engine/converge/client/preview"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/client/serve/access"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/timeline"
	"github.com/converge-engine/converge/intent/incarnation"
)

func (a *operations) addReads() {
	const application, service = applicationPath, servicePath
	get(a, "application", "/applications", "list-applications", "Lists the applications", a.applications)
	get(a, "application", application, "get-application", "Shows an application: its incarnations, pauses, unmanaged services", a.application)
	get(a, "application", application+"/history", "get-application-history", "Shows the audit trail of an application", a.applicationHistory)
	get(a, "application", application+"/incarnations", "list-incarnations", "Lists the incarnations of an application, newest first", a.incarnations)
	get(a, "application", application+"/incarnations/{number}", "get-incarnation", "Shows the record of an incarnation", a.incarnation)
	get(a, "application", application+"/incarnations/{number}/assets", "list-assets", "Lists the assets of an incarnation: channels, services and instances", a.assets)
	get(a, "application", application+"/diff", "diff-incarnations", "Compares two incarnations", a.diff)
	get(a, "application", application+"/plans/{channel}", "get-plan", "Shows the newest plan of a release channel", a.plan)
	get(a, "service", "/services", "list-services", "Lists services with what Temporal lists of them", a.services)
	get(a, "service", service, "get-service", "Shows the status of a service", a.service)
	get(a, "service", service+"/explain", "explain-service", "Explains what each channel does or waits for", a.explain)
	get(a, "service", service+"/changes", "preview-release", "Shows what the release of a version would change, as the runtimes say; it runs a short workflow, and changes nothing", a.changes)
	get(a, "service", service+"/releases", "list-releases", "Lists the releases of a service, newest first", a.releases)
	get(a, "service", service+"/history", "get-service-history", "Shows the audit trail of a service, with the acts on its application, its runtimes and the installation", a.serviceHistory)
	get(a, "service", service+"/timeline", "get-timeline", "Shows when each release waited, was deployed, ran and failed in each channel", a.timeline)
	get(a, "service", service+"/logs", "get-logs", "Shows the output of the last applies, fetches and extensions, oldest first", a.logs)
	get(a, "service", service+"/wait", "wait-for-service", "Waits until nothing more happens without a person or a change", a.wait)
	get(a, "service", "/approvals", "list-approvals", "Lists the approvals that can be given now", a.approvals)
	get(a, "runtime", "/runtimes/{runtime}", "get-runtime", "Shows a runtime: its leases, its pause, its drain", a.runtime)
	get(a, "runtime", "/runtimes/{runtime}/history", "get-runtime-history", "Shows the audit trail of a runtime", a.runtimeHistory)
	get(a, "installation", "/installation", "get-installation", "Shows the installation: its rules, its pause", a.installation)
	get(a, "installation", "/installation/history", "get-installation-history", "Shows the audit trail of the installation", a.installationHistory)
}

func (a *operations) applications(ctx context.Context, in *PageQuery) (api.Page[api.ApplicationItem], error) {
	names, err := a.Calls.Applications(ctx)
	if err != nil {
		return api.Page[api.ApplicationItem]{}, err
	}
	items := make([]api.ApplicationItem, len(names))
	for n, name := range names {
		items[n] = api.ApplicationItem{Name: name}
	}
	return pageAfter(items, *in, func(item api.ApplicationItem) string { return item.Name })
}

func (a *operations) application(ctx context.Context, in *ApplicationPath) (protocol.ApplicationStatus, error) {
	return read.Application(ctx, a.Calls, in.Application)
}

type servicesInput struct {
	PageQuery
	Application string `query:"application" maxLength:"63" pattern:"^[a-z]([a-z0-9-]*[a-z0-9])?$" patternDescription:"the name of an application" doc:"Only services of this application"`
	Status      string `query:"status" maxLength:"63" doc:"Only services with this status, such as CONVERGED"`
	Waiting     bool   `query:"waiting" doc:"Only services that wait for a person"`
	Name        string `query:"name" maxLength:"127" doc:"Only services whose APPLICATION/SERVICE contains this"`
}

// coldStart is how long a list waits for the first answer of Temporal.
const coldStart = 5 * time.Second

func (a *operations) services(ctx context.Context, in *servicesInput) (api.ServicesPage, error) {
	page := api.ServicesPage{Page: api.Page[api.ServiceItem]{Items: []api.ServiceItem{}}}
	if in.Status != "" && !slices.ContainsFunc(entities.StatusTable(), func(row entities.StatusRow) bool { return string(row.Status) == in.Status }) {
		return page, api.NewProblem(api.Invalid, fmt.Errorf("status %q: expected a status such as CONVERGED", in.Status))
	}
	var after connection.ServiceName
	if in.After != "" {
		application, service, ok := strings.Cut(in.After, "/")
		if !ok {
			return page, api.NewProblem(api.Invalid, fmt.Errorf("query.after: %q; expected the value of next in the page before", in.After))
		}
		after = connection.ServiceName{Application: application, Service: service}
	}
	defer a.Overview.Open()()
	state, err := a.Overview.Await(ctx, coldStart)
	if err != nil {
		return page, err
	}
	allowed, unknown := a.Readers.Allowed(ctx, a.Overview.Applications())
	if unknown > 0 {
		page.Problems = append(page.Problems, access.UnknownText(unknown))
	}
	filter := overview.Filter{Application: in.Application, Status: in.Status, Name: in.Name, Waiting: in.Waiting}
	matches := func(s *overview.Service) bool { return filter.Matches(s) && allowed(s.Application) }
	found, total := a.Overview.Select(matches, after, in.Limit+1)
	for _, s := range found[:min(in.Limit, len(found))] {
		page.Items = append(page.Items, item(s))
	}
	if len(found) > in.Limit {
		page.Next = found[in.Limit-1].ServiceName.String()
	}
	page.Total, page.Complete, page.At = total, state.Complete, state.At.UTC()
	return page, nil
}

// item is a service in a list.
func item(s overview.Service) api.ServiceItem {
	return api.ServiceItem{Application: s.Application, Service: s.Service, Status: s.ListedService.Status, Version: s.Version, WaitingFor: s.WaitingFor}
}

func (p ServicePath) name() connection.ServiceName {
	return connection.ServiceName{Application: p.Application, Service: p.Service}
}

func (a *operations) service(ctx context.Context, in *ServicePath) (protocol.Status, error) {
	return read.AnyStatus(ctx, a.Calls, in.name())
}

type channelInput struct {
	ServicePath
	ChannelQuery
}

func (a *operations) explain(ctx context.Context, in *channelInput) (protocol.Explanation, error) {
	s, err := read.AnyStatus(ctx, a.Calls, in.name())
	if err != nil {
		return protocol.Explanation{}, err
	}
	if err := checkChannel(s, in.Channel); err != nil {
		return protocol.Explanation{}, err
	}
	running, _ := a.Calls.Progress(ctx, in.name().ID()) // the explanation does not depend on it
	var lines []string
	altered, _ := a.Calls.Altered(ctx, in.name().ID()) // nor on this
	for _, each := range altered {
		lines = append(lines, connection.AlteredText(each))
	}
	lines = append(lines, explain.LinesWithLookup(s, in.Channel, read.Others(ctx, a.Calls), a.Now())...)
	return protocol.Explanation{Lines: lines, Status: s, Running: running}, nil
}

// checkChannel refuses a channel that a service does not have.
func checkChannel(s protocol.Status, name string) error {
	if name == "" {
		return nil
	}
	if err := s.CheckChannel(name); err != nil {
		return api.NewProblem(api.NotFound, err)
	}
	return nil
}

type changesInput struct {
	ServicePath
	Version string `query:"version" required:"true" minLength:"1" maxLength:"300" doc:"The version that would be released"`
}

func (a *operations) changes(ctx context.Context, in *changesInput) (*preview.Plan, error) {
	if _, err := read.Status(ctx, a.Calls, in.name()); err != nil {
		return nil, err
	}
	plan, err := a.Previews.Release(ctx, a.Calls, a.Stores, in.name(), in.Version, false)
	var refused *preview.Refused
	switch {
	case errors.As(err, &refused):
		return nil, api.NewProblem(api.Refused, err)
	case errors.Is(err, preview.ErrNotServed):
		return nil, api.NewProblem(api.ReadOnly, err)
	case errors.Is(err, preview.ErrBusy):
		return nil, api.NewProblem(api.TooMany, err)
	}
	return plan, err
}

type releasesInput struct {
	ServicePath
	PageQuery
}

func (a *operations) releases(ctx context.Context, in *releasesInput) (api.Page[protocol.ReleaseStatus], error) {
	s, err := read.AnyStatus(ctx, a.Calls, in.name())
	if err != nil {
		return api.Page[protocol.ReleaseStatus]{}, err
	}
	return pageAfter(s.Releases, in.PageQuery, func(r protocol.ReleaseStatus) string { return r.ID })
}

// HistoryQuery selects entries of an audit trail.
type HistoryQuery struct {
	PageQuery
	ChannelQuery
	Kind []string `query:"kind,explode" doc:"Only entries of these kinds, such as release, approval, bypass"`
}

type serviceHistoryInput struct {
	ServicePath
	HistoryQuery
}

type applicationHistoryInput struct {
	ApplicationPath
	HistoryQuery
}

type runtimeHistoryInput struct {
	RuntimePath
	HistoryQuery
}

func (a *operations) serviceHistory(ctx context.Context, in *serviceHistoryInput) (api.Page[read.HistoryEntry], error) {
	return a.history(ctx, in.HistoryQuery, func() read.Trail { return read.ServiceTrail(ctx, a.Calls, in.name()) })
}

func (a *operations) applicationHistory(ctx context.Context, in *applicationHistoryInput) (api.Page[read.HistoryEntry], error) {
	return a.history(ctx, in.HistoryQuery, func() read.Trail { return read.ScopeTrail(a.Calls, protocol.ApplicationID(in.Application)) })
}

func (a *operations) runtimeHistory(ctx context.Context, in *runtimeHistoryInput) (api.Page[read.HistoryEntry], error) {
	return a.history(ctx, in.HistoryQuery, func() read.Trail { return read.ScopeTrail(a.Calls, protocol.RuntimeID(in.Runtime)) })
}

func (a *operations) installationHistory(ctx context.Context, in *HistoryQuery) (api.Page[read.HistoryEntry], error) {
	return a.history(ctx, *in, func() read.Trail { return read.ScopeTrail(a.Calls, protocol.InstallationID()) })
}

// history returns a page of a trail, newest first.
func (a *operations) history(ctx context.Context, in HistoryQuery, trail func() read.Trail) (api.Page[read.HistoryEntry], error) {
	page := api.Page[read.HistoryEntry]{Items: []read.HistoryEntry{}}
	for _, kind := range in.Kind {
		if !slices.Contains(entities.EventKinds(), kind) {
			return page, api.NewProblem(api.Invalid, fmt.Errorf("kind %q: expected one of %v", kind, entities.EventKinds()))
		}
	}
	var after historyCursor
	if in.After != "" {
		if err := decodeCursor(in.After, &after); err != nil {
			return page, err
		}
	}
	t := trail()
	t.Note = func(format string, args ...any) { page.Problems = append(page.Problems, fmt.Sprintf(format, args...)) }
	all, err := t.Entries(ctx, a.Stores, in.Channel == "")
	if err != nil {
		return page, err
	}
	if in.Channel != "" && !slices.ContainsFunc(all, func(e read.HistoryEntry) bool { return e.Channel == in.Channel }) {
		page.Problems = append(page.Problems, fmt.Sprintf("no entry is of a release channel %s; the history has entries of %s", in.Channel, cmp.Or(channelsOf(all), "none")))
	}
	all = slices.DeleteFunc(all, func(e read.HistoryEntry) bool {
		return in.Channel != "" && e.Channel != in.Channel || len(in.Kind) > 0 && !slices.Contains(in.Kind, e.Kind)
	})
	end := len(all)
	if in.After != "" {
		end = after.before(all)
	}
	begin := max(0, end-in.Limit)
	page.Items = append(page.Items, all[begin:end]...)
	slices.Reverse(page.Items)
	if begin > 0 {
		page.Next = encodeCursor(historyCursor{At: all[begin].At, Of: all[begin].Of, N: all[begin].N})
	}
	return page, nil
}

// channelsOf lists the channels of entries.
func channelsOf(all []read.HistoryEntry) string {
	var names []string
	for _, e := range all {
		if e.Channel != "" && !slices.Contains(names, e.Channel) {
			names = append(names, e.Channel)
		}
	}
	return strings.Join(names, ", ")
}

type timelineInput struct {
	ServicePath
	Last int `query:"last" minimum:"1" maximum:"100" default:"5" doc:"Number of releases"`
}

func (a *operations) timeline(ctx context.Context, in *timelineInput) (api.Timeline, error) {
	input, problem, err := read.ServiceTrail(ctx, a.Calls, in.name()).Timeline(ctx, a.Stores, a.Now())
	if err != nil {
		return api.Timeline{}, err
	}
	input.Last = in.Last
	return api.Timeline{Entries: append([]timeline.Entry{}, timeline.Of(input)...), Problem: problem}, nil
}

type logsInput struct {
	ServicePath
	ChannelQuery
	Kind string `query:"kind" enum:"apply,fetch,extension" doc:"Only output of this kind"`
	Last int    `query:"last" minimum:"1" maximum:"100" default:"20" doc:"Number of entries"`
}

func (a *operations) logs(ctx context.Context, in *logsInput) (api.Logs, error) {
	s, err := read.Status(ctx, a.Calls, in.name())
	if err == nil {
		err = checkChannel(s, in.Channel)
	}
	if err != nil {
		return api.Logs{}, err
	}
	at, err := a.Stores.Open(ctx, s.Store)
	if err != nil {
		return api.Logs{}, err
	}
	defer at.Close() // only read
	entries, err := read.Logs(ctx, at, s, in.Channel, map[string]bool{})
	if err != nil {
		return api.Logs{}, err
	}
	entries = slices.DeleteFunc(entries, func(l read.Log) bool { return in.Kind != "" && string(l.Kind) != in.Kind })
	out := api.Logs{Entries: append([]read.Log{}, entries[max(0, len(entries)-in.Last):]...), Running: []protocol.Progress{}}
	running, _ := a.Calls.Progress(ctx, in.name().ID()) // the rest does not depend on it
	out.Running = append(out.Running, running...)
	return out, nil
}

type approvalsInput struct {
	Application string `query:"application" maxLength:"63" pattern:"^[a-z]([a-z0-9-]*[a-z0-9])?$" patternDescription:"the name of an application" doc:"Only of this application"`
}

// approvalsPatience is how long a list of approvals waits for the services concerned.
const approvalsPatience = 5 * time.Second

func (a *operations) approvals(ctx context.Context, in *approvalsInput) ([]explain.OpenApproval, error) {
	defer a.Overview.Open()()
	if _, err := a.Overview.Await(ctx, coldStart); err != nil {
		return nil, err
	}
	if in.Application != "" {
		if _, err := read.Application(ctx, a.Calls, in.Application); err != nil {
			return nil, err
		}
	}
	allowed, _ := a.Readers.Allowed(ctx, a.Overview.Applications())
	waiting := func(s *overview.Service) bool {
		return allowed(s.Application) && s.WaitsForPerson() && (in.Application == "" || s.Application == in.Application)
	}
	found, _ := a.Overview.SelectCurrent(ctx, waiting, connection.ServiceName{}, maxApprovals, approvalsPatience)
	var all []protocol.Status
	for _, s := range found {
		if s.Status != nil {
			all = append(all, *s.Status)
		}
	}
	return explain.OpenApprovals(all), nil
}

// maxApprovals limits the services of a list of approvals.
const maxApprovals = 200

func (a *operations) openIncarnations(ctx context.Context, application string) (*read.Incarnations, error) {
	return read.OpenIncarnations(ctx, a.Calls, application, a.Stores)
}

type incarnationsInput struct {
	ApplicationPath
	PageQuery
}

func (a *operations) incarnations(ctx context.Context, in *incarnationsInput) (api.Page[protocol.Incarnation], error) {
	page := api.Page[protocol.Incarnation]{Items: []protocol.Incarnation{}}
	h, err := a.openIncarnations(ctx, in.Application)
	if err != nil {
		return page, err
	}
	defer h.Store.Close() // only read
	before := int64(0)
	if in.After != "" {
		if before, err = strconv.ParseInt(in.After, 10, 64); err != nil || before < 1 {
			return page, api.NewProblem(api.Invalid, fmt.Errorf("after %q: expected the value of next in the page before", in.After))
		}
	}
	items, more, err := h.Before(ctx, before, in.Limit)
	if err != nil {
		return page, err
	}
	if page.Items = append(page.Items, items...); more {
		page.Next = strconv.FormatInt(items[len(items)-1].Number, 10)
	}
	return page, nil
}

// IncarnationPath names an incarnation.
type IncarnationPath struct {
	ApplicationPath
	Number int64 `path:"number" minimum:"1" doc:"Number of the incarnation"`
}

func (a *operations) incarnation(ctx context.Context, in *IncarnationPath) (protocol.Incarnation, error) {
	h, err := a.openIncarnations(ctx, in.Application)
	if err != nil {
		return protocol.Incarnation{}, err
	}
	defer h.Store.Close() // only read
	return h.Number(ctx, in.Number)
}

type assetsInput struct {
	IncarnationPath
	PageQuery
	Kind string `query:"kind" maxLength:"63" doc:"Only assets of this kind, such as Service"`
}

func (a *operations) assets(ctx context.Context, in *assetsInput) (api.Page[incarnation.Asset], error) {
	var page api.Page[incarnation.Asset]
	if in.Kind != "" && !slices.Contains(incarnation.AssetKinds(), incarnation.AssetKind(in.Kind)) {
		return page, api.NewProblem(api.Invalid, fmt.Errorf("kind %q: expected one of %v", in.Kind, incarnation.AssetKinds()))
	}
	h, err := a.openIncarnations(ctx, in.Application)
	if err != nil {
		return page, err
	}
	defer h.Store.Close() // only read
	inc, err := h.Read(ctx, in.Number)
	if err != nil {
		return page, err
	}
	all, err := inc.Assets()
	if err != nil {
		return page, err
	}
	all = slices.DeleteFunc(all, func(asset incarnation.Asset) bool { return in.Kind != "" && string(asset.Kind) != in.Kind })
	return pageAfter(all, in.PageQuery, func(asset incarnation.Asset) string { return asset.ID })
}

type diffInput struct {
	ApplicationPath
	From int64 `query:"from" required:"true" minimum:"1" doc:"Number of the earlier incarnation"`
	To   int64 `query:"to" minimum:"1" doc:"Number of the later incarnation; absent: the newest"`
}

func (a *operations) diff(ctx context.Context, in *diffInput) (*incarnation.Difference, error) {
	h, err := a.openIncarnations(ctx, in.Application)
	if err != nil {
		return nil, err
	}
	defer h.Store.Close() // only read
	if in.To == 0 {
		in.To = h.Status.Newest
	}
	from, err := h.Read(ctx, in.From)
	if err != nil {
		return nil, err
	}
	to, err := h.Read(ctx, in.To)
	if err != nil {
		return nil, err
	}
	return incarnation.Diff(from, to)
}

type planInput struct {
	ApplicationPath
	Channel string `path:"channel" maxLength:"63" pattern:"^[a-z]([a-z0-9-]*[a-z0-9])?$" patternDescription:"the name of a release channel" doc:"Name of the release channel"`
}

func (a *operations) plan(ctx context.Context, in *planInput) (protocol.PlanStatus, error) {
	application, err := read.Application(ctx, a.Calls, in.Application)
	if err != nil {
		return protocol.PlanStatus{}, err
	}
	return read.Plan(ctx, a.Calls, protocol.PlanOfIncarnation(in.Application, in.Channel, application.Current()))
}

func (a *operations) runtime(ctx context.Context, in *RuntimePath) (s protocol.RuntimeStatus, err error) {
	err = a.Calls.Query(ctx, protocol.RuntimeID(in.Runtime), protocol.QueryStatus, &s)
	if errors.Is(err, connection.ErrNotFound) {
		err = api.NewProblem(api.NotFound, fmt.Errorf("no workflow of runtime %s: it was never limited, paused or drained", in.Runtime))
	}
	return s, err
}

func (a *operations) installation(ctx context.Context, _ *struct{}) (s protocol.InstallationStatus, err error) {
	err = a.Calls.Query(ctx, protocol.InstallationID(), protocol.QueryStatus, &s)
	return s, err
}

// pageAfter returns the page of a whole list after an item with the given id. An unknown id is an error: the item may be gone.
func pageAfter[T any](all []T, q PageQuery, id func(T) string) (api.Page[T], error) {
	page := api.Page[T]{Items: []T{}}
	begin := 0
	if q.After != "" {
		begin = slices.IndexFunc(all, func(item T) bool { return id(item) == q.After }) + 1
		if begin == 0 {
			return page, api.NewProblem(api.Invalid, fmt.Errorf("after %q: expected the value of next in the page before", q.After))
		}
	}
	end := min(begin+q.Limit, len(all))
	if page.Items = append(page.Items, all[begin:end]...); end < len(all) {
		page.Next = id(all[end-1])
	}
	return page, nil
}
