package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/collect"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/bench/report"
)

const (
	// configEvery is after how many releases the configuration changes, too.
	configEvery = 10
	// year later nothing is kept for its age any more.
	year = 365 * 24 * time.Hour
)

// lying is how many files a store has, and of how many bytes: those that they hold, and those that they take where each takes whole
// blocks.
type lying struct {
	files         int
	bytes, blocks int64
}

const block = 4096

// measureStore makes releases, some of them with another configuration, and says what the store has of them, and what is left when it is
// collected long after.
func measureStore(ctx context.Context, b *bench) (err error) {
	w, err := newWorld(ctx, b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	a := application{name: "grown", channels: 2, services: serviceNames(1), steady: time.Hour}
	if err := w.publish(ctx, a); err != nil {
		return err
	}
	if err := w.grow(ctx, a, 1, b.releases); err != nil {
		return err
	}
	before, kinds, err := w.lies()
	if err != nil {
		return err
	}
	b.lies(fmt.Sprintf("the store after %d releases and %d configurations", b.releases, b.releases/configEvery), before, b.releases)
	for _, kind := range strings.Fields("payloads incarnations manifests specs versions numbers audit") {
		of := kinds[kind]
		b.Note(b.row, "%s: %d files, %s, %s in blocks", kind, of.files, size(of.bytes), size(of.blocks))
	}
	if err := w.collected(ctx); err != nil {
		return err
	}
	still, _, err := w.lies()
	if err != nil {
		return err
	}
	b.lies("the same, collected while Temporal has all histories", still, b.releases)
	if err := w.forget(ctx); err != nil {
		return err
	}
	if err := w.collected(ctx); err != nil {
		return err
	}
	after, kinds, err := w.lies()
	if err != nil {
		return err
	}
	b.lies("the same, collected when it has those of open runs alone", after, b.releases)
	content := 0
	for _, kind := range strings.Fields("payloads incarnations manifests specs states bundles unreferenced") {
		content += kinds[kind].files
	}
	b.Add(report.Line{Row: b.row, What: "content that is left of it", Measured: report.Value{Number: float64(content), Unit: "files"}})
	return nil
}

func (b *bench) lies(what string, of lying, releases int) {
	b.Add(report.Line{
		Row: b.row, What: what, Measured: report.Value{Number: float64(of.bytes), Unit: report.Bytes},
		Spread: fmt.Sprintf("%d files, %s in blocks; %d B a release", of.files, size(of.blocks), of.bytes/int64(releases)),
	})
}

func size(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// grow makes releases one after the other, each in all channels before the next.
func (w *world) grow(ctx context.Context, a application, from, to int) error {
	for n := from; n <= to; n++ {
		if n%configEvery == 0 {
			a.setting = fmt.Sprint(n)
			if err := w.publish(ctx, a); err != nil {
				return err
			}
		}
		version := fmt.Sprintf("r%d", n)
		if _, err := updateRelease(ctx, w.client, protocol.ServiceID(a.name, a.services[0]), version); err != nil {
			return err
		}
		if err := until(ctx, breath, func() (bool, error) { return w.converged(ctx, a, a.services[0], version) }); err != nil {
			return fmt.Errorf("release %s: %w", version, err)
		}
	}
	return nil
}

// forget has the server delete all runs that have ended, as it does by itself when their retention is over.
func (w *world) forget(ctx context.Context) error {
	return until(ctx, time.Second, func() (bool, error) {
		page, err := w.client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: client.DefaultNamespace, PageSize: 1000, Query: "ExecutionStatus != 'Running'",
		})
		if err != nil {
			return false, err
		}
		for _, e := range page.GetExecutions() {
			_, err := w.client.WorkflowService().DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{
				Namespace: client.DefaultNamespace, WorkflowExecution: e.GetExecution(),
			})
			var gone *serviceerror.NotFound
			if err != nil && !errors.As(err, &gone) {
				return false, err
			}
		}
		return len(page.GetExecutions()) == 0, nil
	})
}

// collected collects twice, as if a long time had passed: what is set aside the first time is removed the second.
func (w *world) collected(ctx context.Context) error {
	s, err := store.Open(ctx, w.store())
	if err != nil {
		return err
	}
	defer s.Close() // nothing is being written any more
	for n := range 2 {
		_, err := collect.Collector{Client: w.client, Namespace: client.DefaultNamespace, Store: s, Collection: store.Collection{
			By: "bench", Now: time.Now().Add(time.Duration(n+1) * year), Grace: 24 * time.Hour, Keep: 90 * 24 * time.Hour,
		}}.Run(ctx)
		if err != nil {
			return err
		}
	}
	return nil
}

// lies counts what the store has, in all and by kind.
func (w *world) lies() (all lying, kinds map[string]lying, err error) {
	kinds = map[string]lying{}
	err = filepath.WalkDir(w.store(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(w.store(), path)
		kind, _, _ := strings.Cut(filepath.ToSlash(inside), "/")
		of := kinds[kind]
		for _, l := range []*lying{&all, &of} {
			l.files, l.bytes = l.files+1, l.bytes+info.Size()
			l.blocks += (info.Size() + block - 1) / block * block
		}
		kinds[kind] = of
		return err
	})
	return all, kinds, err
}
