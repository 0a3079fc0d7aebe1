package custom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/runtimes"
)

// Plan implements runtimes.Planner by the plan command. The command gets the environment and the files that apply would get, exits
// with 0 with or without changes, and prints the changes:
//
//	{"changes": [{"action": "update", "objectType": "Function", "name": "web", "fields": [{"path": "memory", "old": "128", "new": "256"}]}]}
//
// Without the command the changes are unknown: errors.ErrUnsupported.
func (r *Runtime) Plan(ctx context.Context, in runtimes.Request) ([]runtimes.Change, error) {
	cmd := r.def.Custom.Plan
	if cmd == nil {
		return nil, fmt.Errorf("runtime %s has no plan command: %w", r.def.Name, errors.ErrUnsupported)
	}
	res := r.run(ctx, call{
		purpose:     "plan",
		timeout:     cmp.Or(cmd.Timeout, defaultPlanTimeout),
		argv:        cmd.Argv,
		needsOutput: true,
	}, in)
	if res.err != nil {
		return nil, res.err
	}
	if res.out.ExitCode != 0 {
		return nil, readingError(runtimes.CodeFetchFailed, res.exitError())
	}
	changes, err := document{show: res.redact.text}.changes(res.stdout)
	if err != nil {
		return nil, res.malformed(err)
	}
	return res.redact.changes(changes), nil
}

// actions are the valid actions of a plan.
var actions = []runtimes.Action{
	runtimes.ActionCreate, runtimes.ActionUpdate, runtimes.ActionRecreate, runtimes.ActionPrune, runtimes.ActionOrphan, runtimes.ActionRefuse,
}

// changes reads the output of a plan, as strictly as that of a fetch: a required text is not empty, an optional field that is null
// counts as absent, and unknown fields are ignored.
func (d document) changes(stdout []byte) ([]runtimes.Change, error) {
	items, err := d.decodeList(stdout, "changes", "[] when nothing would change")
	var changes []runtimes.Change
	for i, item := range items {
		changes = append(changes, d.change(fmt.Sprintf("changes[%d]", i), item))
	}
	return changes, cmp.Or(err, d.err)
}

func (d *document) change(path string, v any) runtimes.Change {
	f := d.fields(path, v)
	c := runtimes.Change{
		Action:    runtimes.Action(d.required(path, f, "action")),
		Type:      d.required(path, f, "objectType"),
		Name:      d.required(path, f, "name"),
		Namespace: d.text(path, f, "namespace"),
		Message:   d.text(path, f, "message"),
	}
	if !slices.Contains(actions, c.Action) {
		d.addError(path+".action", "%s; expected create, update, recreate, prune, orphan or refuse", d.quote(string(c.Action)))
	}
	for i, item := range d.list(path+".fields", f["fields"]) {
		at := fmt.Sprintf("%s.fields[%d]", path, i)
		field := d.fields(at, item)
		c.Fields = append(c.Fields, runtimes.FieldChange{
			Path: d.required(at, field, "path"), Old: d.text(at, field, "old"), New: d.text(at, field, "new"),
		})
	}
	for i, item := range d.list(path+".conflicts", f["conflicts"]) {
		text, ok := item.(string)
		if !ok {
			d.addError(fmt.Sprintf("%s.conflicts[%d]", path, i), "%s; expected a string", d.describe(item))
		}
		c.Conflicts = append(c.Conflicts, text)
	}
	return c
}

// changes redacts every text of a plan.
func (r *redactor) changes(changes []runtimes.Change) []runtimes.Change {
	for i := range changes {
		c := &changes[i]
		c.Type, c.Name, c.Namespace, c.Message = r.text(c.Type), r.text(c.Name), r.text(c.Namespace), r.text(c.Message)
		for j := range c.Fields {
			c.Fields[j] = runtimes.FieldChange{Path: r.text(c.Fields[j].Path), Old: r.text(c.Fields[j].Old), New: r.text(c.Fields[j].New)}
		}
		for j := range c.Conflicts {
			c.Conflicts[j] = r.text(c.Conflicts[j])
		}
	}
	return changes
}
