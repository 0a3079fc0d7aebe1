package apischema

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// Custom is a kind that a CustomResourceDefinition defines.
type Custom struct {
	Group, Kind string
	versions    map[string]*structure // that are served; nil: any object
}

// NewCustom reads a CustomResourceDefinition; nil if it defines no kind.
func NewCustom(definition map[string]any) *Custom {
	spec := mapping(definition["spec"])
	c := &Custom{versions: map[string]*structure{}}
	c.Group, _ = spec["group"].(string)
	c.Kind, _ = mapping(spec["names"])["kind"].(string)
	all, _ := spec["versions"].([]any)
	for _, each := range all {
		version := mapping(each)
		name, _ := version["name"].(string)
		if served, _ := version["served"].(bool); !served || name == "" {
			continue
		}
		c.versions[name] = rootOf(mapping(mapping(version["schema"])["openAPIV3Schema"]), spec["preserveUnknownFields"] == true)
	}
	if c.Group == "" || c.Kind == "" || len(c.versions) == 0 {
		return nil
	}
	return c
}

// Check checks an object of the kind.
func (c *Custom) Check(d *strict.Decoder, object map[string]any) Result {
	k := check{Decoder: d}
	apiVersion, _ := object["apiVersion"].(string)
	_, version, _ := strings.Cut(apiVersion, "/")
	s, served := c.versions[version]
	if !served {
		k.problem("apiVersion", strict.Unknown(CodeVersion, fmt.Sprintf("the CustomResourceDefinition of %s does not serve the version %q", c.Kind, version), version, slices.Sorted(maps.Keys(c.versions))))
		return k.found
	}
	if s != nil {
		k.fields("", "", s, object)
		metadata := mapping(object["metadata"])
		if name, ok := metadata["name"].(string); ok {
			k.name("metadata.name", name, dnsName)
		}
		for _, field := range []string{"labels", "annotations"} {
			k.names("metadata."+field, "meta.v1.ObjectMeta", field, metadata[field])
		}
	}
	return k.found
}

// mapping returns a value that is a mapping; otherwise an empty one.
func mapping(v any) map[string]any {
	all, _ := v.(map[string]any)
	return all
}

// rootOf returns the structure of an object; nil if any object is valid.
func rootOf(s map[string]any, open bool) *structure {
	root := customKind(s).structure
	if open || root == nil {
		return nil
	}
	maps.Copy(root.fields, embedded)
	root.required = slices.DeleteFunc(root.required, func(name string) bool { return name == "status" }) // its controller writes it
	return root
}

// embedded are the fields that every object has.
var embedded = map[string]kind{"apiVersion": {form: 's'}, "kind": {form: 's'}, "metadata": {name: "meta.v1.ObjectMeta"}}

// customKind returns the type of a schema.
func customKind(s map[string]any) kind {
	if s["x-kubernetes-int-or-string"] == true {
		return kind{form: 'i', fallback: s["default"], limits: limitsOf(s)}
	}
	k := kind{fallback: s["default"]}
	k.enum, _ = s["enum"].([]any)
	k.limits = limitsOf(s)
	switch s["type"] {
	case "string":
		k.form = 's'
	case "integer", "number":
		k.form = 'n'
	case "boolean":
		k.form = 'b'
	case "array":
		of := customKind(mapping(s["items"]))
		k.form, k.of, k.set = '[', &of, s["x-kubernetes-list-type"] == "set"
		if s["x-kubernetes-list-type"] == "map" {
			k.keys = texts(s["x-kubernetes-list-map-keys"])
		}
	case "object":
		return objectKind(s)
	}
	return k
}

// objectKind returns the type of a schema of objects: of a map, or with fields.
func objectKind(s map[string]any) kind {
	if values, ok := s["additionalProperties"].(map[string]any); ok {
		of := customKind(values)
		return kind{form: '{', of: &of}
	}
	properties := mapping(s["properties"])
	result := &structure{
		fields: map[string]kind{}, open: s["x-kubernetes-preserve-unknown-fields"] == true || s["additionalProperties"] == true,
	}
	for name, property := range properties {
		result.fields[name] = customKind(mapping(property))
	}
	if s["x-kubernetes-embedded-resource"] == true {
		maps.Copy(result.fields, embedded)
	}
	for _, name := range texts(s["required"]) {
		if mapping(properties[name])["default"] == nil { // the server sets a default
			result.required = append(result.required, name)
		}
	}
	return kind{structure: result}
}

func texts(v any) (all []string) {
	list, _ := v.([]any)
	for _, each := range list {
		if text, ok := each.(string); ok {
			all = append(all, text)
		}
	}
	return all
}
