package config

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// CreateNamespace configures whether a namespace is created, and with which metadata.
type CreateNamespace struct {
	On bool
	NamespaceMeta
}

// NamespaceMeta is the metadata of a created namespace.
type NamespaceMeta struct {
	// Labels, such as those of Pod Security.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Wanted describes the allowed values.
func (CreateNamespace) Wanted() string {
	return "true, false, or a mapping of its labels and annotations"
}

// DecodeStrict decodes true, false, or the metadata of the namespace.
func (c *CreateNamespace) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	if node.Kind != yaml.MappingNode {
		value, _ := strict.Scalar(node)
		wanted, ok := value.(bool)
		if !ok {
			d.Fail(path, node, Fault{Code: "wrong-type", Message: "this is " + strict.Describe(node), Expected: c.Wanted()})
		}
		c.On = wanted
		return
	}
	c.On = true
	d.Value(path, node, &c.NamespaceMeta)
	for _, field := range []string{"labels", "annotations"} {
		all := map[string]map[string]string{"labels": c.Labels, "annotations": c.Annotations}[field]
		for _, key := range strict.Keys(all) {
			if strings.Contains(all[key], "${{") {
				d.Report(path+"."+field+"."+key, Fault{Code: "no-substitution", Message: "substitution is not supported here", Expected: `text without "${{"`})
			}
		}
	}
}
