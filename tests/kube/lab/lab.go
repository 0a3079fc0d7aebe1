// Package lab starts the components of clusters as child processes of this program and stops them.
//
// A cluster is a folder of state, three ports on the loopback device and four children. What is in the folder is made
// anew by each start: a lab holds nothing worth keeping.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// The subcommands of this program that run as children.
const (
	Etcd        = "etcd"
	APIServer   = "kube-apiserver"
	Controllers = "kube-controller-manager"
	Agent       = "agent"
)

// readyWithin is how long an API server may take, on a machine that compiles something else meanwhile.
const readyWithin = 3 * time.Minute

// Options say what to start.
type Options struct {
	// Dir takes the state: a folder for each cluster, and the kubeconfig, which appears when all are ready. Empty is a
	// temporary folder that is removed at the end.
	Dir string
	// Names are those of the clusters, and of the contexts in the kubeconfig. The first is the current one.
	Names []string
	// Nodes is how many each cluster has.
	Nodes int
	// Control takes commands (command), one a line; the lab ends when it does. May be nil.
	Control io.Reader
	// Talk gets what was done, one thing a line.
	Talk io.Writer
}

var clusterName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// Run starts clusters, and stops them when ctx ends, the control is closed, or a component ends on its own, which is
// an error. It must be called on a thread that lives as long as the program.
func Run(ctx context.Context, options Options) error {
	if options.Dir == "" {
		dir, err := os.MkdirTemp("", "kubelab-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		options.Dir = dir
	}
	dir, err := filepath.Abs(options.Dir)
	if err != nil {
		return err
	}
	options.Dir = dir
	l := &running{options: options, exited: make(chan *child, 16)}
	defer l.stop()
	if err := l.start(ctx); err != nil {
		return err
	}
	return l.serve(ctx)
}

// running is a lab at work. Only the goroutine of Run touches it.
type running struct {
	options  Options
	clusters []*cluster
	exited   chan *child
}

func (l *running) kubeconfig() string { return filepath.Join(l.options.Dir, "kubeconfig") }

func (l *running) start(ctx context.Context) error {
	began := time.Now()
	if err := os.MkdirAll(l.options.Dir, 0o700); err != nil {
		return err
	}
	if err := os.Remove(l.kubeconfig()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, name := range l.options.Names {
		c, err := newCluster(name, filepath.Join(l.options.Dir, name), l.exited)
		if err != nil {
			return fmt.Errorf("cluster %q: %w", name, err)
		}
		l.clusters = append(l.clusters, c)
		if err := c.startAPI(); err != nil {
			return fmt.Errorf("cluster %q: %w", name, err)
		}
	}
	for _, c := range l.clusters {
		if err := l.waitReady(ctx, c); err != nil {
			return fmt.Errorf("cluster %q: %w", c.name, err)
		}
		if err := c.startRest(l.options.Nodes); err != nil {
			return fmt.Errorf("cluster %q: %w", c.name, err)
		}
	}
	if err := writeKubeconfig(l.kubeconfig(), l.clusters); err != nil {
		return err
	}
	fmt.Fprintf(l.options.Talk, "ready in %.1fs\nkubeconfig %s\n", time.Since(began).Seconds(), l.kubeconfig())
	return nil
}

// waitReady returns when the API server says that it is ready, its bootstrap roles included.
func (l *running) waitReady(ctx context.Context, c *cluster) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	client, err := c.httpClient()
	if err != nil {
		return err
	}
	for !isReady(ctx, client, c.server()) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server is not ready; its log is %s", c.logFile(APIServer))
		case gone := <-l.exited:
			return gone.surprise()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// serve obeys commands until the end.
func (l *running) serve(ctx context.Context) error {
	commands := readCommands(l.options.Control)
	for {
		select {
		case <-ctx.Done():
			return nil
		case gone := <-l.exited:
			if !gone.stopped {
				return gone.surprise()
			}
		case line, open := <-commands:
			if !open {
				return nil
			}
			l.obey(ctx, line)
		}
	}
}

func (l *running) stop() {
	for _, c := range l.clusters {
		c.stop()
	}
}
