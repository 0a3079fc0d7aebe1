package kubetest

import (
	"bytes"
	"io"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/converge-engine/converge/tests/kubetest/controller"
	"github.com/converge-engine/converge/tests/kubetest/flux"
	"github.com/converge-engine/converge/tests/kubetest/helm"
	"github.com/converge-engine/converge/tests/kubetest/public"
	"github.com/converge-engine/converge/tests/kubetest/rollouts"
)

// Rollouts runs the controller of Argo Rollouts for one namespace of the cluster until the test ends, and makes its kinds
// known. Where it is not built the test is skipped; where the test fails, what the controller logged is the test's.
func (c *Cluster) Rollouts(t testing.TB, namespace string) {
	t.Helper()
	path := binary(t, rollouts.Program())
	c.define(t, PublicRollouts(t))
	c.runController(t, "the controller of Argo Rollouts", func(log io.Writer) (*controller.Controller, error) {
		return rollouts.Start(rollouts.Options{Program: path, Kubeconfig: c.Kubeconfig, Context: c.Name, Namespace: namespace, Log: log})
	})
}

// Flux is Rollouts for the kustomize-controller of Flux, for all namespaces. It returns a source for the Kustomizations of one.
func (c *Cluster) Flux(t testing.TB, namespace string) *flux.Source {
	t.Helper()
	path := binary(t, flux.Program())
	var client dynamic.Interface
	for _, kinds := range public.Flux() {
		client = c.define(t, fetched(t, kinds))
	}
	c.runController(t, "the kustomize-controller of Flux", func(log io.Writer) (*controller.Controller, error) {
		return flux.Start(flux.Options{Program: path, Kubeconfig: c.Kubeconfig, Dir: t.TempDir(), Log: log})
	})
	source, err := flux.NewSource(t.Context(), client, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// Helm is the path of the helm command. Where it is not built the test is skipped.
func Helm(t testing.TB) string {
	t.Helper()
	return binary(t, helm.Program())
}

// define makes kinds known to the cluster from a folder of their definitions.
func (c *Cluster) define(t testing.TB, folder string) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(c.Config)
	if err == nil {
		err = controller.Define(t.Context(), client, folder)
	}
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (c *Cluster) runController(t testing.TB, name string, start func(log io.Writer) (*controller.Controller, error)) {
	t.Helper()
	log := &buffer{}
	running, err := start(log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-running.Ended():
			t.Errorf("%s ended early", name)
		default:
		}
		const patience = 10 * time.Second
		running.Stop(patience)
		if t.Failed() {
			t.Logf("%s logged:\n%s", name, log)
		}
	})
}

// buffer is written by one process and read by another goroutine.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
