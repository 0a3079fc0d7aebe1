package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// lab is a Kubernetes control plane in processes of its own (tests/kube). It is played on no
// machines: the API server, its store and its controllers are the real ones.
type lab struct {
	kubeconfig string
	process    *exec.Cmd
	stdin      io.WriteCloser
	parts      map[string]int // process ids, by component
}

// notMeasured is why a row was left out although nothing went wrong.
type notMeasured string

func (n notMeasured) Error() string { return string(n) }

// labProgram finds what `make kube-build` builds.
func labProgram(ctx context.Context, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	program := filepath.Join(root, ".cache", "bin", "kubelab")
	if _, err := os.Stat(program); err != nil {
		return "", notMeasured("there is no Kubernetes control plane: build it with make kube-build")
	}
	return program, nil
}

// startLab starts a control plane with its state in dir.
func startLab(ctx context.Context, program, dir string) (*lab, error) {
	l := &lab{process: exec.CommandContext(ctx, program, "up", "--dir", dir, "--control")}
	l.process.WaitDelay = stopWithin
	l.process.Stderr = os.Stderr
	var err error
	if l.stdin, err = l.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := l.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := l.process.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for l.kubeconfig == "" && lines.Scan() {
		if at, ok := strings.CutPrefix(lines.Text(), "kubeconfig "); ok {
			l.kubeconfig = at
		}
	}
	if l.kubeconfig == "" {
		return nil, errors.Join(errors.New("the control plane did not start"), l.stop())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // it ends with the process
	return l, l.find()
}

// find learns which process is which component.
func (l *lab) find() error {
	below, err := descendants(l.process.Process.Pid)
	if err != nil {
		return err
	}
	l.parts = map[string]int{}
	for id := range below {
		if name := firstArgument(id); name != "" && !strings.HasPrefix(name, "-") {
			l.parts[name] = id
		}
	}
	return nil
}

// used is what each component has used since it started.
func (l *lab) used() (map[string]usage, error) {
	out := map[string]usage{}
	for name, id := range l.parts {
		p, err := readProcess(id)
		if err != nil {
			return nil, fmt.Errorf("%s of the control plane: %w", name, err)
		}
		out[name] = p.usage
	}
	return out, nil
}

const stopWithin = 30 * time.Second

// stop ends the control plane, and kills it when it takes too long.
func (l *lab) stop() error {
	late := time.AfterFunc(stopWithin, func() { _ = l.process.Process.Kill() })
	defer late.Stop()
	return errors.Join(l.stdin.Close(), l.process.Wait())
}
