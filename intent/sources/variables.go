package sources

import (
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// Kubernetes takes a container that names a variable twice, and the last one counts; an apply by the server does not, since it
// tells them apart by their names. Charts write such lists, so what does not count is left out here, and said.

// variables leaves out of the containers of a built-in kind what a later variable of the same name makes void.
func (c *objectCheck) variables() {
	if group := c.object.Group; strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") {
		return
	}
	c.containers("", c.fields)
}

// containers looks for containers anywhere in an object.
func (c *objectCheck) containers(at string, v any) {
	switch x := v.(type) {
	case map[string]any:
		for _, key := range strict.Keys(x) {
			inner := strict.Key(at, key)
			if list, ok := x[key].([]any); ok && (key == "containers" || key == "initContainers") {
				for i, each := range list {
					if container, ok := each.(map[string]any); ok {
						c.container(strict.Index(inner, i)+".env", container)
					}
				}
				continue
			}
			c.containers(inner, x[key])
		}
	case []any:
		for i, item := range x {
			c.containers(strict.Index(at, i), item)
		}
	}
}

// container leaves out the variables of one that do not count.
func (c *objectCheck) container(at string, container map[string]any) {
	env, _ := container["env"].([]any)
	var kept []any
	for i, each := range env {
		name := variable(each)
		again := func(later any) bool { return variable(later) == name }
		if name == "" || !slices.ContainsFunc(env[i+1:], again) {
			kept = append(kept, each)
			continue
		}
		path := strict.Index(at, i)
		c.object.Texts = slices.DeleteFunc(c.object.Texts, func(t ObjectText) bool { return strings.HasPrefix(t.Path, path+".") })
		c.object.Warnings = append(c.object.Warnings, c.warning(path, fmt.Sprintf("%q is named twice, and the last one counts", name)))
	}
	if len(kept) < len(env) {
		container["env"] = kept
	}
}

// variable is the name of a variable; empty when it has none that is known here.
func variable(v any) string {
	fields, _ := v.(map[string]any)
	name, _ := fields["name"].(string)
	if strings.Contains(name, "${{") {
		return ""
	}
	return name
}

// warning says where something stands that is no fault.
func (c *objectCheck) warning(path, text string) string {
	where := fmt.Sprintf("%s:%d", c.File, c.At(path).Line)
	if c.object.Origin != "" {
		where = c.object.Origin
	}
	return fmt.Sprintf("%s: %s: %s", where, c.Shown(path), text)
}
