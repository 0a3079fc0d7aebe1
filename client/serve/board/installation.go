package board

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/worker/deployment"
)

// installationContent is the content of the page of the installation.
type installationContent struct {
	Problem  string // why its state is not known
	Status   protocol.InstallationStatus
	Rules    []string
	Services []count // that the sender may read, by status
	Hidden   string  // why the report is not shown
	Report   deployment.Report
	Examined time.Time
}

// installation shows the pause of everything, the rules, and what `converge admin doctor` finds.
func (b *board) installation(r *http.Request) (page, error) {
	if err := b.Readers.CheckInstallation(r.Context()); err != nil {
		return page{}, err
	}
	var c installationContent
	// Without a workflow it was never paused, and has no rules.
	if err := b.Calls.Query(r.Context(), protocol.InstallationID(), protocol.QueryStatus, &c.Status); err != nil && !errors.Is(err, connection.ErrNotFound) {
		c.Problem = err.Error()
	}
	if c.Status.Rules.Number > 0 {
		c.Rules = explain.Rules(c.Status.Rules.Rules)
	}
	if _, err := b.Overview.Await(r.Context(), statusPatience); err == nil { // the rest does not depend on it
		allowed, _ := b.Readers.Allowed(r.Context(), b.Overview.Applications())
		c.Services = b.countsOf(filter{}, allowed)
	}
	c.Hidden = b.hiddenReport(r.Context())
	if c.Hidden == "" {
		c.Report, c.Examined = b.examined.report(r.Context(), b.Examine, b.Now)
	}
	return page{Name: "installation", Title: "Installation", Nav: "installation", Content: c}, nil
}

// hiddenReport returns why the sender of a request does not see the report; "": they do. It names services of all applications, also of those that do
// not run now, so that a sign-in is not enough.
func (b *board) hiddenReport(ctx context.Context) string {
	switch {
	case b.Examine == nil:
		return "this server does not examine the installation"
	case !b.Readers.IsGrantedInstallation(ctx):
		return "it names services of all applications; a grant of read in the rules of the installation lets people see it"
	}
	return ""
}

const (
	reportKept     = 30 * time.Second // for which a report is shown
	reportPatience = 30 * time.Second
)

// examined is the last report of what the installation looks like from outside, so that many readers cost one examination.
type examined struct {
	mu   sync.Mutex
	last deployment.Report
	at   time.Time
}

// report examines the installation, unless that was done a moment ago. Others wait meanwhile.
func (e *examined) report(ctx context.Context, examine func(context.Context) deployment.Report, now func() time.Time) (deployment.Report, time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at.IsZero() || now().Sub(e.at) >= reportKept {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportPatience) // for the others too
		defer cancel()
		e.last, e.at = examine(ctx), now()
	}
	return e.last, e.at
}
