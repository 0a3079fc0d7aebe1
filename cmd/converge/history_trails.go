package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// This file reads audit trails: the lines in the store, the newest lines that only the workflow has, and acts on the application, the
// runtimes and the installation of a service.

// shownLine is an audit line. If it does not belong to the service, it names the workflow that it belongs to.
type shownLine struct {
	entities.AuditLine
	Of string `json:"of,omitempty"`
}

// id returns the workflow id of the trail.
func (o *historyOptions) id() string {
	if o.whole != "" {
		return o.whole
	}
	return cmp.Or(o.known, o.service.id())
}

// name returns the name of the trail for users.
func (o *historyOptions) name() string {
	application, _ := protocol.TrailOf(o.whole)
	switch {
	case o.whole == "":
		return o.service.String()
	case o.whole == protocol.ApplicationID(application):
		return application
	}
	return o.whole
}

// open opens the store of the trail. Gone is the error if the workflow does not run.
func (o *historyOptions) open(ctx context.Context) (at *store.Store, status protocol.Status, gone error, err error) {
	stated := ""
	if o.whole == "" {
		o.known = o.f.known(ctx, o.service)
		status, gone = o.f.status(ctx, o.service)
		stated = status.Store
	} else if first(o.store, o.f.Env("CONVERGE_STORE")) == "" {
		stated, gone = o.storeOfAny(ctx)
	}
	location, err := o.f.storeRead(o.store, stated)
	if err != nil {
		return nil, status, gone, err
	}
	if gone != nil && location == "" {
		return nil, status, gone, gone
	}
	at, err = store.Open(ctx, location)
	return at, status, gone, err
}

// storeOfAny returns the store of the application of the trail. Without an application it returns the store of any application.
func (o *historyOptions) storeOfAny(ctx context.Context) (string, error) {
	api, err := o.f.client(ctx)
	if err != nil {
		return "", err
	}
	ids := []string{o.whole}
	if application, service := protocol.TrailOf(o.whole); o.whole != protocol.ApplicationID(application) || service != "" {
		names, err := api.Applications(ctx)
		if err != nil {
			return "", err
		}
		ids = nil
		for _, name := range names {
			ids = append(ids, protocol.ApplicationID(name))
		}
	}
	for _, id := range ids {
		var s protocol.ApplicationStatus
		if err = api.Query(ctx, id, protocol.QueryStatus, &s); err == nil && s.Store != "" {
			return s.Store, nil
		}
	}
	if err == nil {
		err = errors.New("no application reports its store; name it with --store or CONVERGE_STORE")
	}
	return "", err
}

// lines returns the lines from the store and the newest lines, which only the workflow has. A removed service still has its history.
func (o *historyOptions) lines(ctx context.Context) ([]shownLine, error) {
	at, status, gone, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	defer at.Close() // only read
	lines, err := o.trail(ctx, at, o.id())
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", o.name(), err)
	}
	if len(lines) == 0 && gone != nil {
		return nil, gone
	}
	var out []shownLine
	for _, l := range lines {
		out = append(out, shownLine{AuditLine: l})
	}
	if o.whole != "" || o.channel != "" {
		return out, nil
	}
	return o.among(ctx, at, status, out), nil
}

// trail returns one trail. A workflow that does not answer contributes no lines.
func (o *historyOptions) trail(ctx context.Context, at *store.Store, id string) ([]entities.AuditLine, error) {
	newest, _, err := o.newest(ctx, id) // the workflow first: a line that moves to the store in between is read twice, never missed
	if err != nil {
		return nil, err
	}
	application, service := protocol.TrailOf(id)
	lines, err := at.Audit(ctx, application, service)
	if err != nil {
		return nil, err
	}
	kept := map[int64]bool{}
	for _, l := range lines {
		kept[l.N] = true
	}
	for _, l := range newest.Lines {
		if !kept[l.N] || l.N > newest.Stored && !contains(lines, l) {
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// newest returns the lines that only the workflow has. It returns none for a workflow that does not run.
func (o *historyOptions) newest(ctx context.Context, id string) (newest protocol.HistoryAnswer, runs bool, err error) {
	api, err := o.f.client(ctx)
	if err != nil {
		return newest, false, err
	}
	err = api.Query(ctx, id, protocol.QueryHistory, &newest)
	if errors.Is(err, errNotFound) {
		return newest, false, nil
	}
	return newest, err == nil, err
}

// contains reports whether a line is in a trail. It compares more than the number, because a restarted service counts from one again.
func contains(lines []entities.AuditLine, l entities.AuditLine) bool {
	return slices.ContainsFunc(lines, func(other entities.AuditLine) bool {
		return other.N == l.N && other.At.Equal(l.At) && other.Text == l.Text
	})
}

// among merges the acts on a service's application, on its runtimes and on the installation into the service's own lines, from the
// first publication on. It reports trails that cannot be read, and leaves them out.
func (o *historyOptions) among(ctx context.Context, at *store.Store, status protocol.Status, own []shownLine) []shownLine {
	wider := []string{protocol.ApplicationID(o.service.application), protocol.InstallationID()}
	for _, c := range status.Channels {
		if id := protocol.RuntimeID(c.Runtime); c.Runtime != "" && !slices.Contains(wider, id) {
			wider = append(wider, id)
		}
	}
	out := slices.Clone(own)
	for _, id := range wider {
		lines, err := o.trail(ctx, at, id)
		if err != nil {
			o.f.note("history of %s: %v", id, err)
		}
		for n, l := range lines {
			if o.concerns(id, l) && len(own) > 0 && !o.before(lines[n:], own[0]) {
				out = append(out, shownLine{AuditLine: l, Of: id})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b shownLine) int { return a.At.Compare(b.At) })
	return out
}

// concerns reports whether an act on the application, a runtime or the installation concerns the service.
func (o *historyOptions) concerns(id string, l entities.AuditLine) bool {
	switch l.Kind {
	case entities.EventPause:
		return true
	case entities.EventPublish, entities.EventPin, entities.EventManage:
		return id == protocol.ApplicationID(o.service.application)
	}
	return false
}

// before reports whether the first of some lines no longer applied when the service began, because a later line of the same kind
// had replaced it.
func (o *historyOptions) before(lines []entities.AuditLine, began shownLine) bool {
	return slices.ContainsFunc(lines[1:], func(l entities.AuditLine) bool { return l.Kind == lines[0].Kind && !l.At.After(began.At) })
}
