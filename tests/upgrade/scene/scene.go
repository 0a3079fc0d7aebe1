// Package scene plays an upgrade with real programs: a server, workers of one build with many live services, and workers of
// another build, which decides otherwise, started beside them while releases are under way. It reports what was seen.
// Before that it plays the same swap without versions, on few services: that the builds differ in what matters, so that
// what the upgrade shows is not for nothing.
package scene

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
)

// Report is what was seen.
type Report struct {
	Services int
	// Control is how many workflow tasks failed because a history did not replay, of so many services whose workers were
	// replaced in place.
	Control, ControlServices int
	// Live is how long it took until all services ran, Moved until all workflows were on the new version once its worker
	// was started, Drained until the server found the old one drained.
	Live, Moved, Drained time.Duration
	// UnderWay is how many releases were under way when it was started, and Meanwhile how many were asked for afterwards.
	UnderWay, Meanwhile int
	// NonDeterministic and Failed are workflow tasks that failed, for that reason and for others; Complaints are lines of
	// the workers' logs about the former.
	NonDeterministic, Failed int64
	Complaints               int
	// Applied is how many targets were applied, Again those that were applied more than once.
	Applied, Again int
	// Left is how many workflows are not on the new version.
	Left int
	// ServerCPU is what the server used from when the new version was started until the old one was drained.
	ServerCPU time.Duration
	// NewLogic is how many of the services released at the end were decided by the new build.
	NewLogic, Last int
}

const (
	app        = "shop"
	deployment = "converge"
)

// besides services, the application and the installation have a workflow.
const besides = 2

// Play plays it in a folder, and says on the way what it does.
func Play(ctx context.Context, dir string, services int, say func(string, ...any)) (r Report, err error) {
	r.Services, r.ControlServices = services, min(20, services)
	say("building the workers, before and after")
	if err := build(ctx, dir); err != nil {
		return r, err
	}
	say("control: %d services, workers replaced in place by those that decide otherwise", r.ControlServices)
	if r.Control, err = control(ctx, dir, r.ControlServices); err != nil {
		return r, fmt.Errorf("control: %w", err)
	}
	s, err := newSite(ctx, filepath.Join(dir, "upgrade"))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return r, s.upgrade(ctx, dir, &r, say)
}

// control swaps the builds without versions and counts the tasks that fail for it.
func control(ctx context.Context, dir string, services int) (failed int, err error) {
	s, err := newSite(ctx, filepath.Join(dir, "control"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	before, err := s.start(dir, "before", "")
	if err != nil {
		return 0, err
	}
	err = s.begin(ctx, services)
	if err := errors.Join(err, before.stop()); err != nil {
		return 0, err
	}
	after, err := s.start(dir, "after", "")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, after.stop()) }()
	if err := s.release(ctx, "v2", 0, services); err != nil {
		return 0, err
	}
	err = until(ctx, func() (bool, string, error) { // by what the worker says: a history has the first failure of a task only, whatever that was
		failed, err = after.refused()
		return failed >= services, fmt.Sprintf("the tasks of %d workflows failed", failed), err
	})
	return failed, err
}

// upgrade is what is to be shown.
func (s *site) upgrade(ctx context.Context, dir string, r *Report, say func(string, ...any)) (err error) {
	before, err := s.start(dir, "before", deployment)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, before.stop()) }()
	say("starting %d services", r.Services)
	since := time.Now()
	if err := s.begin(ctx, r.Services); err != nil {
		return err
	}
	r.Live = time.Since(since)

	r.UnderWay, r.Meanwhile = max(1, r.Services/20), max(1, r.Services/20)
	say("all live after %s; releasing to %d, slowly, and starting the new version", r.Live.Round(time.Second), r.UnderWay)
	if err := s.release(ctx, "v2-slow", 0, r.UnderWay); err != nil {
		return err
	}
	began, used := time.Now(), ownCPU()
	after, err := s.start(dir, "after", deployment)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, after.stop()) }()
	if err := s.release(ctx, "v2", r.UnderWay, r.UnderWay+r.Meanwhile); err != nil {
		return err
	}
	if err := s.moved(ctx, r.Services); err != nil {
		return err
	}
	r.Moved = time.Since(began)
	say("all workflows moved after %s", r.Moved.Round(time.Second))
	if err := s.drained(ctx); err != nil {
		return err
	}
	r.Drained, r.ServerCPU = time.Since(began), ownCPU()-used
	if err := before.stop(); err != nil {
		return err
	}
	say("the old version is drained after %s, and its worker stopped; releasing once more", r.Drained.Round(time.Second))
	return s.judge(ctx, r, before, after)
}

// moved waits until all services are on the new version, and converged at what was released to them.
func (s *site) moved(ctx context.Context, services int) error {
	const on = "ExecutionStatus='Running' AND TemporalWorkerDeploymentVersion='" + deployment + ":after'"
	if err := s.await(ctx, services+besides, on); err != nil {
		return err
	}
	return s.await(ctx, services, on+" AND WorkflowType='Service' AND ConvergeStatus='CONVERGED'")
}

func (s *site) drained(ctx context.Context) error {
	return until(ctx, func() (bool, string, error) {
		v, err := s.client.WorkerDeploymentClient().GetHandle(deployment).DescribeVersion(ctx, client.WorkerDeploymentDescribeVersionOptions{BuildID: "before"})
		if err != nil || v.Info.DrainageInfo == nil {
			return false, "it is not draining", err
		}
		return v.Info.DrainageInfo.DrainageStatus == client.WorkerDeploymentVersionDrainageStatusDrained, "it is draining", nil
	})
}

