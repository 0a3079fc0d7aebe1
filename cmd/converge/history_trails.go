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

// This file reads audit trails: what the store has, what only the workflow has yet, and what was done to something wider that
// a service is part of.

// shownLine is a line, and, where it is not the service's own, the workflow id of what it is of.
type shownLine struct {
	entities.AuditLine
	Of string `json:"of,omitempty"`
}

// id is the workflow whose trail it is.
func (o *historyOptions) id() string {
	if o.whole != "" {
		return o.whole
	}
	return cmp.Or(o.known, o.service.id())
}

// name is that for people.
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

// open opens the store that the trail is in. Gone says that the workflow does not run.
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

// storeOfAny is the store of an application: the one whose trail is wanted, or any.
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
		err = errors.New("no application says where the store is; name it with --store or CONVERGE_STORE")
	}
	return "", err
}

// lines are those of the store, and the newest, which only the workflow has. What is gone has its history all the same.
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

// trail is one trail. A workflow that does not answer has no lines of its own.
func (o *historyOptions) trail(ctx context.Context, at *store.Store, id string) ([]entities.AuditLine, error) {
	newest, _, err := o.newest(ctx, id) // asked first: a line that moves to the store in between is seen twice, never missed
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

// newest are the lines that only the workflow has; none of one that does not run.
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

// contains: a service that was begun anew counted from one again, so a number alone says nothing.
func contains(lines []entities.AuditLine, l entities.AuditLine) bool {
	return slices.ContainsFunc(lines, func(other entities.AuditLine) bool {
		return other.N == l.N && other.At.Equal(l.At) && other.Text == l.Text
	})
}

// among puts what people did to a service's application, to its runtimes and to everything among its own lines, from the
// publication on with which it began. What cannot be read is said, and left out.
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

// concerns tells whether something that was done to what is wider concerns the service.
func (o *historyOptions) concerns(id string, l entities.AuditLine) bool {
	switch l.Kind {
	case entities.EventPause:
		return true
	case entities.EventPublish, entities.EventPin, entities.EventManage:
		return id == protocol.ApplicationID(o.service.application)
	}
	return false
}

// before tells whether the first of some lines was over when the service began: another one of its kind came before that.
func (o *historyOptions) before(lines []entities.AuditLine, began shownLine) bool {
	return slices.ContainsFunc(lines[1:], func(l entities.AuditLine) bool { return l.Kind == lines[0].Kind && !l.At.After(began.At) })
}
