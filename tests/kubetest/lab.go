package kubetest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/converge-engine/converge/tests/kubetest/program"
)

// binary is the path of the program. Without it the test is skipped; built from other sources, it fails the test.
func binary(t testing.TB, p program.Program) string {
	t.Helper()
	root, err := moduleRoot()
	if err == nil {
		err = p.Check(root)
	}
	if errors.Is(err, p.NotBuilt) {
		t.Skip("NOT RUN: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p.Path(root)
}

// lab is a running kubelab. It ends when its standard input closes, which the end of this program does in any case.
type lab struct {
	kubeconfig string
	command    *exec.Cmd

	mu      sync.Mutex // one command at a time
	control io.WriteCloser
	answers *bufio.Scanner
}

// attempts is how often a lab is started. Its parts listen on ports that were free a moment before: what takes one
// of them meanwhile ends that part at once, and others are chosen then.
const attempts = 3

func startLab(path string, names ...string) (l *lab, err error) {
	for range attempts {
		if l, err = startLabOnce(path, names...); err == nil || !strings.Contains(err.Error(), "ended on its own") {
			return l, err
		}
	}
	return nil, err
}

func startLabOnce(path string, names ...string) (*lab, error) {
	args := []string{"up", "--control"}
	for _, name := range names {
		args = append(args, "--name", name)
	}
	l := &lab{command: exec.Command(path, args...)}
	var err error
	if l.control, err = l.command.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := l.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	// Its errors go to where its answers do: go test would wait for a child that holds the test's own output.
	l.command.Stderr = l.command.Stdout
	if err := l.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	l.answers = bufio.NewScanner(output)
	var said []string
	for l.answers.Scan() {
		if kubeconfig, found := strings.CutPrefix(l.answers.Text(), "kubeconfig "); found {
			l.kubeconfig = kubeconfig
			return l, nil
		}
		said = append(said, l.answers.Text())
	}
	l.stop()
	return nil, fmt.Errorf("start clusters: %s", strings.Join(said, "; "))
}

// tell sends a command and waits until it is done.
func (l *lab) tell(verb, cluster, component string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := fmt.Fprintln(l.control, verb, cluster, component); err != nil {
		return fmt.Errorf("tell kubelab: %w", err)
	}
	if !l.answers.Scan() {
		return errors.New("kubelab has ended")
	}
	if answer := l.answers.Text(); !strings.HasPrefix(answer, "ok ") {
		return errors.New(answer)
	}
	return nil
}

func (l *lab) stop() {
	_ = l.control.Close() // it fails when the lab has ended
	_ = l.command.Wait()  // as does this; what went wrong a test has seen before
}
