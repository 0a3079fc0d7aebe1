// Package access says which applications the sender of a request may read (grants of the verb `read`), and limits a connection to those. The
// server has rights of its own in Temporal; with this it does not lend them. The check comes before anything is formatted, counted or cut into
// pages.
package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/serve/session"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/worker/deployment"
)

const (
	kept        = 30 * time.Second // for which the readers of an application are known
	tryAgain    = 5 * time.Second  // after an application did not say who may read it
	patience    = 3 * time.Second  // with one that does not answer
	maxKnown    = 20000            // applications, also of those that do not exist
	maxParallel = 16               // requests
)

// HiddenError is why there is no answer: the sender of the request may not read the application, whether it exists or not, or the installation
// (""). It is no connection.ErrNotFound, after which the trail of a removed service would be read from the store.
type HiddenError struct{ Application string }

func (e *HiddenError) Error() string {
	if e.Application == "" {
		return "you may not read the installation and its runtimes"
	}
	return fmt.Sprintf("no application %s that you may read", e.Application)
}

// Readers knows who may read which application. A nil one lets everybody read everything.
type Readers struct {
	own connection.API
	now func() time.Time

	loading singleflight.Group // so that many senders cost one request
	mu      sync.Mutex
	known   map[string]readers // by application; "": of the installation
}

// readers are those of one application.
type readers struct {
	names []string // and groups; none: everybody
	err   error    // they are not known: none may
	until time.Time
}

// New returns the readers of an installation.
func New(own connection.API, now func() time.Time) *Readers {
	return &Readers{own: own, now: now, known: map[string]readers{}}
}

// Check returns why the sender of a request may not read an application: a *HiddenError, or why it is not known who may. What is of no
// application ("") belongs to each, such as the pause of its runtime, so that every known sender may read it (but see CheckInstallation).
func (r *Readers) Check(ctx context.Context, application string) error {
	if r == nil {
		return nil
	}
	who, known := session.From(ctx)
	if known && application == "" {
		return nil
	}
	if !known || !connection.IsName(application) {
		return &HiddenError{application}
	}
	of := r.of(ctx, application)
	switch {
	case of.err != nil && !errors.Is(of.err, connection.ErrNotFound):
		return fmt.Errorf("who may read %s is not known: %w", application, of.err)
	case of.err != nil || len(of.names) > 0 && !who.IsOneOf(of.names):
		return &HiddenError{application}
	}
	return nil
}

// CheckInstallation returns why the sender of a request may not read what belongs to no application: the rules of the installation, its report,
// its runtimes, and their histories.
func (r *Readers) CheckInstallation(ctx context.Context) error {
	if r == nil {
		return nil
	}
	who, known := session.From(ctx)
	if !known {
		return &HiddenError{}
	}
	of := r.of(ctx, "")
	switch {
	case errors.Is(of.err, connection.ErrNotFound): // it has no rules
		return nil
	case of.err != nil:
		return fmt.Errorf("who may read the installation is not known: %w", of.err)
	case len(of.names) > 0 && !who.IsOneOf(of.names):
		return &HiddenError{}
	}
	return nil
}

// IsGrantedInstallation reports whether a grant of the installation lets the sender of a request read it, so that they are more than known.
func (r *Readers) IsGrantedInstallation(ctx context.Context) bool {
	return r == nil || r.CheckInstallation(ctx) == nil && len(r.of(ctx, "").names) > 0
}

// Allowed returns which of some applications the sender of a request may read. Those that do not say now who may read them are not among them;
// unknown is their number.
func (r *Readers) Allowed(ctx context.Context, applications []string) (allowed func(application string) bool, unknown int) {
	if r == nil {
		return func(string) bool { return true }, 0
	}
	applications = slices.Compact(slices.Sorted(slices.Values(applications)))
	results := make([]error, len(applications))
	var g errgroup.Group
	g.SetLimit(maxParallel)
	for n, name := range applications {
		g.Go(func() error {
			results[n] = r.Check(ctx, name)
			return nil
		})
	}
	_ = g.Wait() // none of them fails
	set := map[string]bool{}
	for n, name := range applications {
		set[name] = results[n] == nil
		if results[n] != nil && !errors.As(results[n], new(*HiddenError)) {
			unknown++
		}
	}
	return func(application string) bool { return set[application] }, unknown
}

// UnknownText says that a list is not whole.
func UnknownText(unknown int) string {
	return entities.Count(unknown, "application") + " left out: it is not known now who may read"
}

// of returns the readers of an application.
func (r *Readers) of(ctx context.Context, application string) readers {
	r.mu.Lock()
	of, ok := r.known[application]
	r.mu.Unlock()
	if ok && r.now().Before(of.until) {
		return of
	}
	found, _, _ := r.loading.Do(application, func() (any, error) { return r.load(context.WithoutCancel(ctx), application), nil })
	return found.(readers)
}

