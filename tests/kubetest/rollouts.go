package kubetest

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/converge-engine/converge/tests/kubetest/controller"
	"github.com/converge-engine/converge/tests/kubetest/rollouts"
)

// Rollouts runs the controller of Argo Rollouts for one namespace of the cluster until the test ends, and makes its kinds
// known. Where it is not built the test is skipped; where the test fails, what the controller logged is the test's.
func (c *Cluster) Rollouts(t testing.TB, namespace string) {
	t.Helper()
	folder, path := PublicRollouts(t), rolloutsController(t)
	client, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := controller.Define(t.Context(), client, folder); err != nil {
		t.Fatal(err)
	}
	log := &buffer{}
	running, err := rollouts.Start(rollouts.Options{Program: path, Kubeconfig: c.Kubeconfig, Context: c.Name, Namespace: namespace, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-running.Ended():
			t.Errorf("the controller of Argo Rollouts ended by itself")
		default:
		}
		const patience = 10 * time.Second
		running.Stop(patience)
		if t.Failed() {
			t.Logf("the controller of Argo Rollouts logged:\n%s", log)
		}
	})
}

// rolloutsController is the path of the controller. Without it the test is skipped; built from another version, it fails
// the test.
func rolloutsController(t testing.TB) string {
	t.Helper()
	root, err := moduleRoot()
	if err == nil {
		err = rollouts.Program().Check(root)
	}
	if errors.Is(err, rollouts.ErrNotBuilt) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rollouts.Program().Path(root)
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
