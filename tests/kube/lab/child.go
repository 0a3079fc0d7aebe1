package lab

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// child is a component's process.
type child struct {
	name    string
	args    []string
	log     string
	stopped bool // on purpose; set before it ends
	cmd     *exec.Cmd
	done    chan struct{}
}

// startChild runs a subcommand of this program in a process group of its own, so that an interrupt at the terminal
// reaches the lab alone, which then stops its children in order. A child whose lab is killed is killed with it.
func startChild(name string, args []string, log string, exited chan<- *child) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	c := &child{name: name, args: args, log: log, done: make(chan struct{})}
	c.cmd = exec.Command(self, append([]string{name}, args...)...)
	c.cmd.Stdout, c.cmd.Stderr = output, output
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = c.cmd.Wait() // how it ended is in its log
		close(c.done)
		exited <- c
	}()
	return c, nil
}

func (c *child) surprise() error {
	return fmt.Errorf("%s ended on its own; its log is %s", c.name, c.log)
}

func (c *child) signal(s syscall.Signal) error { return c.cmd.Process.Signal(s) }

// kill ends it at once. Nothing that a lab holds is worth a component's orderly end, which takes an API server seconds.
func (c *child) kill() {
	c.stopped = true
	_ = c.cmd.Process.Kill() // it fails when the process has ended
	<-c.done
}

// end asks first and kills later.
func (c *child) end(grace time.Duration) {
	c.stopped = true
	_ = c.signal(syscall.SIGTERM) // as above
	select {
	case <-c.done:
	case <-time.After(grace):
		c.kill()
	}
}
