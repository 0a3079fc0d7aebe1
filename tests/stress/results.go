package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// result is one run of the tests of a package.
type result struct {
	State   string    `json:"state"` // of the checkout: its commit, and a digest of what is not committed
	Package string    `json:"package"`
	Short   bool      `json:"short,omitempty"`
	Run     string    `json:"run,omitempty"`
	N       int       `json:"n"`
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	Passed  bool      `json:"passed"`
	Failed  []string  `json:"failed,omitempty"`
	Output  string    `json:"output,omitempty"` // file with what a failing run printed
}

func (r result) String() string {
	text := fmt.Sprintf("%.0f s", r.Seconds)
	if !r.Passed {
		text += fmt.Sprintf("  %s  %s", strings.Join(r.Failed, " "), r.Output)
	}
	return text
}

// results are those of all runs, in a file of one line each.
type results struct {
	all  []result
	file *os.File
}

func openResults(path string) (*results, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	r := &results{}
	for n, text := range bytes.Split(data, []byte("\n")) {
		var one result
		if len(text) == 0 {
			continue
		}
		if err := json.Unmarshal(text, &one); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n+1, err)
		}
		r.all = append(r.all, one)
	}
	r.file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	return r, err
}

func (r *results) close() { _ = r.file.Close() } // each line is written whole, and checked

func (r *results) add(one result) error {
	line, err := json.Marshal(one)
	if err != nil {
		return err
	}
	r.all = append(r.all, one)
	_, err = r.file.Write(append(line, '\n'))
	return err
}

// of are the runs of the state, package and form that a result names.
func (r *results) of(key result) []result {
	var all []result
	for _, one := range r.all {
		if one.State == key.State && one.Package == key.Package && one.Short == key.Short && one.Run == key.Run {
			all = append(all, one)
		}
	}
	return all
}

func countFailed(all []result) (n int) {
	for _, r := range all {
		if !r.Passed {
			n++
		}
	}
	return n
}

// line sums the runs of a package up.
func line(name string, all []result) string {
	var failed []string
	slowest := 0.0
	for _, r := range all {
		failed = append(failed, r.Failed...)
		slowest = max(slowest, r.Seconds)
	}
	slices.Sort(failed)
	text := fmt.Sprintf("%s: %d runs, %d failed, the slowest %.0f s", name, len(all), countFailed(all), slowest)
	if len(failed) > 0 {
		text += ": " + strings.Join(slices.Compact(failed), " ")
	}
	return text
}

// stateOf names the state of a checkout: its commit, and a digest of what is changed and not committed.
func stateOf(ctx context.Context, dir string) (string, error) {
	git := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		return cmd.Output()
	}
	commit, err := git("rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "", fmt.Errorf("find the commit: %w", err)
	}
	state := strings.TrimSpace(string(commit))
	changed, err := git("diff", "HEAD")
	if err != nil {
		return "", fmt.Errorf("find what is changed: %w", err)
	}
	added, err := git("ls-files", "--others", "--exclude-standard")
	if err != nil {
		return "", fmt.Errorf("find what is added: %w", err)
	}
	if len(changed)+len(added) == 0 {
		return state, nil
	}
	sum := sha256.New()
	sum.Write(changed)
	for name := range strings.Lines(string(added)) {
		data, err := os.ReadFile(filepath.Join(dir, strings.TrimSpace(name)))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, name)
		sum.Write(data)
	}
	return state + "-" + hex.EncodeToString(sum.Sum(nil))[:8], nil
}
