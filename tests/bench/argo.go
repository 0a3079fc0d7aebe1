package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/yaml"

	"github.com/converge-engine/converge/tests/bench/report"
	"github.com/converge-engine/converge/tests/kubetest/public"
	"github.com/converge-engine/converge/tests/kubetest/rollouts"
)

// argo is the controller of Argo Rollouts on a control plane, and a Rollout for each service.
type argo struct {
	setting  argoSetting
	program  string
	at       dynamic.ResourceInterface
	services []string
	took     time.Duration // until all were updated and available
	before   argoSpent     // before the change
	after    argoSpent
	rested   argoSpent // its CPU is that of the rest alone
}

// argoSetting is how a controller is started.
type argoSetting struct {
	name      string
	arguments []string
}

var argoSettings = [...]argoSetting{
	{name: argoName},
	{argoName + ", its client unlimited", []string{"--qps=-1"}},
}

// argoSpent is what all that takes part has used so far.
type argoSpent struct {
	controller usage
	parts      map[string]usage // of the control plane
}

// measureArgo changes many Deployments with Converge, and then as many Rollouts of the same shape with Argo Rollouts, on the
// same control plane.
func measureArgo(ctx context.Context, b *bench) (err error) {
	program, folder, err := argoProgram(ctx)
	if err != nil {
		return err
	}
	f := newFleet(b.rollouts, b.rest)
	p, err := newPlane(ctx, b, b.dir, map[string]*line{f.app.runtime(): f.line})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	client, err := p.dynamicClient()
	if err != nil {
		return err
	}
	last, err := f.createAndRelease(ctx, p, client)
	if err != nil {
		return err
	}
	at, err := rolloutsOn(ctx, p, client, folder)
	if err != nil {
		return err
	}
	for i, setting := range argoSettings {
		a := &argo{setting: setting, program: program, at: at, services: f.app.services}
		// Each controller carries out a change before the one that counts, as Converge has.
		if err := a.measure(ctx, b, p, fmt.Sprintf("v%d", 2*i+1), fmt.Sprintf("v%d", 2*i+2)); err != nil {
			return fmt.Errorf("%s: %w", setting.name, err)
		}
		reportArgo(b, f, last.Sub(f.began), a)
	}
	return nil
}

var argoName = "Argo Rollouts " + public.Rollouts().Version

// argoProgram finds what `make rollouts` makes: the controller, and the folder that defines its kinds.
func argoProgram(ctx context.Context) (program, folder string, err error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", "", err
	}
	if err := rollouts.Program().Check(root); errors.Is(err, rollouts.ErrNotBuilt) || errors.Is(err, rollouts.ErrStale) {
		return "", "", notMeasured(err.Error())
	} else if err != nil {
		return "", "", err
	}
	folder = public.Rollouts().Path(root)
	if _, err := os.Stat(folder); err != nil {
		return "", "", notMeasured("there are no definitions of the kinds of Argo Rollouts: run make rollouts")
	}
	return rollouts.Program().Path(root), folder, nil
}

// createAndRelease is Converge's part. It returns when the last Deployment was available, which Converge has noticed a
// moment later.
func (f *fleet) createAndRelease(ctx context.Context, p *plane, client dynamic.Interface) (last time.Time, err error) {
	if err := f.create(ctx, p); err != nil {
		return last, err
	}
	both, within := errgroup.WithContext(ctx)
	both.Go(func() error {
		at := client.Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).Namespace(f.app.on.name)
		err := awaitAll(within, at, func(o *unstructured.Unstructured) bool { return available(o, "v2") })
		last = time.Now()
		return err
	})
	both.Go(func() error { return f.release(within, p, "v2") })
	if err := both.Wait(); err != nil {
		return last, err
	}
	if err := f.check(ctx, p, "v2"); err != nil {
		return last, err
	}
	return last, f.idle(ctx, p)
}

// dynamicClient is one of the plane's admin, without a bound of its own.
func (p *plane) dynamicClient() (dynamic.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.lab.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return dynamic.NewForConfig(config)
}

