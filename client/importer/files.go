package importer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/converge-engine/converge/intent/charts"
	"github.com/converge-engine/converge/intent/config"
)

// Tool names a program that deploys services to Kubernetes from files.
type Tool string

// Known reports whether FromFiles reads the files of this tool.
func (t Tool) Known() bool { return readers[t] != nil }

// applier names what applies the files of a tool.
func (t Tool) applier() string {
	if t == "argocd" || t == "flux" {
		return string(t) + " from applying them"
	}
	return "what applies them now"
}

// Compile compiles the configuration in a directory, and returns why that fails.
type Compile func(ctx context.Context, dir string) error

// FromFiles writes a configuration of the services that a tool deploys from the files of the target's directory. It leaves out each
// service that does not compile.
func FromFiles(ctx context.Context, to Target, tool Tool, compile Compile) (Result, error) {
	if found, _ := filepath.Glob(filepath.Join(to.Dir, "*converge.yaml")); len(found) > 0 {
		return Result{}, fmt.Errorf("init %s: %s exists already; nothing written", to.Dir, found[0])
	}
	d := &deployed{services: map[string]*deployedService{}}
	if err := readers[tool](reader{directory(to.Dir), d}); err != nil {
		return Result{}, fmt.Errorf("init %s: %w", to.Dir, err)
	}
	d.dropStopped()
	if len(d.services) == 0 {
		return Result{}, fmt.Errorf("init %s: nothing in it can be imported%s", to.Dir, strings.Join(append([]string{""}, d.omitted...), "; "))
	}
	if err := (writer{d, to, tool, compile}).writeValid(ctx); err != nil {
		return Result{}, err
	}
	return Result{Services: len(d.services), Channels: len(d.channels()), Imported: d.imported(), Omitted: d.omitted}, nil
}

func (d *deployed) imported() (all []Imported) {
	for _, name := range slices.Sorted(maps.Keys(d.services)) {
		one := Imported{Service: name, Channels: slices.SortedFunc(maps.Keys(d.services[name].parts), compareChannels)}
		var from []string
		for _, channel := range one.Channels {
			from = append(from, sourceOf(d.services[name].parts[channel].kubernetes))
		}
		one.Source = strings.Join(slices.Compact(from), ", ")
		all = append(all, one)
	}
	return all
}

// sourceOf names what a part of a payload is made of.
func sourceOf(kubernetes map[string]any) string {
	if chart := textAt(kubernetes, "helm", "chart"); chart != "" {
		return strings.TrimSpace(chart + " " + textAt(kubernetes, "helm", "version"))
	}
	if dir := textAt(kubernetes, "kustomize"); dir != "" {
		return dir
	}
	all := listAt(kubernetes, "manifests")
	text := fmt.Sprint(all[0])
	if len(all) > 1 {
		text = fmt.Sprintf("%s and %d more", text, len(all)-1)
	}
	return text
}

// writer writes the configuration of the services that a tool deploys.
type writer struct {
	*deployed
	to      Target
	tool    Tool
	compile Compile
}

// writeValid writes the configuration, and leaves out the services that do not compile.
func (w writer) writeValid(ctx context.Context) error {
	file, lock := filepath.Join(w.to.Dir, "converge.yaml"), filepath.Join(w.to.Dir, charts.LockFile)
	_, before := os.Stat(lock)
	written, err := w.writeOverlays()
	check := func() error { return w.compileFile(ctx, file) }
	if err == nil {
		err = w.checkEach(check)
	}
	for _, o := range written {
		if err != nil || !slices.Contains(overlaysOf(w.services), o) {
			o.remove(w.to.Dir)
		}
	}
	if err != nil {
		_ = os.Remove(file) // the file was written by this run
		if errors.Is(before, fs.ErrNotExist) {
			_ = os.Remove(lock)
		}
		return fmt.Errorf("init %s: %w", w.to.Dir, err)
	}
	return nil
}

// checkEach compiles the configuration, and leaves out the services that have problems; if it does not compile for another reason, those
// that do not compile on their own.
func (w writer) checkEach(check func() error) error {
	err := w.dropFaulty(check)
	if err != nil && len(w.services) > 0 {
		w.dropInvalid(check)
		if len(w.services) > 0 {
			err = check()
		}
	}
	if len(w.services) == 0 {
		return fmt.Errorf("nothing in it can be imported%s", strings.Join(append([]string{""}, w.omitted...), "; "))
	}
	return firstProblem(err)
}

// firstProblem returns the first of several problems.
func firstProblem(err error) error {
	var found config.Problems
	if errors.As(err, &found) && len(found) > 0 {
		return errors.New(found[0].Message)
	}
	return err
}

// writeOverlays writes the kustomizations of the services, and returns those that it wrote.
func (w writer) writeOverlays() (written []*overlay, err error) {
	for _, o := range overlaysOf(w.services) {
		if err := o.write(w.to.Dir, w.tool); err != nil {
			return written, err
		}
		written = append(written, o)
	}
	return written, nil
}

// dropInvalid leaves out each service that does not compile on its own.
func (w writer) dropInvalid(check func() error) {
	all := maps.Clone(w.services)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		single := *all[name]
		single.needs = nil
		w.services = map[string]*deployedService{name: &single}
		if err := check(); err != nil {
			w.omit("%s: %s", name, strings.SplitN(firstProblem(err).Error(), "\n", 2)[0])
			delete(all, name)
		}
	}
	w.services = all
	w.dropNeeds()
}

// compileFile writes the configuration and compiles it.
func (w writer) compileFile(ctx context.Context, file string) error {
	text, err := w.yaml()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // as the other files that init writes
		return err
	}
	dir, err := filepath.Abs(w.to.Dir)
	if err != nil {
		return err
	}
	return w.compile(ctx, dir)
}