// judge releases to a few services through the new version alone, and counts what went wrong.
func (s *site) judge(ctx context.Context, r *Report, workers ...*program) (err error) {
	r.Last = min(20, r.Services)
	if err := s.release(ctx, "v3", 0, r.Last); err != nil {
		return err
	}
	if err := s.await(ctx, r.Last, "WorkflowType='Service' AND ExecutionStatus='Running' AND ConvergeVersion='v3' AND ConvergeStatus='CONVERGED'"); err != nil {
		return err
	}
	for n := range r.Last {
		if s.hasTimer(ctx, name(n)) {
			r.NewLogic++
		}
	}
	on, err := s.count(ctx, "ExecutionStatus='Running' AND TemporalWorkerDeploymentVersion='"+deployment+":after'")
	if err != nil {
		return err
	}
	r.Left = r.Services + besides - on
	if r.NonDeterministic, r.Failed, err = s.failedTasks(ctx); err != nil {
		return err
	}
	for _, w := range workers {
		n, err := w.complaints()
		if err != nil {
			return err
		}
		r.Complaints += n
	}
	times, err := s.applies()
	for _, n := range times {
		r.Applied++
		if n > 1 {
			r.Again++
		}
	}
	return err
}

// hasTimer tells whether a service was decided as the new build does: with a timer beside its apply.
func (s *site) hasTimer(ctx context.Context, service string) bool {
	events := s.client.GetWorkflowHistory(ctx, protocol.ServiceID(app, service), "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return false
		}
		if event.GetTimerStartedEventAttributes().GetStartToFireTimeout().AsDuration() == time.Second {
			return true
		}
	}
	return false
}

const configuration = `apiVersion: converge/v1
kind: Application
name: shop
releaseChannels: [{name: production, runtimes: [{name: folder}]}]
---
apiVersion: converge/v1
kind: Runtime
name: folder
fake: {pollInterval: 500ms, steadyPollInterval: 2m, retry: {maxAttempts: 3, backoff: 1s, maxBackoff: 5s}}
`

func name(n int) string { return fmt.Sprintf("web%04d", n) }

// begin declares services and waits until all of them run.
func (s *site) begin(ctx context.Context, services int) error {
	var yaml strings.Builder
	yaml.WriteString(configuration)
	for n := range services {
		fmt.Fprintf(&yaml, "---\n{apiVersion: converge/v1, kind: Service, name: %s, initialVersion: v1, custom: {env: {VERSION: \"${{ version }}\"}}}\n", name(n))
	}
	dir := filepath.Join(s.dir, "config")
	if err := os.WriteFile(filepath.Join(dir, "converge.yaml"), []byte(yaml.String()), 0o600); err != nil {
		return err
	}
	err := until(ctx, func() (bool, string, error) { // until a worker has given the namespace what it needs
		_, err := publish.Publish(ctx, publish.Options{Client: s.client, Dir: dir, StoreURL: filepath.Join(s.dir, "store"), By: "demo", Fake: true})
		return err == nil, fmt.Sprint(err), nil
	})
	if err != nil {
		return err
	}
	return s.await(ctx, services, "WorkflowType='Service' AND ExecutionStatus='Running' AND ConvergeStatus='CONVERGED' AND ConvergeVersion='v1'")
}

// release releases a version to the services from one number to another.
func (s *site) release(ctx context.Context, version string, from, to int) error {
	payload, err := json.Marshal(protocol.ReleaseRequest{RequestMeta: protocol.RequestMeta{By: "demo"}, Version: version})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for n := from; n < to; n++ {
		group.Go(func() error {
			return s.client.SignalWorkflow(ctx, protocol.ServiceID(app, name(n)), "", protocol.Release, json.RawMessage(payload))
		})
	}
	return group.Wait()
}

// Wrong says what of a report is not as it should be; nothing, when all is.
func (r Report) Wrong() []string {
	var wrong []string
	want := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	want(r.Control >= r.ControlServices, "the control shows nothing: %d tasks failed of %d services", r.Control, r.ControlServices)
	want(r.NonDeterministic == 0 && r.Complaints == 0, "%d workflow tasks failed because a history did not replay, and workers complained %d times", r.NonDeterministic, r.Complaints)
	want(r.Failed == 0, "%d workflow tasks failed for other reasons", r.Failed)
	want(r.Left == 0, "%d workflows are not on the new version", r.Left)
	want(r.Again == 0, "%d targets were applied more than once", r.Again)
	want(r.Applied == r.Services+r.UnderWay+r.Meanwhile+r.Last, "%d targets were applied; expected %d", r.Applied, r.Services+r.UnderWay+r.Meanwhile+r.Last)
	want(r.NewLogic == r.Last, "%d of %d last releases were decided by the new build", r.NewLogic, r.Last)
	return wrong
}

// String is the report as it is printed.
func (r Report) String() string {
	return fmt.Sprintf(`control: workers replaced in place, %d services   %d workflow tasks failed: a history does not replay
live services                                      %d, after %s
releases under way, and asked for meanwhile        %d and %d
all workflows on the new version after             %s
the old version drained, its worker stopped after  %s (CPU of the server: %s)
workflow tasks failed: a history does not replay   %d (%d lines in workers' logs)
workflow tasks failed otherwise                    %d
workflows left on the old version                  %d
targets applied, and more than once                %d and %d
last releases, decided by the new build            %d of %d
`, r.ControlServices, r.Control, r.Services, r.Live.Round(time.Second), r.UnderWay, r.Meanwhile, r.Moved.Round(time.Second), r.Drained.Round(time.Second),
		r.ServerCPU.Round(time.Second), r.NonDeterministic, r.Complaints, r.Failed, r.Left, r.Applied, r.Again, r.NewLogic, r.Last)
}
