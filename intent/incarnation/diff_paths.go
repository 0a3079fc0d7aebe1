package incarnation

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/canonical"
)

// payloadPaths flattens a payload. What merely names it is left out, and of files only the size and
// digest are shown.
func payloadPaths(p entities.Payload) map[string]string {
	flat := map[string]string{"runtime": p.Runtime, "kind": string(p.Kind)}
	for name, v := range p.Address {
		flat[name] = v
	}
	for name, v := range p.Parameters {
		flat["parameters."+name] = compact(v)
	}
	for name, v := range p.Constants {
		flat["constants."+name] = compact(v)
	}
	if k := p.Kubernetes; k != nil {
		flat["prune"], flat["adopt"] = compact(k.Prune), compact(k.Adopt)
		flat["createNamespace"] = compact(k.CreateNamespace)
		for name, v := range k.Values {
			if strings.HasPrefix(name, "labels.") {
				flat[name] = compact(v)
			}
		}
	}
	if p.Custom == nil {
		return flat
	}
	for name, v := range p.Custom.Env {
		flat["env."+name] = compact(v.Literal)
		if v.WorkerEnv != "" {
			flat["env."+name] = "{workerEnv: " + v.WorkerEnv + "}"
		}
	}
	for name, content := range p.Custom.Files {
		flat["files."+name] = fmt.Sprintf("%d bytes, sha256 %s", len(content), canonical.Hash([]byte(content))[:8])
	}
	return flat
}

// paths adds the objects of a service, by the beginnings of their digests.
func (l ObjectList) paths(flat map[string]string) {
	for id, digest := range l {
		flat["objects."+id] = "sha256 " + digest
	}
}

func (s *Service) rules() map[string]string {
	if s == nil {
		return nil
	}
	flat := map[string]string{"configChanges": string(s.ConfigChanges)}
	put(flat, "description", s.Description)
	put(flat, "version", s.Version)
	put(flat, "initialVersion", s.InitialVersion)
	put(flat, "declaredAt", s.DeclaredAt)
	if s.Remove {
		flat["onDelete"] = "remove"
	}
	for _, p := range s.Parameters {
		flat["parameters."+p.Name] = string(p.Type)
		put(flat, "parameters."+p.Name+".description", p.Description)
	}
	return flat
}

func (i *Instance) rules() map[string]string {
	deadline, _ := i.ProgressDeadline.MarshalText()
	flat := map[string]string{"drift": string(i.Drift), "progressDeadline": string(deadline)}
	if i.NoRollback {
		flat["autoRollback"] = "false"
	}
	for _, check := range i.Checks {
		path := "checks." + check.ID
		flat[path] = string(check.Kind) + ", definition " + check.Definition
		flat[path+".at"], flat[path+".interval"] = stagesText(check.At), check.Interval.String()
		if check.Repairs {
			flat[path+".repairs"] = "true"
		}
	}
	for _, e := range i.Extensions {
		path := "extensions." + e.Name
		flat[path] = fmt.Sprintf("at %s, definition %s", e.Stage, e.Definition)
		flat[path+".sharedInstanceKey"], flat[path+".timeout"] = e.Key, e.Timeout.String()
		flat[path+".retry"] = fmt.Sprintf("%d times, after %v to %v", e.MaxAttempts, e.RetryBackoff, e.RetryMax)
		if len(e.After) > 0 {
			flat[path+".dependsOn"] = strings.Join(e.After, ", ")
		}
		if e.Remote {
			flat[path+".worker"] = "remote"
		}
	}
	return flat
}

// stagesText lists when a check is asked: preApproval, postDeployment 2m0s+15m0s.
func stagesText(at []entities.CheckAt) string {
	var all []string
	for _, a := range at {
		text := string(a.Stage)
		switch {
		case a.Fails:
			text += " fails"
		case a.For > 0:
			text += fmt.Sprintf(" %v+%v", a.Delay, a.For)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func (i *Incarnation) channelRules() map[string]string {
	flat := map[string]string{}
	put(flat, "description", i.doc.Description)
	for n, c := range i.doc.Channels {
		flat[c.Name] = fmt.Sprintf("at place %d", n+1)
		for key, v := range c.Labels {
			flat[c.Name+".labels."+key] = compact(v)
		}
		for key, v := range c.Constants {
			flat[c.Name+".constants."+key] = compact(v)
		}
		for _, condition := range c.Conditions {
			flat[c.Name+".preconditions."+condition.ID] = conditionText(condition)
		}
		if c.NoRollback {
			flat[c.Name+".autoRollback"] = "false"
		}
	}
	for n, grant := range i.doc.Grants {
		flat[fmt.Sprintf("authorization[%d]", n)] = compact(grant)
	}
	if i.doc.Identity != nil {
		flat["identity"] = compact(i.doc.Identity)
	}
	for _, n := range i.doc.Notifications {
		flat["notifications."+n.Name] = compact(n)
	}
	return flat
}

// conditionText is what a condition asks for: channels, or people.
func conditionText(c entities.Condition) string {
	if c.Kind != entities.ManualApproval {
		return strings.Join(c.Channels, ", ")
	}
	text := fmt.Sprintf("%d approvers", c.MinApprovers)
	if len(c.Approvers) > 0 {
		text += " of " + strings.Join(c.Approvers, ", ")
	}
	return text
}

func put(flat map[string]string, path, v string) {
	if v != "" {
		flat[path] = compact(v)
	}
}

// compact writes a value as JSON.
func compact(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
