package kubetest

import (
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// Freezer is a way of one test's own to an API server, which can freeze: it then accepts everything, and answers nothing, on
// open connections too, as a server does that is stopped or swaps.
type Freezer struct {
	// Cluster is the one beyond it. Its Kubeconfig leads through the freezer; Config and Client do not.
	Cluster *Cluster

	target   string
	frozen   sync.RWMutex // locked while it is frozen
	isFrozen bool
}

// Freezer opens one, which is thawed and closed when the test ends.
func (c *Cluster) Freezer(t testing.TB) *Freezer {
	t.Helper()
	server, err := url.Parse(c.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	beyond := *c
	f := &Freezer{Cluster: &beyond, target: server.Host}
	t.Cleanup(func() {
		f.Thaw()
		listener.Close()
	})
	file, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for name, cluster := range file.Clusters {
		if name == file.Contexts[c.Name].Cluster {
			cluster.Server = "https://" + listener.Addr().String()
		}
	}
	beyond.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, beyond.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(beyond.Kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	go f.serve(listener)
	return f
}

// Freeze and Thaw are called in turn.
func (f *Freezer) Freeze() {
	f.frozen.Lock()
	f.isFrozen = true
}

// Thaw lets everything pass that waits; it does nothing if nothing is frozen.
func (f *Freezer) Thaw() {
	if f.isFrozen {
		f.isFrozen = false
		f.frozen.Unlock()
	}
}

func (f *Freezer) serve(listener net.Listener) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", f.target)
		if err != nil {
			from.Close()
			continue
		}
		go f.carry(from, to)
		go f.carry(to, from)
	}
}

func (f *Freezer) carry(from, to net.Conn) {
	_, _ = io.Copy(thawedWriter{to, f}, from) // either end closes both
	from.Close()
	to.Close()
}

// thawedWriter writes while its freezer is not frozen.
type thawedWriter struct {
	io.Writer
	freezer *Freezer
}

func (w thawedWriter) Write(p []byte) (int, error) {
	w.freezer.frozen.RLock()
	defer w.freezer.frozen.RUnlock()
	return w.Writer.Write(p)
}