// rolloutsOn makes the kinds known to the control plane, and a namespace for Rollouts.
func rolloutsOn(ctx context.Context, p *plane, client dynamic.Interface, folder string) (dynamic.ResourceInterface, error) {
	if err := rollouts.Define(ctx, client, folder); err != nil {
		return nil, err
	}
	on, err := p.at(ctx, "argo")
	if err != nil {
		return nil, err
	}
	return client.Resource(rollouts.Resource).Namespace(on.name), nil
}

// measure starts a controller, has it carry out a change, lets it rest, and counts what another one takes.
func (a *argo) measure(ctx context.Context, b *bench, p *plane, first, version string) (err error) {
	log, err := os.Create(filepath.Join(b.dir, "argo.log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	c, err := rollouts.Start(rollouts.Options{Program: a.program, Kubeconfig: p.lab.kubeconfig, Log: log, Arguments: a.setting.arguments})
	if err != nil {
		return err
	}
	defer c.Stop(stopWithin)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-c.Ended():
			cancel(errors.New("the controller ended by itself"))
		case <-ctx.Done():
		}
	}()
	if err := a.change(ctx, first); err != nil {
		return err
	}
	if err := pause(ctx, 2*tail); err != nil {
		return err
	}
	return a.count(ctx, b, p, c, version)
}

// count is as release and idle of a fleet are.
func (a *argo) count(ctx context.Context, b *bench, p *plane, c *rollouts.Controller, version string) (err error) {
	if a.before, err = argoUsed(p, c); err != nil {
		return err
	}
	began := time.Now()
	if err := a.change(ctx, version); err != nil {
		return err
	}
	a.took = time.Since(began)
	if err := pause(ctx, tail); err != nil {
		return err
	}
	if a.after, err = argoUsed(p, c); err != nil {
		return err
	}
	if err := pause(ctx, tail); err != nil {
		return err
	}
	begin, err := argoUsed(p, c)
	if err != nil {
		return err
	}
	if err := pause(ctx, b.rest); err != nil {
		return err
	}
	a.rested, err = argoUsed(p, c)
	a.rested.controller.CPU -= begin.controller.CPU
	return err
}

func argoUsed(p *plane, c *rollouts.Controller) (argoSpent, error) {
	controller, err := readProcess(c.ID())
	if err != nil {
		return argoSpent{}, fmt.Errorf("the controller: %w", err)
	}
	parts, err := p.lab.used()
	return argoSpent{controller.usage, parts}, err
}

// change declares a version of every service, so many at a time as a fleet does, and waits until all are there.
func (a *argo) change(ctx context.Context, version string) error {
	calls, within := errgroup.WithContext(ctx)
	calls.SetLimit(callers)
	for _, s := range a.services {
		calls.Go(func() error {
			o, err := rolloutOf(s, version)
			if err != nil {
				return err
			}
			_, err = a.at.Apply(within, s, o, metav1.ApplyOptions{FieldManager: "bench"})
			return err
		})
	}
	if err := calls.Wait(); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return awaitAll(ctx, a.at, func(o *unstructured.Unstructured) bool { return rolledOut(o, version) })
}

