package read

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/trail"
	"github.com/converge-engine/converge/intent/store"
)

// HistoryEntry is an audit line. If it does not belong to the service, it names the workflow that it belongs to.
type HistoryEntry struct {
	entities.AuditEntry
	Of string `json:"of,omitempty"`
}

// Trail is the audit trail of a service, an application, a runtime or the installation: the lines in the store, and the newest ones, which
// only the workflow has.
type Trail struct {
	calls Calls
	// Note reports what cannot be read and is left out.
	Note    func(format string, args ...any)
	ID      string                 // workflow id
	Name    string                 // for users
	service connection.ServiceName // zero: the trail is of a wider scope
}

// ServiceTrail is the trail of a service, by its current name.
func ServiceTrail(ctx context.Context, c Calls, n connection.ServiceName) Trail {
	return Trail{calls: c, Note: func(string, ...any) {}, ID: WorkflowID(ctx, c, n), Name: n.String(), service: n}
}

// ScopeTrail is the trail of an application, a runtime or the installation, by the id of its workflow.
func ScopeTrail(c Calls, workflowID string) Trail {
	t := Trail{calls: c, Note: func(string, ...any) {}, ID: workflowID, Name: workflowID}
	if application, _ := protocol.TrailOf(workflowID); workflowID == protocol.ApplicationID(application) {
		t.Name = application
	}
	return t
}

// WorkflowID returns the workflow id of a service, by its current name if its application answers.
func WorkflowID(ctx context.Context, c Calls, n connection.ServiceName) string {
	var status protocol.ApplicationStatus
	if c.Query(ctx, protocol.ApplicationID(n.Application), protocol.QueryStatus, &status) != nil {
		return n.ID()
	}
	return protocol.ServiceID(n.Application, status.Names.Key(n.Service))
}

// Open opens the store of the trail. statusErr says why the service of the trail has no status, such as that it does not run.
func (t Trail) Open(ctx context.Context, stores Store) (at *store.Store, status protocol.Status, statusErr error, err error) {
	reported := ""
	switch {
	case t.service != (connection.ServiceName{}):
		status, statusErr = Status(ctx, t.calls, t.service)
		reported = status.Store
	case stores.Configured == "":
		reported, statusErr = t.anyKnownStore(ctx)
	}
	if statusErr != nil && reported == "" && stores.Configured == "" {
		return nil, status, statusErr, statusErr
	}
	at, err = stores.Open(ctx, reported)
	return at, status, statusErr, err
}

// anyKnownStore returns the store of the application of the trail. Without an application it returns the store of any application.
func (t Trail) anyKnownStore(ctx context.Context) (string, error) {
	ids := []string{t.ID}
	if application, service := protocol.TrailOf(t.ID); t.ID != protocol.ApplicationID(application) || service != "" {
		names, err := t.calls.Applications(ctx)
		if err != nil {
			return "", err
		}
		ids = nil
		for _, name := range names {
			ids = append(ids, protocol.ApplicationID(name))
		}
	}
	var err error
	for _, id := range ids {
		var s protocol.ApplicationStatus
		if err = t.calls.Query(ctx, id, protocol.QueryStatus, &s); err == nil && s.Store != "" {
			return s.Store, nil
		}
	}
	if err == nil {
		err = errors.New("no application reports its store; name it with --store or CONVERGE_STORE")
	}
	return "", err
}

// Entries returns the lines of the trail, oldest first. wider adds to those of a service the acts on its application, its runtimes and the
// installation that concern it. A removed service still has its history.
func (t Trail) Entries(ctx context.Context, stores Store, wider bool) ([]HistoryEntry, error) {
	at, status, statusErr, err := t.Open(ctx, stores)
	if err != nil {
		return nil, err
	}
	defer at.Close() // only read
	entries, err := t.lines(ctx, at, t.ID)
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", t.Name, err)
	}
	if len(entries) == 0 && statusErr != nil {
		return nil, statusErr
	}
	var out []HistoryEntry
	for _, l := range entries {
		out = append(out, HistoryEntry{AuditEntry: l})
	}
	if wider {
		out = t.withWiderScopes(ctx, at, status, out)
	}
	if n := len(entries); errors.Is(statusErr, connection.ErrNotFound) && n > 0 { // what came after its end does not concern it
		last := entries[n-1].At
		out = slices.DeleteFunc(out, func(e HistoryEntry) bool { return e.Of != "" && e.At.After(last) })
	}
	return out, nil
}

// lines returns one trail. A workflow that does not answer contributes no lines.
func (t Trail) lines(ctx context.Context, at *store.Store, id string) ([]entities.AuditEntry, error) {
	newest, _, err := t.newest(ctx, id) // the workflow first: a line that moves to the store in between is read twice, never missed
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

// newest returns the lines that only the workflow has. It returns none for a workflow that does not run.
func (t Trail) newest(ctx context.Context, id string) (newest protocol.HistoryAnswer, running bool, err error) {
	err = t.calls.Query(ctx, id, protocol.QueryHistory, &newest)
	if errors.Is(err, connection.ErrNotFound) {
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
func (t Trail) withWiderScopes(ctx context.Context, at *store.Store, status protocol.Status, own []HistoryEntry) []HistoryEntry {
	if t.service == (connection.ServiceName{}) {
		return own
	}
	application, _ := protocol.TrailOf(t.ID)
	scopes := []string{protocol.ApplicationID(application), protocol.InstallationID()}
	for _, c := range status.Channels {
		if id := protocol.RuntimeID(c.Runtime); c.Runtime != "" && !slices.Contains(scopes, id) {
			scopes = append(scopes, id)
		}
	}
	trails := [][]HistoryEntry{own}
	for _, id := range scopes {
		entries, err := t.lines(ctx, at, id)
		if err != nil {
			t.Note("history of %s: %v", id, err)
		}
		entries = slices.DeleteFunc(entries, func(l entities.AuditEntry) bool { return !t.concerns(id, l) })
		var wider []HistoryEntry
		for n, l := range entries {
			if len(own) > 0 && !repeatedBefore(entries[n:], own[0]) {
				wider = append(wider, HistoryEntry{AuditEntry: l, Of: id})
			}
		}
		trails = append(trails, wider)
	}
	return mergeTrails(trails)
}

// mergeTrails merges trails by time. The lines of each stay in their order, also if the clock of the server was set back.
func mergeTrails(trails [][]HistoryEntry) (out []HistoryEntry) {
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
func (t Trail) concerns(id string, l entities.AuditEntry) bool {
	application, service := protocol.TrailOf(t.ID)
	switch {
	case l.Service != "" && l.Service != service:
		return false // one act of several that an application records for one service each
	case l.Kind == entities.EventPause:
		return true
	}
	ofApplication := l.Kind == entities.EventPublish || l.Kind == entities.EventPin || l.Kind == entities.EventManage
	return ofApplication && id == protocol.ApplicationID(application)
}

// repeatedBefore reports whether the first of some lines no longer applied when the service began, because a later line of the same kind
// had replaced it.
func repeatedBefore(entries []entities.AuditEntry, began HistoryEntry) bool {
	return slices.ContainsFunc(entries[1:], func(l entities.AuditEntry) bool { return l.Kind == entries[0].Kind && !l.At.After(began.At) })
}
