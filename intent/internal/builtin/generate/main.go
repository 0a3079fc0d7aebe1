// Command generate writes the compact schema of the built-in kinds of Kubernetes, from the schema in client-go.
package main

import (
	"cmp"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

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

func main() {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go").Output()
	check(err)
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "applyconfigurations/internal/internal.go"))
	check(err)
	_, text, _ := strings.Cut(string(source), "typed.YAMLObject(`")
	text, _, _ = strings.Cut(text, "`)")
	var schema struct{ Types []definition }
	check(yaml.Unmarshal([]byte(text), &schema))
	slices.SortFunc(schema.Types, func(a, b definition) int { return cmp.Compare(a.Name, b.Name) })
	var out strings.Builder
	for _, d := range schema.Types {
		if line := d.line(); line != "" {
			out.WriteString(line + "\n")
		}
	}
	check(os.WriteFile("schema.txt", []byte(out.String()), 0o644))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// short returns the short name of a type.
func short(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "io.k8s.api."), "io.k8s.apimachinery.pkg.")
	return strings.TrimPrefix(name, "apis.")
}

// line describes a type: its name, and its fields with their types; "" if any value is valid.
func (d definition) line() string {
	if strings.Contains(d.Name, "alpha") || d.Map == nil || len(d.Map.Fields) == 0 || d.Scalar != "" || d.List != nil {
		return ""
	}
	fields := []string{short(d.Name)}
	for _, f := range d.Map.Fields {
		if f.Name == "status" {
			continue
		}
		text := f.Name + " " + f.Type.text()
		if value := fmt.Sprint(f.Default); f.Default != nil && f.Type.Scalar != "" {
			text += "=" + value
		}
		fields = append(fields, text)
	}
	return strings.Join(fields, "\t")
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
