package importer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
)

// meta contains the known fields of a service's meta.yml.
type meta struct {
	Target        string   `yaml:"target"`
	Requires      nameList `yaml:"requires"`
	SetupCallback string   `yaml:"setup_callback"`
	Aggregator    struct {
		Sync struct {
			Strategy string `yaml:"strategy"`
		} `yaml:"sync"`
	} `yaml:"aggregator"`
	SetupReconcilers nameList         `yaml:"setup_reconcilers"`
	Reconcilers      []metaReconciler `yaml:"integration_reconcilers"`
	Integrations     nameList         `yaml:"integrations"`
	Feeds            nameList         `yaml:"feeds"`
	DNS              nameList         `yaml:"dns"`
}

// metaReconciler is a name, or a name with requirements.
type metaReconciler struct {
	Name     string
	Requires nameList
}

// UnmarshalYAML reads both forms.
func (r *metaReconciler) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		return node.Decode(&r.Name)
	}
	var long struct {
		Name     string   `yaml:"name"`
		Requires nameList `yaml:"requires"`
	}
	err := node.Decode(&long)
	r.Name, r.Requires = long.Name, long.Requires
	return err
}

// nameList are texts. The YAML is one text, a list of texts, or a list of mappings with a name.
type nameList []string

// UnmarshalYAML reads all of these forms.
func (w *nameList) UnmarshalYAML(node *yaml.Node) error {
	items := []*yaml.Node{node}
	if node.Kind == yaml.SequenceNode {
		items = node.Content
	}
	for _, item := range items {
		var named struct {
			Name string `yaml:"name"`
		}
		err := item.Decode(&named.Name)
		if item.Kind == yaml.MappingNode {
			err = item.Decode(&named)
		}
		if err != nil {
			return err
		}
		*w = append(*w, named.Name)
	}
	return nil
}

// FromMeta writes a configuration of the services that have a folder with a meta.yml in the directory.
func FromMeta(to Target) (Result, error) {
	for _, file := range []string{"converge.yaml", "work"} {
		if _, err := os.Lstat(filepath.Join(to.Dir, file)); !errors.Is(err, os.ErrNotExist) {
			return Result{}, fmt.Errorf("init %s: %s exists already; nothing written", to.Dir, filepath.Join(to.Dir, file))
		}
	}
	written, err := readMeta(to.Dir)
	if err != nil {
		return Result{}, err
	}
	if len(written.names) == 0 {
		return Result{}, fmt.Errorf("init %s: no subdirectory has a readable meta.yml%s", to.Dir, strings.Join(append([]string{""}, written.omitted...), "; "))
	}
	text := written.yaml(to.Application)
	if err := os.WriteFile(filepath.Join(to.Dir, "work"), []byte(workScript), 0o755); err != nil { //nolint:gosec // a program is executable
		return Result{}, err
	}
	if err := os.WriteFile(filepath.Join(to.Dir, "converge.yaml"), text, 0o644); err != nil { //nolint:gosec // as the other files that init writes
		return Result{}, err
	}
	return Result{Services: len(written.names), Channels: 1, Omitted: written.omitted}, nil
}

const workScript = `#!/bin/sh
# The commands of the plan: $1 is apply, set-up, setup-callback, sync, redeploy, reconcile or dns, $2 the service, $3 its name in meta.yml.
echo "not implemented yet: $*" >&2
exit 1
`

// writtenMeta is a configuration under construction.
type writtenMeta struct {
	names   []string // sorted names of services
	metas   map[string]meta
	omitted []string // omitted settings, and why
}

func readMeta(dir string) (*writtenMeta, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "meta.yml"))
	if err != nil {
		return nil, err
	}
	w := &writtenMeta{metas: map[string]meta{}}
	for _, file := range files {
		folder := filepath.Base(filepath.Dir(file))
		name := NameOf(folder)
		if _, twice := w.metas[name]; twice || !isName(name) {
			w.omit("%s is not a valid service name, or the name of another service", folder)
			continue
		}
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() || info.Size() > config.MaxSource {
			w.omit("%s/meta.yml is not a file of at most %d bytes", folder, config.MaxSource)
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var m meta
		if bytes.Contains(data, []byte("${{")) {
			w.omit("%s/meta.yml has a value that contains ${{, which would be interpolated", folder)
			continue
		}
		if err := yaml.Unmarshal(data, &m); err != nil {
			w.omit("%s/meta.yml: %v", folder, err)
			continue
		}
		w.metas[name] = m
		w.names = append(w.names, name)
	}
	slices.Sort(w.names)
	return w, nil
}

func (w *writtenMeta) omit(format string, args ...any) {
	w.omitted = append(w.omitted, strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " "))
}

// existingServices returns the known services among those that a field names.
func (w *writtenMeta) existingServices(service, field string, names []string) (all []string) {
	for _, name := range names {
		if other := NameOf(name); !slices.Contains(w.names, other) || other == service {
			w.omit("%s of %s names %q, which is not another service", field, service, name)
		} else if !slices.Contains(all, other) {
			all = append(all, other)
		}
	}
	return all
}

// target returns the runtime of a service.
func (m meta) target() string {
	if name := NameOf(m.Target); isName(name) {
		return name
	}
	return "host"
}

