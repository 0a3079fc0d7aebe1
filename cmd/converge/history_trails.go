package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/trail"
	"github.com/converge-engine/converge/intent/store"
)

// This file reads audit trails: the lines in the store, the newest lines that only the workflow has, and acts on the application, the
// runtimes and the installation of a service.

// historyEntry is an audit line. If it does not belong to the service, it names the workflow that it belongs to.
type historyEntry struct {
	entities.AuditEntry
	Of string `json:"of,omitempty"`
}

// id returns the workflow id of the trail.
func (o *historyOptions) id() string {
	if o.scopeID != "" {
		return o.scopeID
	}
	return cmp.Or(o.workflowID, o.service.id())
}

// name returns the name of the trail for users.
func (o *historyOptions) name() string {
	application, _ := protocol.TrailOf(o.scopeID)
	switch {
	case o.scopeID == "":
		return o.service.String()
	case o.scopeID == protocol.ApplicationID(application):
		return application
	}
	return o.scopeID
}

// open opens the store of the trail. statusErr is the error if the workflow does not run.
func (o *historyOptions) open(ctx context.Context) (at *store.Store, status protocol.Status, statusErr error, err error) {
	reported := ""
	if o.scopeID == "" {
		o.workflowID = o.f.currentWorkflowID(ctx, o.service)
		status, statusErr = o.f.status(ctx, o.service)
		reported = status.Store
	} else if first(o.store, o.f.Env("CONVERGE_STORE")) == "" {
		reported, statusErr = o.anyKnownStore(ctx)
	}
	location, err := o.f.readableStore(o.store, reported)
	if err != nil {
		return nil, status, statusErr, err
	}
	if statusErr != nil && location == "" {
		return nil, status, statusErr, statusErr
	}
	at, err = store.Open(ctx, location)
	return at, status, statusErr, err
}

// anyKnownStore returns the store of the application of the trail. Without an application it returns the store of any application.
func (o *historyOptions) anyKnownStore(ctx context.Context) (string, error) {
	api, err := o.f.client(ctx)
	if err != nil {
		return "", err
	}
	ids := []string{o.scopeID}
	if application, service := protocol.TrailOf(o.scopeID); o.scopeID != protocol.ApplicationID(application) || service != "" {
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

// entries returns the lines from the store and the newest lines, which only the workflow has. A removed service still has its history.
func (o *historyOptions) entries(ctx context.Context) ([]historyEntry, error) {
	at, status, statusErr, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	defer at.Close() // only read
	entries, err := o.trail(ctx, at, o.id())
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", o.name(), err)
	}
	if len(entries) == 0 && statusErr != nil {
		return nil, statusErr
	}
	var out []historyEntry
	for _, l := range entries {
		out = append(out, historyEntry{AuditEntry: l})
	}
	if o.scopeID != "" || o.channel != "" {
		return out, nil
	}
	return o.withWiderScopes(ctx, at, status, out), nil
}

// trail returns one trail. A workflow that does not answer contributes no lines.
func (o *historyOptions) trail(ctx context.Context, at *store.Store, id string) ([]entities.AuditEntry, error) {
	newest, _, err := o.newestEntries(ctx, id) // the workflow first: a line that moves to the store in between is read twice, never missed
	if err != nil {
		return nil, err
	}
	application, service := protocol.TrailOf(id)
	entries, err := at.Audit(ctx, application, service)
	if err != nil {
		return nil, err
	}
	stored := map[int64]bool{}
	for _, l := range entries {
		stored[l.N] = true
	}
	for _, l := range newest.Entries {
		if !stored[l.N] || l.N > newest.Stored && !containsEntry(entries, l) {
			entries = append(entries, l)
		}
	}
	return trail.InOrder(entries), nil
}

// newestEntries returns the lines that only the workflow has. It returns none for a workflow that does not run.
func (o *historyOptions) newestEntries(ctx context.Context, id string) (newest protocol.HistoryAnswer, running bool, err error) {
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

// containsEntry reports whether a line is in a trail. It compares more than the number, because a restarted service counts from one again.
func containsEntry(entries []entities.AuditEntry, l entities.AuditEntry) bool {
	return slices.ContainsFunc(entries, func(other entities.AuditEntry) bool {
		return other.N == l.N && other.At.Equal(l.At) && other.Text == l.Text
	})
}

// withWiderScopes merges the acts on a service's application, on its runtimes and on the installation into the service's own lines, from
// the first publication on. It reports trails that cannot be read, and leaves them out.
func (o *historyOptions) withWiderScopes(ctx context.Context, at *store.Store, status protocol.Status, own []historyEntry) []historyEntry {
	scopes := []string{protocol.ApplicationID(o.service.application), protocol.InstallationID()}
	for _, c := range status.Channels {
		if id := protocol.RuntimeID(c.Runtime); c.Runtime != "" && !slices.Contains(scopes, id) {
			scopes = append(scopes, id)
		}
	}
	trails := [][]historyEntry{own}
	for _, id := range scopes {
		entries, err := o.trail(ctx, at, id)
		if err != nil {
			o.f.note("history of %s: %v", id, err)
		}
		entries = slices.DeleteFunc(entries, func(l entities.AuditEntry) bool { return !o.concerns(id, l) })
		var wider []historyEntry
		for n, l := range entries {
			if len(own) > 0 && !repeatedBefore(entries[n:], own[0]) {
				wider = append(wider, historyEntry{AuditEntry: l, Of: id})
			}
		}
		trails = append(trails, wider)
	}
	return mergeTrails(trails)
}

// mergeTrails merges trails by time. The lines of each stay in their order, also if the clock of the server was set back.
func mergeTrails(trails [][]historyEntry) (out []historyEntry) {
	for {
		earliest := -1
		for n, t := range trails {
			if len(t) > 0 && (earliest < 0 || t[0].At.Before(trails[earliest][0].At)) {
				earliest = n
			}
		}
		if earliest < 0 {
			return out
		}
		out, trails[earliest] = append(out, trails[earliest][0]), trails[earliest][1:]
	}
}

// concerns reports whether an act on the application, a runtime or the installation concerns the service.
func (o *historyOptions) concerns(id string, l entities.AuditEntry) bool {
	_, service := protocol.TrailOf(o.id())
	switch {
	case l.Service != "" && l.Service != service:
		return false // one act of several that an application records for one service each
	case l.Kind == entities.EventPause:
		return true
	}
	ofApplication := l.Kind == entities.EventPublish || l.Kind == entities.EventPin || l.Kind == entities.EventManage
	return ofApplication && id == protocol.ApplicationID(o.service.application)
}

// repeatedBefore reports whether the first of some lines no longer applied when the service began, because a later line of the same kind
// had replaced it.
func repeatedBefore(entries []entities.AuditEntry, began historyEntry) bool {
	return slices.ContainsFunc(entries[1:], func(l entities.AuditEntry) bool { return l.Kind == entries[0].Kind && !l.At.After(began.At) })
}
