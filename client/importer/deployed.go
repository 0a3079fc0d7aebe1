package importer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/config"
)

// This file writes a configuration of what another tool deploys to Kubernetes. How each says it is in a file of its own.

// deployed is what a tool deploys, by the name that a service has here.
type deployed struct {
	dir      string
	services map[string]*deployedService
	left     []string // what is left out, and why
}

// deployedService is a service as a tool has it.
type deployedService struct {
	version string
	needs   []string
	parts   map[string]deployedPart // by channel
	// tag are the values of a chart that the version stands for; given up where the chart does not take it.
	tag map[string]any
}

// deployedPart is a service in one channel.
type deployedPart struct {
	cluster, namespace string
	observe            bool // what was changed by hand is only shown
	kubernetes         map[string]any
}

// only is the channel of what is deployed once.
const only = "live"

var deployedBy = map[Tool]func(*deployed) error{
	"helm": (*deployed).fromHelm, "kustomize": (*deployed).fromKustomize, "argocd": (*deployed).fromArgo, "flux": (*deployed).fromFlux,
}

// Tool is what deploys services to Kubernetes from files.
type Tool string

// Known reports whether FromFiles reads the files of this tool.
func (t Tool) Known() bool { return deployedBy[t] != nil }

// Compile compiles the configuration in a directory, and returns why that fails.
type Compile func(ctx context.Context, dir string) error

// FromFiles writes a configuration of what a tool deploys from the files of the target's directory. It leaves out each service that does not compile.
func FromFiles(ctx context.Context, to Target, tool Tool, compile Compile) (Result, error) {
	if found, _ := filepath.Glob(filepath.Join(to.Dir, "*converge.yaml")); len(found) > 0 {
		return Result{}, fmt.Errorf("init %s: %s exists already; nothing written", to.Dir, found[0])
	}
	d := &deployed{dir: to.Dir, services: map[string]*deployedService{}}
	if err := deployedBy[tool](d); err != nil {
		return Result{}, fmt.Errorf("init %s: %w", to.Dir, err)
	}
	if err := d.keepValid(ctx, compile, to.Application, tool); err != nil {
		return Result{}, err
	}
	return Result{Services: len(d.services), Channels: len(d.channels()), Left: d.left}, nil
}

// keepValid writes the configuration, and leaves out what does not compile.
func (d *deployed) keepValid(ctx context.Context, compile Compile, application string, tool Tool) error {
	file := filepath.Join(d.dir, "converge.yaml")
	compiles := func() error { return d.compiles(ctx, compile, file, application, tool) }
	err := compiles()
	if err != nil {
		d.keepEach(compiles)
		if err = compiles(); len(d.services) == 0 {
			err = fmt.Errorf("nothing in it can be written as a configuration%s", strings.Join(append([]string{""}, d.left...), "; "))
		}
	}
	if err != nil {
		_ = os.Remove(file) // of this run
		return fmt.Errorf("init %s: %w", d.dir, err)
	}
	return nil
}

// keepEach leaves out each service that does not compile alone. A chart that does not take the version as the tag of its image
// keeps its tag.
func (d *deployed) keepEach(compiles func() error) {
	all, kept := d.services, map[string]*deployedService{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		alone := *all[name]
		alone.needs = nil
		d.services = map[string]*deployedService{name: &alone}
		err := compiles()
		if err != nil && alone.tag != nil {
			alone.tag, all[name].tag = nil, nil
			if err = compiles(); err == nil {
				d.leave("the image's tag of %s does not become its version: the chart does not take it", name)
			}
		}
		if err != nil {
			d.leave("%s: %s", name, strings.SplitN(err.Error(), "\n", 2)[0])
			continue
		}
		kept[name] = all[name]
	}
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		kept[name].needs = slices.DeleteFunc(kept[name].needs, func(other string) bool {
			if kept[other] == nil {
				d.leave("%s depends on %s, which is not carried over", name, other)
			}
			return kept[other] == nil
		})
	}
	d.services = kept
}

// compiles writes the configuration and compiles it.
func (d *deployed) compiles(ctx context.Context, compile Compile, file, application string, tool Tool) error {
	text, err := d.yaml(application, tool)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // as the other files that init writes
		return err
	}
	dir, err := filepath.Abs(d.dir)
	if err != nil {
		return err
	}
	err = compile(ctx, dir)
	var found config.Problems
	if errors.As(err, &found) && len(found) > 0 {
		return errors.New(found[0].Message)
	}
	return err
}

func (d *deployed) leave(format string, args ...any) {
	line := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	if !slices.Contains(d.left, line) {
		d.left = append(d.left, line)
	}
}

