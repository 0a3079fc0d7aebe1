package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

	"github.com/converge-engine/converge/tests/bench/report"
	"github.com/converge-engine/converge/tests/kubetest/controller"
	"github.com/converge-engine/converge/tests/kubetest/program"
)

// peer is a controller of others that carries out changes as Converge does, in one setting.
type peer struct {
	name    string // with its version and its setting
	again   bool   // it was measured in another setting
	start   func(log io.Writer) (*controller.Controller, error)
	declare func(ctx context.Context, service, version string) error // a version of a service
	at      dynamic.ResourceInterface                                // where the clock looks
	done    func(o *unstructured.Unstructured, version string) bool  // an object there is updated and available

	took   time.Duration // until all were updated and available
	before peerSpent     // before the change
	after  peerSpent
	rested peerSpent // its CPU is that of the rest alone
}

// peerSpent is what all that takes part has used so far.
type peerSpent struct {
	controller usage
	parts      map[string]usage // of the control plane
}

// peerKind is one of those that there are to be had.
type peerKind struct {
	program program.Program
	// on makes a control plane ready for it, and returns it in each of its settings.
	on func(ctx context.Context, b *bench, s *stand) ([]*peer, error)
}

var peerKinds = [...]peerKind{argoRollouts(), fluxKustomize()}

// stand is where peers carry out their changes.
type stand struct {
	*plane
	root     string // of the module
	client   dynamic.Interface
	services []string
}

// measurePeers changes many Deployments with Converge, and then as many services of the same shape with others, on the
// same control plane.
func measurePeers(ctx context.Context, b *bench) (err error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	there, err := b.peersThere(root)
	if err != nil {
		return err
	}
	f := newFleet(b.changed, b.rest)
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
	for _, kind := range there {
		peers, err := kind.on(ctx, b, &stand{p, root, client, f.app.services})
		if err != nil {
			return err
		}
		for i, a := range peers {
			a.again = i > 0
			// Each carries out a change before the one that counts, as Converge has.
			if err := a.measure(ctx, b, p, f.app.services, fmt.Sprintf("v%d", 2*i+1), fmt.Sprintf("v%d", 2*i+2)); err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
			reportPeer(b, f, last.Sub(f.began), a)
		}
	}
	b.Note(b.row, "all %d were CONVERGED, as Temporal lists them, after %s", len(f.app.services), report.Dur(f.released))
	return nil
}

// peersThere are those whose controllers are built. Which are not is noted.
func (b *bench) peersThere(root string) (there []peerKind, err error) {
	var missing error
	for _, kind := range peerKinds {
		switch err := kind.program.Check(root); {
		case errors.Is(err, kind.program.NotBuilt) || errors.Is(err, kind.program.Stale):
			b.Note(b.row, "left out: %s", err)
			missing = errors.Join(missing, err)
		case err != nil:
			return nil, err
		default:
			there = append(there, kind)
		}
	}
	if len(there) == 0 {
		return nil, notMeasured(missing.Error())
	}
	return there, nil
}

