// Command generate writes the compact schema of the built-in kinds of the supported versions of Kubernetes, from the schemas in client-go
// and the life cycles in k8s.io/api.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// earlier are the versions of client-go of the supported versions of Kubernetes before that of go.mod, by minor version.
var earlier = map[int]string{33: "v0.33.7", 34: "v0.34.3", 35: "v0.35.0"}

// definition is a type of client-go's schema.
type definition struct {
	Name string
	atom `yaml:",inline"`
}

type atom struct {
	NamedType string `yaml:"namedType"`
	Scalar    string
	Map       *struct {
		Fields []struct {
			Name    string
			Type    atom
			Default any
		}
		ElementType *atom `yaml:"elementType"`
	}
	List *struct {
		ElementType  *atom  `yaml:"elementType"`
		Relationship string `yaml:"elementRelationship"`
		Keys         []string
	}
}

// version is the schema of a minor version: types, their fields, and what describes a field.
type version struct {
	minor int
	types map[string]map[string]string
}

func main() {
	newest := run("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/client-go")
	_, minor, _ := strings.Cut(newest, ".")
	minor, _, _ = strings.Cut(minor, ".")
	last, err := strconv.Atoi(minor)
	check(err)
	all := map[int]string{last: newest}
	for minor, release := range earlier {
		all[minor] = release
	}
	var versions []version
	for _, minor := range sortedKeys(all) {
		versions = append(versions, read(minor, all[minor]))
	}
	check(os.WriteFile("schema.txt", []byte(write(versions, lifeCycles(all))), 0o644))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func run(program string, args ...string) string {
	out, err := exec.Command(program, args...).Output()
	check(err)
	return strings.TrimSpace(string(out))
}

// download returns the directory of a version of a module.
func download(module string) string {
	var downloaded struct{ Dir string }
	check(json.Unmarshal([]byte(run("go", "mod", "download", "-json", module)), &downloaded))
	return downloaded.Dir
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// read reads the schema of a minor version.
func read(minor int, release string) version {
	source, err := os.ReadFile(filepath.Join(download("k8s.io/client-go@"+release), "applyconfigurations/internal/internal.go"))
	check(err)
	_, text, _ := strings.Cut(string(source), "typed.YAMLObject(`")
	text, _, _ = strings.Cut(text, "`)")
	var schema struct{ Types []definition }
	check(yaml.Unmarshal([]byte(text), &schema))
	v := version{minor, map[string]map[string]string{}}
	for _, d := range schema.Types {
		if fields := d.fields(); fields != nil {
			v.types[short(d.Name)] = fields
		}
	}
	return v
}

// write describes all types after the oldest and the newest version, one a line: its name, and its fields with their types in the newest
// version that has them. What not all versions have is followed by an @ and the versions; a kind also by = and its replacement.
func write(versions []version, kinds map[string]lifeCycle) string {
	names := union(versions)
	has := func(name, field string) func(v version) bool {
		return func(v version) bool { _, ok := v.types[name][field]; return ok }
	}
	hasType := func(name string) func(v version) bool {
		return func(v version) bool { return v.types[name] != nil }
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d\t%d\n", versions[0].minor, versions[len(versions)-1].minor)
	for _, name := range sortedKeys(names) {
		present := slices.DeleteFunc(slices.Clone(versions), func(v version) bool { return v.types[name] == nil })
		line := name
		if _, is := names[name]["apiVersion"]; is {
			line += kinds[name].within(span(versions, hasType(name)))
		}
		for _, field := range sortedKeys(names[name]) {
			line += "\t" + field + span(present, has(name, field)).String() + " " + names[name][field]
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

// union returns the types of all versions.
func union(versions []version) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, v := range versions {
		for name, fields := range v.types {
			if all[name] == nil {
				all[name] = map[string]string{}
			}
			maps.Copy(all[name], fields)
		}
	}
	return all
}

// lifeCycle is the first and the last minor version that serves a kind; 0: there is no bound.
type lifeCycle struct {
	first, last int
	replacement string
}

func (l lifeCycle) String() string {
	if l.first == 0 && l.last == 0 {
		return ""
	}
	text := func(minor int) string { return strings.TrimPrefix(strconv.Itoa(minor), "0") }
	return "@" + text(l.first) + "-" + text(l.last)
}

// within combines the life cycle of a kind with the versions that have its type.
func (l lifeCycle) within(types lifeCycle) string {
	l.first = max(l.first, types.first)
	if l.last == 0 {
		l.last = types.last
	}
	if l.replacement != "" && l.last != 0 {
		return l.String() + "=" + l.replacement
	}
	return l.String()
}

// span returns the versions that have something. They follow each other.
func span(versions []version, has func(v version) bool) (s lifeCycle) {
	first, last := slices.IndexFunc(versions, has), len(versions)-1
	for !has(versions[last]) {
		last--
	}
	if first > 0 {
		s.first = versions[first].minor
	}
	if last < len(versions)-1 {
		s.last = versions[last].minor
	}
	return s
}

var (
	lifeRE        = regexp.MustCompile(`func \(in \*(\w+)\) APILifecycle(Introduced|Removed)\(\) \(major, minor int\) \{\n\treturn 1, (\d+)`)
	replacementRE = regexp.MustCompile(`func \(in \*(\w+)\) APILifecycleReplacement\(\) schema.GroupVersionKind \{\n\treturn schema.GroupVersionKind\{Group: "(.*)", Version: "(.*)", Kind: "(.*)"\}`)
)

// lifeCycles reads the life cycles of the kinds, by the names of their types. That of a later version counts.
func lifeCycles(releases map[int]string) map[string]lifeCycle {
	all := map[string]lifeCycle{}
	for _, minor := range sortedKeys(releases) {
		files, err := filepath.Glob(filepath.Join(download("k8s.io/api@"+releases[minor]), "*/*/zz_generated.prerelease-lifecycle.go"))
		check(err)
		for _, file := range files {
			source, err := os.ReadFile(file)
			check(err)
			group := filepath.Base(filepath.Dir(filepath.Dir(file))) + "." + filepath.Base(filepath.Dir(file)) + "."
			readLifeCycles(string(source), group, all)
		}
	}
	return all
}

func readLifeCycles(source, group string, all map[string]lifeCycle) {
	for _, m := range lifeRE.FindAllStringSubmatch(source, -1) {
		l := all[group+m[1]]
		minor, err := strconv.Atoi(m[3])
		check(err)
		if m[2] == "Removed" {
			l.last = minor - 1
		} else if minor > slices.Min(sortedKeys(earlier)) {
			l.first = minor
		}
		all[group+m[1]] = l
	}
	for _, m := range replacementRE.FindAllStringSubmatch(source, -1) {
		l := all[group+m[1]]
		l.replacement = strings.TrimPrefix(m[2]+"/", "/") + m[3] + " " + m[4]
		if !strings.HasSuffix(m[1], "List") { // IngressClass names the list of its replacement
			l.replacement = strings.TrimSuffix(l.replacement, "List")
		}
		all[group+m[1]] = l
	}
}

// short returns the short name of a type.
func short(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "io.k8s.api."), "io.k8s.apimachinery.pkg.")
	return strings.TrimPrefix(name, "apis.")
}

// fields describes the fields of a type; nil if any value is valid.
func (d definition) fields() map[string]string {
	if strings.Contains(d.Name, "alpha") || d.Map == nil || len(d.Map.Fields) == 0 || d.Scalar != "" || d.List != nil {
		return nil
	}
	fields := map[string]string{}
	for _, f := range d.Map.Fields {
		fields[f.Name] = f.Type.text()
		if value := fmt.Sprint(f.Default); f.Default != nil && f.Type.Scalar != "" {
			fields[f.Name] += "=" + value
		}
	}
	return fields
}

// text is the type in one word: s, n, b or ? for scalars, or the name of a type, after {} for a map, [] for a list, [*] for a set, and
// [port,protocol] for a list with keys.
func (a atom) text() string {
	switch {
	case a.NamedType != "":
		return short(a.NamedType)
	case a.Scalar != "":
		return a.scalar()
	case a.List != nil && a.List.Relationship == "associative" && len(a.List.Keys) == 0:
		return "[*]" + a.List.ElementType.text()
	case a.List != nil:
		return "[" + strings.Join(a.List.Keys, ",") + "]" + a.List.ElementType.text()
	case a.Map != nil && a.Map.ElementType != nil:
		return "{}" + a.Map.ElementType.text()
	}
	return "?"
}

// scalar is the letter of a scalar; ? for one that may be a list or a map too.
func (a atom) scalar() string {
	letter := map[string]string{"string": "s", "numeric": "n", "boolean": "b"}[a.Scalar]
	if letter == "" || a.List != nil || a.Map != nil {
		return "?"
	}
	return letter
}