// awaitAll returns when every object that is there has been done. It watches, which costs the API server less than asking
// does.
func awaitAll(ctx context.Context, at dynamic.ResourceInterface, done func(*unstructured.Unstructured) bool) error {
	list, err := at.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	left := map[string]bool{}
	for i := range list.Items {
		if !done(&list.Items[i]) {
			left[list.Items[i].GetName()] = true
		}
	}
	if len(left) == 0 {
		return nil
	}
	_, err = watchtools.Until(ctx, list.GetResourceVersion(), &cache.ListWatch{WatchFuncWithContext: at.Watch}, func(e watch.Event) (bool, error) {
		if o, ok := e.Object.(*unstructured.Unstructured); ok && done(o) {
			delete(left, o.GetName())
		}
		return len(left) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d %s were not there: %w", len(left), len(list.Items), list.GetKind(), errors.Join(err, context.Cause(ctx)))
	}
	return nil
}

// available says that a Deployment is at a version, with its one replica available.
func available(o *unstructured.Unstructured, version string) bool {
	d := &appsv1.Deployment{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, d)
	return err == nil && whole(d) && imageOf(o) == image(version)
}

// rolledOut says that the controller has seen the newest spec, and that nothing runs but its one replica, ready.
func rolledOut(o *unstructured.Unstructured, version string) bool {
	status, _, _ := unstructured.NestedMap(o.Object, "status")
	for _, field := range []string{"replicas", "updatedReplicas", "availableReplicas"} {
		if n, _ := status[field].(int64); n != 1 {
			return false
		}
	}
	return imageOf(o) == image(version) && status["phase"] == "Healthy" &&
		status["observedGeneration"] == strconv.FormatInt(o.GetGeneration(), 10) && status["currentPodHash"] == status["stableRS"]
}

func imageOf(o *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		container, _ := c.(map[string]any)
		name, _ := container["image"].(string)
		return name
	}
	return ""
}

func image(version string) string { return "registry.shop.dev/web:" + version }

// rolloutOf is the Deployment of a service as a Rollout. A canary without steps is a rolling update, with the bounds of a
// Deployment.
func rolloutOf(service, version string) (*unstructured.Unstructured, error) {
	text := strings.NewReplacer("${{ service }}", service, "${{ version }}", version, "${{ params.greeting }}", "hello").Replace(deployment)
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		return nil, err
	}
	o.SetAPIVersion(rollouts.Resource.GroupVersion().String())
	o.SetKind("Rollout")
	return o, unstructured.SetNestedMap(o.Object, map[string]any{}, "spec", "strategy", "canary")
}

// reportArgo sets one run of Argo Rollouts beside Converge's. What does not depend on its setting is said once.
func reportArgo(b *bench, f *fleet, took time.Duration, a *argo) {
	n := len(f.app.services)
	each := func(d time.Duration) report.Value { return report.Dur(d / time.Duration(n)) }
	add := func(what string, ours, theirs report.Value, spread string) {
		b.Add(report.Line{
			Row: b.row, What: fmt.Sprintf("%d services: %s", n, what), Measured: ours, Spread: spread,
			Reference: &theirs, Against: a.setting.name,
		})
	}
	add("a change, until all are updated and available", report.Dur(took), report.Dur(a.took), fmt.Sprintf("%.1f/s", float64(n)/took.Seconds()))
	server, worker := f.after.since(f.before.spent)
	add("CPU of a change", each(server+worker), each(a.after.controller.CPU-a.before.controller.CPU), fmt.Sprintf("worker %s, Temporal server %s", each(worker), each(server)))
	ours, all := f.after.planeSince(f.before)
	theirs, theirAll := planeSpent{parts: a.after.parts}.planeSince(planeSpent{parts: a.before.parts})
	add("CPU of the control plane for it", each(all), each(theirAll), printParts(ours, each))
	b.Note(b.row, "%s: CPU of the control plane for a change: %s", a.setting.name, printParts(theirs, each))
	if a.setting.arguments != nil {
		return
	}
	b.Note(b.row, "all %d were CONVERGED, as Temporal lists them, after %s", n, report.Dur(f.released))
	bytes := func(n int64) report.Value { return report.Of(float64(n), report.Bytes) }
	add("memory", bytes(f.rested.worker.Memory+f.rested.server.Memory), bytes(a.rested.controller.Memory),
		fmt.Sprintf("worker %s, Temporal server %s", bytes(f.rested.worker.Memory), bytes(f.rested.server.Memory)))
	cores := func(d time.Duration) report.Value { return report.Of(part(d, f.rest), report.Cores) }
	add("at rest, CPU", cores(f.rested.worker.CPU+f.rested.server.CPU), cores(a.rested.controller.CPU),
		fmt.Sprintf("worker %s, Temporal server %s", cores(f.rested.worker.CPU), cores(f.rested.server.CPU)))
}