// createAndRelease is Converge's part. It returns when the last Deployment was available, which Converge has noticed a
// moment later.
func (f *fleet) createAndRelease(ctx context.Context, p *plane, client dynamic.Interface) (last time.Time, err error) {
	if err := f.create(ctx, p); err != nil {
		return last, err
	}
	both, within := errgroup.WithContext(ctx)
	both.Go(func() error {
		at := client.Resource(deployments).Namespace(f.app.on.name)
		err := awaitAll(within, at, len(f.app.services), func(o *unstructured.Unstructured) bool { return available(o, "v2") })
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

var deployments = appsv1.SchemeGroupVersion.WithResource("deployments")

// dynamicClient is one of the plane's admin, without a bound of its own.
func (p *plane) dynamicClient() (dynamic.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.lab.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return dynamic.NewForConfig(config)
}

// measure starts a controller, has it carry out a change, lets it rest, and counts what another one takes.
func (a *peer) measure(ctx context.Context, b *bench, p *plane, services []string, first, version string) (err error) {
	log, err := os.Create(filepath.Join(b.dir, "peer.log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	c, err := a.start(log)
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
	if err := a.change(ctx, services, first); err != nil {
		return err
	}
	if err := pause(ctx, 2*tail); err != nil {
		return err
	}
	return a.count(ctx, b, p, c, services, version)
}

// count is as release and idle of a fleet are.
func (a *peer) count(ctx context.Context, b *bench, p *plane, c *controller.Controller, services []string, version string) (err error) {
	if a.before, err = peerUsed(p, c); err != nil {
		return err
	}
	began := time.Now()
	if err := a.change(ctx, services, version); err != nil {
		return err
	}
	a.took = time.Since(began)
	if err := pause(ctx, tail); err != nil {
		return err
	}
	if a.after, err = peerUsed(p, c); err != nil {
		return err
	}
	if err := pause(ctx, tail); err != nil {
		return err
	}
	begin, err := peerUsed(p, c)
	if err != nil {
		return err
	}
	if err := pause(ctx, b.rest); err != nil {
		return err
	}
	a.rested, err = peerUsed(p, c)
	a.rested.controller.CPU -= begin.controller.CPU
	return err
}

func peerUsed(p *plane, c *controller.Controller) (peerSpent, error) {
	controller, err := readProcess(c.ID())
	if err != nil {
		return peerSpent{}, fmt.Errorf("the controller: %w", err)
	}
	parts, err := p.lab.used()
	return peerSpent{controller.usage, parts}, err
}

// change declares a version of every service, so many at a time as a fleet does, and waits until all are there.
func (a *peer) change(ctx context.Context, services []string, version string) error {
	calls, within := errgroup.WithContext(ctx)
	calls.SetLimit(callers)
	for _, s := range services {
		calls.Go(func() error { return a.declare(within, s, version) })
	}
	if err := calls.Wait(); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return awaitAll(ctx, a.at, len(services), func(o *unstructured.Unstructured) bool { return a.done(o, version) })
}

// awaitAll returns when so many objects have been done. It watches, which costs the API server less than asking does.
func awaitAll(ctx context.Context, at dynamic.ResourceInterface, n int, done func(*unstructured.Unstructured) bool) error {
	list, err := at.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for i := range list.Items {
		if done(&list.Items[i]) {
			there[list.Items[i].GetName()] = true
		}
	}
	if len(there) == n {
		return nil
	}
	_, err = watchtools.Until(ctx, list.GetResourceVersion(), &cache.ListWatch{WatchFuncWithContext: at.Watch}, func(e watch.Event) (bool, error) {
		if o, ok := e.Object.(*unstructured.Unstructured); ok && done(o) {
			there[o.GetName()] = true
		}
		return len(there) == n, nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d were there: %w", len(there), n, errors.Join(err, context.Cause(ctx)))
	}
	return nil
}

// available says that a Deployment is at a version, with its one replica available.
func available(o *unstructured.Unstructured, version string) bool {
	d := &appsv1.Deployment{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, d)
	return err == nil && whole(d) && imageOf(o) == image(version)
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

// reportPeer sets a peer beside Converge. What does not depend on its setting is said once.
func reportPeer(b *bench, f *fleet, took time.Duration, a *peer) {
	n := len(f.app.services)
	each := func(d time.Duration) report.Value { return report.Dur(d / time.Duration(n)) }
	add := func(what string, ours, theirs report.Value, spread string) {
		b.Add(report.Line{
			Row: b.row, What: fmt.Sprintf("%d services: %s", n, what), Measured: ours, Spread: spread,
			Reference: &theirs, Against: a.name,
		})
	}
	add("a change, until all are updated and available", report.Dur(took), report.Dur(a.took), fmt.Sprintf("%.1f/s", float64(n)/took.Seconds()))
	server, worker := f.after.since(f.before.spent)
	add("CPU of a change", each(server+worker), each(a.after.controller.CPU-a.before.controller.CPU), fmt.Sprintf("worker %s, Temporal server %s", each(worker), each(server)))
	ours, all := f.after.planeSince(f.before)
	theirs, theirAll := planeSpent{parts: a.after.parts}.planeSince(planeSpent{parts: a.before.parts})
	add("CPU of the control plane for it", each(all), each(theirAll), printParts(ours, each))
	b.Note(b.row, "%s: CPU of the control plane for a change: %s", a.name, printParts(theirs, each))
	if a.again {
		return
	}
	bytes := func(n int64) report.Value { return report.Of(float64(n), report.Bytes) }
	add("memory", bytes(f.rested.worker.Memory+f.rested.server.Memory), bytes(a.rested.controller.Memory),
		fmt.Sprintf("worker %s, Temporal server %s", bytes(f.rested.worker.Memory), bytes(f.rested.server.Memory)))
	cores := func(d time.Duration) report.Value { return report.Of(part(d, f.rest), report.Cores) }
	add("at rest, CPU", cores(f.rested.worker.CPU+f.rested.server.CPU), cores(a.rested.controller.CPU),
		fmt.Sprintf("worker %s, Temporal server %s", cores(f.rested.worker.CPU), cores(f.rested.server.CPU)))
}
