package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/bench/report"
)

// gated is one way to hold a release, and how it is let go.
type gated struct {
	what     string
	app      application
	approved bool // it waits for an approval
	latency  []time.Duration
}

// window is how long a check is asked after the deployment.
const window = 2 * time.Second

// outside is an address that checks ask, and how often they have.
type outside struct {
	*httptest.Server
	asked atomic.Int64
	shut  atomic.Bool
}

func newOutside() *outside {
	o := &outside{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		o.asked.Add(1)
		if o.shut.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	return o
}

// protections is a channel's list of them.
func protections(items ...string) string {
	return "  protections:\n  - " + strings.Join(items, "\n  - ") + "\n"
}

// ways are the gates that are compared, the first without any.
func ways(o *outside) []*gated {
	one := func(name, what, gates string) *gated {
		return &gated{what: what, app: application{name: name, channels: 1, services: serviceNames(actors), steady: time.Hour, gates: gates}}
	}
	approval := one("approval", "release with an approval", "  preconditions: [{manualApproval: {}}]\n")
	approval.approved = true
	lease := one("lease", "release with a lease", "")
	lease.app.applies = 1
	return []*gated{
		one("none", "release without gates", ""),
		one("offline", "release with a check that asks nothing outside (always)", protections("{name: always, always: {verdict: PASS}}")),
		one("asked", "release with a check that asks outside (http)", protections(fmt.Sprintf("{name: ask, http: {url: %q}}", o.URL))),
		approval,
		one("soak", "release with a window of "+short(window)+" after it", protections(
			fmt.Sprintf("{name: soak, always: {verdict: PASS}, lifecycle: [postDeployment: {for: %s}]}", window))),
		lease,
	}
}

// measureGates takes releases through each gate alone, in turns with one without and with the bare
// workflow; then it lets services rest under gates, and wait before them.
func measureGates(ctx context.Context, b *bench) (err error) {
	w, err := newWorld(ctx, b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	o := newOutside()
	defer o.Close()
	all := ways(o)
	p, err := newPair(ctx, w, all[0].app)
	if err != nil {
		return err
	}
	defer p.bare.worker.Stop()
	for _, g := range all[1:] {
		if err := w.publish(ctx, g.app); err != nil {
			return err
		}
	}
	if err := gatesInTurn(ctx, b, p, all); err != nil {
		return err
	}
	if err := gatesHistory(ctx, b, w, all); err != nil {
		return err
	}
	if err := gatesAtRest(ctx, b, w, o); err != nil {
		return err
	}
	return gatesWaiting(ctx, b, w, o)
}

// gatesInTurn times each way to the start of the apply, from the signal that lets it go.
func gatesInTurn(ctx context.Context, b *bench, p *pair, all []*gated) error {
	var bare []time.Duration
	rounds := max(b.rounds/4, 1)
	for n := range actors + rounds {
		sent, begun, err := p.bare.cycle(ctx, bareID(n%actors), fmt.Sprintf("v%d", n))
		if err != nil {
			return err
		}
		if n >= actors {
			bare = append(bare, begun.Sub(sent))
		}
		for i := range all {
			g := all[(i+n)%len(all)]
			if err := pause(ctx, 4*breath); err != nil {
				return err
			}
			r, err := g.release(ctx, p.world, g.app.services[n%actors], fmt.Sprintf("v%d", n))
			if err != nil {
				return fmt.Errorf("%s: %w", g.what, err)
			}
			if n >= actors {
				g.latency = append(g.latency, r.began.Sub(r.sent))
			}
		}
	}
	against := report.Dur(report.Median(bare))
	for _, g := range all {
		what := "signal to start of apply, " + g.what + ", p50"
		if g.approved {
			what = "approve " + what
		}
		low, high := report.RatioInterval(g.latency, bare)
		b.Add(report.Line{
			Row: b.row, What: what, Measured: report.Dur(report.Median(g.latency)), Spread: fmt.Sprintf("ratio %.2f–%.2f", low, high),
			Reference: &against, Against: "bare workflow",
		})
	}
	b.Note(b.row, "%d rounds of each, in turns", rounds)
	return nil
}

// release takes one release through. What is sent is the signal that lets it go: the approval, where
// there is one.
func (g *gated) release(ctx context.Context, w *world, service, version string) (released, error) {
	return w.release(ctx, g.app, service, version, func(ctx context.Context, c client.Client, id, version string) (time.Time, error) {
		sent, err := signalRelease(ctx, c, id, version)
		if err != nil || !g.approved {
			return sent, err
		}
		if err := w.reaches(ctx, id, version, "WAITING_MANUAL_APPROVAL"); err != nil {
			return sent, err
		}
		if err := pause(ctx, breath); err != nil {
			return sent, err
		}
		sent = time.Now()
		return sent, c.SignalWorkflow(ctx, id, "", protocol.Approve, protocol.ApprovalRequest{
			RequestMeta: protocol.RequestMeta{By: "bench"}, Version: version, Topic: channel(1),
		})
	})
}

// reaches waits until a service's first channel is in a status with a release of that version on its way.
func (w *world) reaches(ctx context.Context, id, version, status string) error {
	return until(ctx, breath, func() (bool, error) {
		var s protocol.Status
		value, err := w.client.QueryWorkflow(ctx, id, "", protocol.QueryStatus)
		if err == nil {
			err = value.Get(&s)
		}
		there := err == nil && len(s.Channels) > 0 && s.Channels[0].Status == status
		return there && slices.ContainsFunc(s.Releases, func(r protocol.ReleaseStatus) bool { return r.Version == version }), err
	})
}

// gatesHistory counts what one more release writes in each way.
func gatesHistory(ctx context.Context, b *bench, w *world, all []*gated) error {
	var none written
	for i, g := range all {
		service := g.app.services[0]
		h, err := w.written(ctx, protocol.ServiceID(g.app.name, service), func(version string) error {
			if _, err := g.release(ctx, w, service, version); err != nil {
				return err
			}
			return until(ctx, 3*breath, func() (bool, error) { return w.converged(ctx, g.app, service, version) })
		})
		if err != nil {
			return fmt.Errorf("%s: %w", g.what, err)
		}
		if i == 0 {
			none = h
		}
		h.compare(b, g.what, none, all[0].what)
	}
	return nil
}
