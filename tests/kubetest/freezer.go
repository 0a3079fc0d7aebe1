package kubetest

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/converge-engine/converge/tests/internal/proxy"
)

// Freezer is a way of one test's own to an API server, which can freeze: it then accepts everything, and answers nothing, on
// open connections too, as a server does that is stopped or swaps.
type Freezer struct {
	// Cluster is the one beyond it. Its Kubeconfig leads through the freezer; Config and Client do not.
	Cluster *Cluster

	proxy  *proxy.Proxy
	frozen bool
}

// Freezer opens one, which is thawed and closed when the test ends.
func (c *Cluster) Freezer(t testing.TB) *Freezer {
	t.Helper()
	server, err := url.Parse(c.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	way, err := proxy.New(server.Host)
	if err != nil {
		t.Fatal(err)
	}
	beyond := *c
	f := &Freezer{Cluster: &beyond, proxy: way}
	t.Cleanup(func() {
		f.Thaw()
		way.Close()
	})
	file, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for name, cluster := range file.Clusters {
		if name == file.Contexts[c.Name].Cluster {
			cluster.Server = "https://" + way.Address()
		}
	}
	beyond.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, beyond.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(beyond.Kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// Freeze and Thaw are called in turn.
func (f *Freezer) Freeze() {
	f.proxy.Hold()
	f.frozen = true
}

// Thaw lets everything pass that waits; it does nothing if nothing is frozen.
func (f *Freezer) Thaw() {
	if f.frozen {
		f.frozen = false
		f.proxy.Resume()
	}
}
