// Package rollouts runs the controller of Argo Rollouts as it is released, built once from the module in tests/rollouts. It
// looks after the Rollouts of a cluster or of one namespace, and takes part in nothing else.
package rollouts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"github.com/converge-engine/converge/tests/kubetest/program"
)

// ErrNotBuilt and ErrStale are errors of Program().Check.
var (
	ErrNotBuilt = errors.New("no controller of Argo Rollouts: run make rollouts, five minutes of a processor once")
	ErrStale    = errors.New("the controller of Argo Rollouts was built from another version than tests/rollouts names now: run make rollouts")
)

// Program is the controller.
func Program() program.Program {
	return program.Program{
		Name: "rollouts-controller", Module: "tests/rollouts", Package: "github.com/argoproj/argo-rollouts/cmd/rollouts-controller",
		NotBuilt: ErrNotBuilt, Stale: ErrStale,
	}
}

// Options say for whom a controller works.
type Options struct {
	// Program is its path.
	Program string
	// Kubeconfig is the way to the API server, and Context that of it which counts; empty: the current one.
	Kubeconfig, Context string
	// Namespace is the only one that it looks after; empty: all.
	Namespace string
	// Log is where it logs to.
	Log io.Writer
	// Arguments are more flags of its own.
	Arguments []string
}

// Controller is a running one.
type Controller struct {
	process *exec.Cmd
	ended   chan struct{}
}

// Start starts one, with all defaults of its own but two. It does not wait to be elected, since there is no other. And it
// serves neither metrics nor health: it can do so on all addresses of the machine only, or, with a port that cannot be, on
// none, of which it makes a line of its log.
func Start(o Options) (*Controller, error) {
	arguments := []string{"--kubeconfig", o.Kubeconfig, "--leader-elect=false", "--metricsPort=-1", "--healthzPort=-1"}
	if o.Context != "" {
		arguments = append(arguments, "--context", o.Context)
	}
	if o.Namespace != "" {
		arguments = append(arguments, "--namespaced", "--namespace", o.Namespace)
	}
	c := &Controller{process: exec.CommandContext(context.Background(), o.Program, append(arguments, o.Arguments...)...), ended: make(chan struct{})}
	c.process.Stdout, c.process.Stderr = o.Log, o.Log
	c.process.SysProcAttr = withUs()
	if err := c.process.Start(); err != nil {
		return nil, fmt.Errorf("start the controller of Argo Rollouts: %w", err)
	}
	go func() {
		_ = c.process.Wait() // why it ended is in its log
		close(c.ended)
	}()
	return c, nil
}

// ID is that of its process.
func (c *Controller) ID() int { return c.process.Process.Pid }

// Ended is closed when it has ended, by itself or by Stop.
func (c *Controller) Ended() <-chan struct{} { return c.ended }

// Stop ends it, and kills it where it takes longer than patience.
func (c *Controller) Stop(patience time.Duration) {
	_ = c.process.Process.Signal(syscall.SIGTERM) // it may have ended
	late := time.AfterFunc(patience, func() { _ = c.process.Process.Kill() })
	defer late.Stop()
	<-c.ended
}
