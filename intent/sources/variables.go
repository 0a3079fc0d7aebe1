package sources

import (
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// Kubernetes accepts a container with duplicate names of variables, and the last one counts. A server-side apply rejects them, because
// the name is the key of the list. Charts contain such lists, so the duplicates are removed here, with a warning.

// variables removes variables from the containers of a built-in kind if a later variable has the same name.
func (c *objectCheck) variables() {
	if group := c.object.Group; strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") {
		return
	}
	c.containers("", c.fields)
}

// containers searches for containers in an object.
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

// container removes the duplicate variables of one container.
func (c *objectCheck) container(at string, container map[string]any) {
	env, _ := container["env"].([]any)
	var kept []any
	for i, each := range env {
		name := variable(each)
		sameName := func(later any) bool { return variable(later) == name }
		if name == "" || !slices.ContainsFunc(env[i+1:], sameName) {
			kept = append(kept, each)
			continue
		}
		path := strict.Index(at, i)
		c.object.Texts = slices.DeleteFunc(c.object.Texts, func(t ObjectText) bool { return strings.HasPrefix(t.Path, path+".") })
		c.object.Warnings = append(c.object.Warnings, c.object.Warning(path, fmt.Sprintf("%q is given twice, and the last one is used", name)))
	}
	if len(kept) < len(env) {
		container["env"] = kept
	}
}

// variable returns the name of a variable; empty if it is unknown here.
func variable(v any) string {
	fields, _ := v.(map[string]any)
	name, _ := fields["name"].(string)
	if strings.Contains(name, "${{") {
		return ""
	}
	return name
}

// Warning formats a warning with the position of a path of the object.
func (o *Object) Warning(path, text string) string {
	where := o.Origin
	if where == "" {
		where = fmt.Sprintf("%s:%d", o.Decoder.File, o.Decoder.At(path).Line)
	}
	return fmt.Sprintf("%s: %s: %s", where, o.Decoder.DisplayPath(path), text)
}
