package config

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// CreateNamespace says whether a namespace is made, and with what on it.
type CreateNamespace struct {
	On bool
	NamespaceMeta
}

// NamespaceMeta is what a namespace carries that is made.
type NamespaceMeta struct {
	// Labels, such as those of Pod Security.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Wanted words what may stand in the file.
func (CreateNamespace) Wanted() string {
	return "true, false, or a mapping of the labels and annotations that it is made with"
}

// DecodeStrict reads true or false, or what the namespace carries.
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
				d.Report(path+"."+field+"."+key, Fault{Code: "no-substitution", Message: "nothing is substituted here", Expected: `text without "${{"`})
			}
		}
	}
}
