package compile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/charts"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/sources"
)

// Locked is the result of locking a configuration.
type Locked struct {
	Charts   int
	Runtimes int      // runtimes with captured capabilities
	Changes  []string // changes of the file, one line each
	Written  bool
}

// Lock resolves the versions and digests of the charts in the configuration of a directory, and writes converge.lock there. It keeps
// charts that are already locked, unless refresh is set. An error of type Problems lists all problems; nothing is written then.
func Lock(ctx context.Context, dir string, options config.Options, refresh bool) (Locked, error) {
	absolute, root, err := openDirectory(dir, &options)
	if err != nil {
		return Locked{}, err
	}
	defer root.Close()
	l, err := config.Read(root.FS(), absolute, options)
	if err != nil {
		return Locked{}, fmt.Errorf("lock %s: %w", dir, err)
	}
	if problems := l.Problems(); len(problems) > 0 {
		return Locked{}, problems.Sorted()
	}
	made, err := sources.MakeLock(ctx, l, refresh)
	if err != nil {
		return Locked{}, fmt.Errorf("lock %s: %w", dir, err)
	}
	if problems := l.Problems(); len(problems) > 0 {
		return Locked{}, problems.Sorted()
	}
	return writeLock(dir, absolute, made)
}

// writeLock writes the lock if it changed.
func writeLock(dir, absolute string, made sources.LockUpdate) (Locked, error) {
	locked := Locked{Charts: len(made.Lock.Charts), Runtimes: len(made.Lock.Capabilities), Changes: made.Changes}
	if text := made.Lock.Bytes(); !bytes.Equal(text, made.Previous) && (locked.Charts+locked.Runtimes > 0 || made.Previous != nil) {
		if len(text) > charts.MaxLock {
			return Locked{}, fmt.Errorf("lock %s: %s would have %d bytes; at most %d", dir, charts.LockFile, len(text), charts.MaxLock)
		}
		locked.Written = true
		if err := replaceFile(absolute, charts.LockFile, text); err != nil {
			return Locked{}, fmt.Errorf("lock %s: %w", dir, strict.Reason(err))
		}
	}
	return locked, nil
}

// Capture configures which cluster capabilities are captured.
type Capture struct {
	Runtimes []string // by name; none: all Kubernetes runtimes that the configuration declares, or names in its channels
	Refresh  bool     // also those that are already captured
	// Fetch is called for some of the runtimes. It returns the capabilities of all of these, or an error.
	Fetch func([]entities.RuntimeDefinition) ([]charts.Capabilities, error)
}

// LockCapabilities writes the capabilities of the runtimes' clusters, which charts can read, into converge.lock of the configuration in
// a directory. It does not change locked charts. An error of type Problems lists all problems; nothing is written after any error.
func LockCapabilities(dir string, options config.Options, capture Capture) (Locked, error) {
	absolute, root, err := openDirectory(dir, &options)
	if err != nil {
		return Locked{}, err
	}
	defer root.Close()
	l, err := config.Read(root.FS(), absolute, options)
	if err != nil {
		return Locked{}, fmt.Errorf("lock %s: %w", dir, err)
	}
	if problems := l.Problems(); len(problems) > 0 {
		return Locked{}, problems.Sorted()
	}
	all, problems := kubernetesRuntimes(&Loaded{Config: l.Config})
	if len(problems) > 0 {
		return Locked{}, problems
	}
	names := capture.Runtimes
	if len(names) == 0 {
		names = strict.Keys(all)
	}
	for _, name := range names {
		if _, ok := all[name]; !ok {
			return Locked{}, fmt.Errorf("lock %s: the configuration has no runtime %s on Kubernetes; expected one of %s", dir, name, strict.OneOf(strict.Keys(all)))
		}
	}
	made, err := sources.CaptureCapabilities(l, names, capture.Refresh, func(wanted []string) ([]charts.Capabilities, error) {
		return capture.Fetch(strict.Map(wanted, func(name string) entities.RuntimeDefinition { return all[name] }))
	})
	if err != nil {
		return Locked{}, fmt.Errorf("lock %s: %w", dir, err)
	}
	return writeLock(dir, absolute, made)
}

// kubernetesRuntimes returns the definitions of the Kubernetes runtimes that a configuration declares or uses. It does not compile the
// services' sources, because that may fail before the lock is written.
func kubernetesRuntimes(config *Loaded) (map[string]entities.RuntimeDefinition, strict.Problems) {
	c := newCompiler(config, true)
	for _, known := range config.Config.Options.Runtimes {
		c.runtimes[known.Name] = known
	}
	all := map[string]entities.RuntimeDefinition{}
	for _, own := range c.defineRuntimes() {
		all[own.Name] = own
	}
	if app := config.Config.Application; app != nil {
		c.defineChannels(app)
		for _, refs := range c.refs {
			for _, ref := range refs {
				all[ref.name] = c.runtimes[ref.name]
			}
		}
	}
	for _, name := range strict.Keys(all) {
		if all[name].Kubernetes == nil {
			delete(all, name)
		}
	}
	return all, c.allProblems()
}

// replaceFile writes a file atomically.
func replaceFile(dir, name string, text []byte) error {
	f, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}