// yaml returns the configuration.
func (w *writtenMeta) yaml(application string) []byte {
	var targets []string
	for _, name := range w.names {
		targets = append(targets, w.metas[name].target())
	}
	slices.Sort(targets)
	targets = slices.Compact(targets)
	refs := []map[string]string{}
	for _, target := range targets {
		refs = append(refs, map[string]string{"name": target})
	}
	rest := &bytes.Buffer{}
	for _, target := range targets {
		fmt.Fprintf(rest, "---\napiVersion: converge/v1\nkind: Runtime\nname: %s\nmaxConcurrentApplies: 1 # one apply at a time\ncustom: {apply: {command: [./work, apply]}}\n", target)
	}
	dns := ""
	for _, name := range w.names {
		if w.service(rest, name) {
			dns = "plan: {dns: {command: [./work, dns]}}\n"
		}
	}
	var b bytes.Buffer
	for _, line := range w.omitted {
		fmt.Fprintf(&b, "# Omitted: %s\n", entities.Visible(line))
	}
	fmt.Fprintf(&b, "apiVersion: converge/v1\nkind: Application\nname: %s\nreleaseChannels:\n- {name: live, constants: {domain: example.org}, runtimes: %s}\n%s", application, quotedJSON(refs), dns)
	return append(b.Bytes(), rest.Bytes()...)
}

// service writes one service, and reports whether it has DNS names.
func (w *writtenMeta) service(b *bytes.Buffer, name string) bool {
	m := w.metas[name]
	fmt.Fprintf(b, "---\napiVersion: converge/v1\nkind: Service\nname: %s\nruntime: %s\n", name, m.target())
	field := func(key string, v any, given bool) {
		if given {
			fmt.Fprintf(b, "%s: %s\n", key, quotedJSON(v))
		}
	}
	requires, integrations := w.existingServices(name, "requires", m.Requires), w.existingServices(name, "integrations", m.Integrations)
	field("requires", requires, len(requires) > 0)
	field("setupCallback", map[string]any{"command": []string{"./work", "setup-callback", name, m.SetupCallback}}, m.SetupCallback != "")
	switch strategy := m.Aggregator.Sync.Strategy; strategy {
	case "":
	case "dir", "redeploy":
		does := map[string]string{"dir": "sync", "redeploy": "redeploy"}[strategy]
		field("aggregator", map[string]any{"sync": map[string]any{"strategy": strategy, "command": []string{"./work", does, name}}}, true)
	default:
		w.omit("aggregator.sync.strategy of %s is %q; expected dir or redeploy", name, strategy)
	}
	var feeds []map[string]string
	for _, to := range w.existingServices(name, "feeds", m.Feeds) {
		if s := w.metas[to].Aggregator.Sync.Strategy; s == "dir" || s == "redeploy" {
			feeds = append(feeds, map[string]string{"aggregator": to})
		} else {
			w.omit("feeds of %s names %s, which is not an aggregator", name, to)
		}
	}
	field("feeds", feeds, len(feeds) > 0)
	var setup []map[string]any
	for _, named := range m.SetupReconcilers {
		setup = append(setup, reconcilerStep(setup, "set-up", name, named))
	}
	field("setupReconcilers", setup, len(setup) > 0)
	var reconcilers []map[string]any
	for _, r := range m.Reconcilers {
		one := reconcilerStep(reconcilers, "reconcile", name, r.Name)
		if requires := w.existingServices(name, "integration_reconcilers[].requires", r.Requires); len(requires) > 0 {
			one["requires"] = requires
		}
		reconcilers = append(reconcilers, one)
	}
	field("reconcilers", reconcilers, len(reconcilers) > 0)
	field("integrations", integrations, len(integrations) > 0)
	names := w.dns(name, m)
	field("dns", names, len(names) > 0)
	return len(names) > 0
}

// reconcilerStep returns an additional command of a service, by its name in meta.yml.
func reconcilerStep(before []map[string]any, does, service, title string) map[string]any {
	name := NameOf(title)
	if !isName(name) || slices.ContainsFunc(before, func(o map[string]any) bool { return o["name"] == name }) {
		name = fmt.Sprintf("reconciler-%d", len(before)+1)
	}
	return map[string]any{"name": name, "command": []string{"./work", does, service, cmp.Or(title, name)}}
}

// dns returns the DNS names of a service: a name without a dot is in the domain of the channel, and true means the service's own name.
func (w *writtenMeta) dns(service string, m meta) (names []map[string]string) {
	seen := map[string]bool{}
	for _, name := range m.DNS {
		if name == "true" {
			name = service
		}
		switch {
		case name == "false" || seen[name]:
			continue
		case config.CheckDNSName(name) != nil:
			w.omit("dns of %s has %q, which is not a valid name", service, name)
			continue
		}
		seen[name] = true
		if !strings.Contains(name, ".") {
			name += ".${{ constants.domain }}"
		}
		names = append(names, map[string]string{"name": name})
	}
	return names
}

// quotedJSON returns a value as JSON in one line, which is also valid YAML.
func quotedJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return "null" // texts in maps and lists can always be encoded
	}
	return string(data)
}
