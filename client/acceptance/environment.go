package acceptance

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/converge-engine/converge/entities"
)

//go:embed ecs fargate kubernetes
var configurations embed.FS

// Environment is a cluster, with an image that it can pull.
type Environment struct {
	kind   string            // the folder with its configuration
	values map[string]string // replacements for the words in capitals in that configuration
}

// Kubernetes is a namespace of a cluster: Context is one of the workers' kubeconfig, or empty for its current one.
type Kubernetes struct{ Context, Namespace, Image string }

// Environment returns the namespace as an environment. It refuses values that could inject more than a value into a file.
func (k Kubernetes) Environment() (Environment, error) {
	p := Environment{kind: "kubernetes", values: map[string]string{"CONTEXT": k.Context, "NAMESPACE": k.Namespace, "IMAGE": k.Image, "FAILAFTER": "10s"}}
	return p, p.check()
}

// ECS is a cluster of Amazon ECS. The workers assume Role unless it is empty. With Subnets the task runs on Fargate, and gets a public
// address if Public is set. Without Subnets it runs on the cluster's own instances.
type ECS struct {
	Cluster, Region, Role, Image string
	Subnets                      []string
	Public                       bool
}

// Environment returns the cluster as an environment. It refuses values that could inject more than a value into a file.
func (e ECS) Environment() (Environment, error) {
	p := Environment{kind: "ecs", values: map[string]string{
		"CLUSTER": e.Cluster, "REGION": e.Region, "IMAGE": e.Image, "ROLE": e.Role, "PUBLIC": "DISABLED", "SUBNETS": strings.Join(e.Subnets, ", "),
	}}
	if e.Public {
		p.values["PUBLIC"] = "ENABLED"
	}
	if len(e.Subnets) > 0 {
		p.kind = "fargate"
	}
	if err := p.check(); err != nil {
		return Environment{}, err
	}
	if e.Role != "" {
		p.values["ROLE"] = `, roleArn: "` + e.Role + `"`
	}
	return p, nil
}

// check refuses a value that could inject more than a value into a file.
func (p Environment) check() error {
	for _, name := range entities.SortedKeys(p.values) {
		if strings.ContainsAny(p.values[name], "\"\\\n${}") {
			return fmt.Errorf("%q is not allowed in a configuration; expected a name", p.values[name])
		}
	}
	return nil
}

// write writes the configuration of an application, with the words replaced by the values.
func (p Environment) write(dir, application string) error {
	from, err := fs.Sub(configurations, p.kind)
	if err != nil {
		return err
	}
	values := maps.Clone(p.values)
	values["APPLICATION"] = application
	return fs.WalkDir(from, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(from, path)
		if err != nil {
			return err
		}
		text := string(data)
		for _, name := range entities.SortedKeys(values) {
			text = strings.ReplaceAll(text, name, values[name])
		}
		return os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600)
	})
}