// load requests the readers of an application.
func (r *Readers) load(ctx context.Context, application string) readers {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	names, err := r.names(ctx, application)
	of := readers{names: names, err: err, until: r.now().Add(kept)}
	if err != nil && !errors.Is(err, connection.ErrNotFound) {
		of.until = r.now().Add(tryAgain)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= maxKnown {
		clear(r.known)
	}
	r.known[application] = of
	return of
}

// names are the readers of an application, or of the installation, as they are now.
func (r *Readers) names(ctx context.Context, application string) ([]string, error) {
	if application == "" {
		var status protocol.InstallationStatus
		err := r.own.Query(ctx, protocol.InstallationID(), protocol.QueryStatus, &status)
		return entities.Readers(status.Rules.Grants), err
	}
	var status protocol.ApplicationStatus
	err := r.own.Query(ctx, protocol.ApplicationID(application), protocol.QueryStatus, &status)
	return status.Readers, err
}

// Limit returns the connection of the server as the sender of a request may use it: it has nothing that they may not read.
func (r *Readers) Limit(own connection.API) connection.API {
	if r == nil {
		return own
	}
	return &limited{own, r}
}

// limited is a connection that answers what its callers may read.
type limited struct {
	connection.API
	readers *Readers
}

// applicationOf returns the application that a workflow belongs to; "": it belongs to none.
func applicationOf(workflowID string) string {
	parts := strings.Split(workflowID, "/")
	switch parts[0] {
	case "runtime", protocol.InstallationID():
		return ""
	}
	if len(parts) < 2 {
		return ""
	}
	return parts[1] // of a service, an application, a plan, a preview
}

// check refuses what a caller may not read.
func (l *limited) check(ctx context.Context, workflowID string) error {
	return l.readers.Check(ctx, applicationOf(workflowID))
}

func (l *limited) Query(ctx context.Context, workflowID, query string, into any) error {
	if err := l.check(ctx, workflowID); err != nil {
		return err
	}
	return l.API.Query(ctx, workflowID, query, into)
}

func (l *limited) Update(ctx context.Context, workflowID, verb, requestID string, act, into any) error {
	if err := l.check(ctx, workflowID); err != nil {
		return err
	}
	return l.API.Update(ctx, workflowID, verb, requestID, act, into)
}

func (l *limited) Start(ctx context.Context, workflowID, workflowType string, input any) error {
	if err := l.check(ctx, workflowID); err != nil {
		return err
	}
	return l.API.Start(ctx, workflowID, workflowType, input)
}

func (l *limited) Progress(ctx context.Context, workflowID string) ([]protocol.Progress, error) {
	if err := l.check(ctx, workflowID); err != nil {
		return nil, err
	}
	return l.API.Progress(ctx, workflowID)
}

func (l *limited) Altered(ctx context.Context, workflowID string) ([]deployment.Alteration, error) {
	if err := l.check(ctx, workflowID); err != nil {
		return nil, err
	}
	return l.API.Altered(ctx, workflowID)
}

func (l *limited) TerminationReason(ctx context.Context, workflowID string) (string, error) {
	if err := l.check(ctx, workflowID); err != nil {
		return "", err
	}
	return l.API.TerminationReason(ctx, workflowID)
}

func (l *limited) HowEnded(ctx context.Context, workflowID string) string {
	if l.check(ctx, workflowID) != nil {
		return ""
	}
	return l.API.HowEnded(ctx, workflowID)
}

func (l *limited) Services(ctx context.Context, application string) ([]connection.ServiceName, error) {
	names, err := l.API.Services(ctx, application)
	return l.services(ctx, names, err)
}

func (l *limited) EndedServices(ctx context.Context, application string) ([]connection.ServiceName, error) {
	names, err := l.API.EndedServices(ctx, application)
	return l.services(ctx, names, err)
}

func (l *limited) services(ctx context.Context, names []connection.ServiceName, err error) ([]connection.ServiceName, error) {
	return only(ctx, l.readers, names, err, func(n connection.ServiceName) string { return n.Application })
}

func (l *limited) Applications(ctx context.Context) ([]string, error) {
	names, err := l.API.Applications(ctx)
	return only(ctx, l.readers, names, err, func(name string) string { return name })
}

func (l *limited) Plans(ctx context.Context, application string) ([]string, error) {
	ids, err := l.API.Plans(ctx, application)
	return only(ctx, l.readers, ids, err, applicationOf)
}

func (l *limited) Paused(ctx context.Context, application string) ([]string, error) {
	ids, err := l.API.Paused(ctx, application)
	return only(ctx, l.readers, ids, err, applicationOf)
}

func (l *limited) ListServices(ctx context.Context, filter connection.ServiceFilter, size int, token []byte) ([]connection.ListedService, []byte, error) {
	page, next, err := l.API.ListServices(ctx, filter, size, token)
	page, err = only(ctx, l.readers, page, err, func(s connection.ListedService) string { return s.Application })
	return page, next, err
}

// only returns what a caller may read of a list. What belongs to no application stays.
func only[T any](ctx context.Context, r *Readers, all []T, err error, applicationOf func(T) string) ([]T, error) {
	if err != nil {
		return nil, err
	}
	var applications []string
	for _, item := range all {
		if name := applicationOf(item); name != "" {
			applications = append(applications, name)
		}
	}
	allowed, _ := r.Allowed(ctx, applications)
	return slices.DeleteFunc(slices.Clone(all), func(item T) bool {
		name := applicationOf(item)
		return name != "" && !allowed(name)
	}), nil
}

var _ connection.API = (*limited)(nil)