// put notes a service in a channel; one of a name that none can have here, or twice, is left out.
func (d *deployed) put(name, channel, version string, part deployedPart) *deployedService {
	service := NameOf(name)
	if !isName(service) || !isName(channel) {
		d.leave("%s has a name that no service can have here", name)
		return nil
	}
	s := d.services[service]
	if s == nil {
		s = &deployedService{version: version, parts: map[string]deployedPart{}}
	}
	if _, twice := s.parts[channel]; twice {
		d.leave("%s is there twice in %s", name, channel)
		return nil
	}
	if text, err := yaml.Marshal(part.kubernetes); err != nil || bytes.Contains(text, []byte("${{")) {
		d.leave("%s has a value with ${{ in it, which would be filled in", name)
		return nil
	}
	if part.namespace == "" && channel != only {
		part.namespace = channel
		d.leave("nothing says in which namespace %s is in %s: it is %[2]s here, which may be wrong", service, channel)
	}
	s.parts[channel], d.services[service] = part, s
	return s
}

// environments are what channels are called, in the order in which they come; those that are not known come between.
var environments = []string{
	"dev", "development", "test", "testing", "qa", "int", "integration", "uat", "stage", "staging", "preprod", "canary", "", "prod", "production", only,
}

// inTurn orders channels.
func inTurn(a, b string) int {
	rank := func(name string) int {
		if at := slices.Index(environments, name); at >= 0 {
			return at
		}
		return slices.Index(environments, "")
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

// environmentOf splits the environment off a name: shop-staging is shop in staging.
func environmentOf(name string) (base, channel string) {
	for _, environment := range environments {
		if environment == "" {
			continue
		}
		if base, ok := strings.CutSuffix(name, "-"+environment); ok && base != "" {
			return base, environment
		}
		if base, ok := strings.CutPrefix(name, environment+"-"); ok && base != "" {
			return base, environment
		}
	}
	return name, only
}

func (d *deployed) channels() []string {
	var all []string
	for _, s := range d.services {
		all = append(all, slices.Collect(maps.Keys(s.parts))...)
	}
	slices.SortFunc(all, inTurn)
	return slices.Compact(all)
}

// exists reports whether a path lies in the directory and is there.
func (d *deployed) exists(path string) bool {
	if !filepath.IsLocal(path) {
		return false
	}
	_, err := os.Stat(filepath.Join(d.dir, path))
	return err == nil
}

// kustomized reports whether a directory has a kustomization.
func (d *deployed) kustomized(dir string) bool {
	return slices.ContainsFunc([]string{"kustomization.yaml", "kustomization.yml", "Kustomization"}, func(name string) bool {
		return d.exists(filepath.Join(dir, name))
	})
}

// at is what of the payload stands in a directory: a chart, a kustomization, or manifests.
func (d *deployed) at(dir string) map[string]any {
	dir = filepath.ToSlash(filepath.Clean(strings.TrimPrefix(dir, "/")))
	switch {
	case !d.exists(dir):
		return nil
	case d.exists(filepath.Join(dir, "Chart.yaml")):
		return map[string]any{"helm": map[string]any{"chart": dir}}
	case d.kustomized(dir):
		return map[string]any{"kustomize": dir}
	}
	return map[string]any{"manifests": []any{dir + "/"}}
}

// document reads a YAML file; a nil mapping when it is none.
func (d *deployed) document(path string) (document map[string]any) {
	data, err := os.ReadFile(filepath.Join(d.dir, path))
	if err != nil || yaml.Unmarshal(data, &document) != nil {
		return nil
	}
	return document
}

// objects reads the objects of one group from all manifests of the directory, by kind.
func (d *deployed) objects(groups ...string) (found []map[string]any, err error) {
	err = filepath.WalkDir(d.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != d.dir {
			return cmp.Or(err, fs.SkipDir)
		}
		if ext := filepath.Ext(path); entry.IsDir() || !entry.Type().IsRegular() || ext != ".yaml" && ext != ".yml" {
			return nil
		}
		data, err := os.ReadFile(path)
		if err == nil && len(data) <= config.MaxSource {
			found = append(found, ofGroups(data, groups)...)
		}
		return err
	})
	return found, err
}

// ofGroups are the objects of some groups in a file. What comes after something that is no YAML, as templates are, is not read.
func ofGroups(data []byte, groups []string) (found []map[string]any) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for object := map[string]any(nil); decoder.Decode(&object) == nil; object = nil {
		version, _ := object["apiVersion"].(string)
		if group, _, _ := strings.Cut(version, "/"); slices.Contains(groups, group) {
			found = append(found, object)
		}
	}
	return found
}

// field is what lies in mappings under mappings; nil when nothing does.
func field(from any, path ...string) any {
	for _, name := range path {
		object, _ := from.(map[string]any)
		from = object[name]
	}
	return from
}

func textAt(from any, path ...string) string {
	text, _ := field(from, path...).(string)
	return text
}

func listAt(from any, path ...string) []any {
	list, _ := field(from, path...).([]any)
	return list
}
