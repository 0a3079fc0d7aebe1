package incarnation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/canonical"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Difference is the difference between two incarnations (D7). Payload changes open releases, rule changes do not.
type Difference struct {
	Schema      string              `json:"schema"`
	Application string              `json:"application"`
	From        string              `json:"from"` // hashes
	To          string              `json:"to"`
	Rules       []Change            `json:"rules,omitempty"` // of the application's channels
	Services    []ServiceDifference `json:"services"`        // changed services, by name
}

// DifferenceSchema names the version of the Difference document.
const DifferenceSchema = "converge.difference/v1"

// ServiceDifference is the difference of one service.
type ServiceDifference struct {
	Service  string              `json:"service"`
	Kind     ChangeKind          `json:"kind"`
	Rules    []Change            `json:"rules,omitempty"`
	Channels []ChannelDifference `json:"channels,omitempty"` // changed channels, in order
}

// ChannelDifference is the difference of one service in one channel.
type ChannelDifference struct {
	Channel string     `json:"channel"`
	Kind    ChangeKind `json:"kind"`
	Payload []Change   `json:"payload,omitempty"`
	Rules   []Change   `json:"rules,omitempty"`
}

// Change is one changed value, by its path.
type Change struct {
	Path string     `json:"path"`
	Kind ChangeKind `json:"kind"`
	Old  string     `json:"old,omitempty"`
	New  string     `json:"new,omitempty"`
}

// ChangeKind is added, removed or changed.
type ChangeKind string

// The kinds of changes.
const (
	Added   ChangeKind = "added"
	Removed ChangeKind = "removed"
	Changed ChangeKind = "changed"
)

// Empty reports whether there is no difference.
func (d *Difference) Empty() bool { return len(d.Rules) == 0 && len(d.Services) == 0 }

// Diff compares incarnation b with a. A nil a has no services.
func Diff(a, b *Incarnation) (*Difference, error) {
	if a == nil {
		a = &Incarnation{}
	}
	d := &Difference{Schema: DifferenceSchema, Application: b.Application(), To: b.Hash(), Services: []ServiceDifference{}}
	if a.bytes != nil {
		d.From = a.Hash()
	}
	d.Rules = changes(a.channelRules(), b.channelRules())
	for _, key := range slices.Sorted(slices.Values(union(a.ServiceKeys(), b.ServiceKeys()))) {
		service, err := diffService(a, b, key)
		if err != nil {
			return nil, err
		}
		if service.Kind != Changed || len(service.Rules)+len(service.Channels) > 0 {
			d.Services = append(d.Services, service)
		}
	}
	return d, nil
}

func diffService(a, b *Incarnation, key string) (ServiceDifference, error) {
	old, before := a.byKey(key)
	now, after := b.byKey(key)
	d := ServiceDifference{Service: cmp.Or(now.title(), old.title()), Kind: kindOf(before, after), Rules: changes(old.rules(), now.rules())}
	switch {
	case d.Kind != Changed:
		d.Rules = nil
	case old.Name != now.Name:
		d.Rules = append(d.Rules, Change{Path: "name", Kind: Changed, Old: old.Name, New: now.Name})
	}
	for _, channel := range union(a.Channels(), b.Channels()) {
		c, err := diffChannel(a, b, key, channel)
		if err != nil {
			return d, err
		}
		if c.Kind == Changed && len(c.Payload)+len(c.Rules) == 0 || c.Kind == "" {
			continue
		}
		d.Channels = append(d.Channels, c)
	}
	return d, nil
}

// byKey returns the service with a first name.
func (i *Incarnation) byKey(key string) (*Service, bool) {
	if s := i.services[key]; s != nil && s.Identity() == key {
		return s, true
	}
	return nil, false
}

func (s *Service) title() string {
	if s == nil {
		return ""
	}
	return s.Name
}

func diffChannel(a, b *Incarnation, service, channel string) (ChannelDifference, error) {
	old, before, err := a.flatten(service, channel)
	if err != nil {
		return ChannelDifference{}, err
	}
	now, after, err := b.flatten(service, channel)
	d := ChannelDifference{Channel: channel, Kind: kindOf(before, after)}
	if d.Kind != "" {
		d.Payload = changes(old.payload, now.payload)
	}
	if d.Kind == Changed {
		d.Rules = changes(old.rules, now.rules)
	}
	return d, err
}

// channelPaths is a service in a channel as two maps from paths to values.
type channelPaths struct{ payload, rules map[string]string }

func (i *Incarnation) flatten(service, channel string) (channelPaths, bool, error) {
	doc, ok := i.byKey(service)
	if !ok {
		return channelPaths{}, false, nil
	}
	instance, ok := doc.instance(channel)
	if !ok {
		return channelPaths{}, false, nil
	}
	each := map[string]map[string]string{}
	for _, m := range instance.members() {
		template, err := i.template(doc, instance, m)
		if err != nil {
			return channelPaths{}, false, err
		}
		flat := payloadPaths(template)
		for id, digest := range doc.Objects[m.bundle()] {
			flat["objects."+id] = sha256 + digest
		}
		each[instance.id(m).Name] = flat
	}
	if len(instance.Fleet) > 0 {
		return channelPaths{fleetPaths(each), instance.rules()}, true, nil
	}
	return channelPaths{each[instance.id(instance.first()).Name], instance.rules()}, true, nil
}

// fleetPaths merges the payload paths of a fleet: the instances with their runtimes, values that all instances share, once, and the
// other values per instance.
func fleetPaths(each map[string]map[string]string) map[string]string {
	const runtime = "runtime"
	values := map[string][]string{}
	for _, instance := range strict.Keys(each) {
		for path, v := range each[instance] {
			values[path] = append(values[path], v)
		}
	}
	flat := map[string]string{}
	for instance, paths := range each {
		flat["instances."+instance] = "on " + paths[runtime]
		for path, v := range paths {
			switch all := values[path]; {
			case path == runtime:
			case len(all) == len(each) && len(slices.Compact(slices.Clone(all))) == 1:
				flat[path] = v
			default:
				flat["instances."+instance+"."+path] = v
			}
		}
	}
	return flat
}

func kindOf(before, after bool) ChangeKind {
	switch {
	case before && after:
		return Changed
	case before:
		return Removed
	case after:
		return Added
	}
	return ""
}

// changes compares two flat maps.
func changes(old, now map[string]string) []Change {
	var all []Change
	for _, path := range union(strict.Keys(old), strict.Keys(now)) {
		before, had := old[path]
		after, has := now[path]
		if kind := kindOf(had, has); kind != Changed || before != after {
			all = append(all, Change{Path: path, Kind: kind, Old: before, New: after})
		}
	}
	slices.SortStableFunc(all, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return all
}

// sha256 is the prefix of a digest.
const sha256 = "sha256 "

// shortDigest is how many digits of a digest are shown.
const shortDigest = 12

// brief shortens a digest if the beginning distinguishes it from the other.
func brief(value, other string) string {
	before, digest, ok := strings.Cut(value, sha256)
	if short := before + sha256 + digest[:min(shortDigest, len(digest))]; ok && !strings.HasPrefix(other, short) {
		return short
	}
	return value
}

// union lists the names of both, those of b first, each once.
func union(a, b []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Concat(b, a), func(name string) bool {
		twice := seen[name]
		seen[name] = true
		return twice
	})
}

// String prints one line for each change, with + - and ~, under its service and channel.
func (d *Difference) String() string {
	if d.Empty() {
		return "no difference\n"
	}
	var b strings.Builder
	printGroup(&b, "release channels", "  ", d.Rules)
	for _, s := range d.Services {
		fmt.Fprintf(&b, "%s %s\n", s.Service, s.Kind)
		printGroup(&b, "  rules", "    ", s.Rules)
		for _, c := range s.Channels {
			fmt.Fprintf(&b, "  %s %s\n", c.Channel, c.Kind)
			printGroup(&b, "    payload", "      ", c.Payload)
			printGroup(&b, "    rules", "      ", c.Rules)
		}
	}
	return b.String()
}

func printGroup(b *strings.Builder, title, indent string, all []Change) {
	if len(all) > 0 {
		b.WriteString(title + "\n")
	}
	for _, c := range all {
		switch c.Kind {
		case Added:
			fmt.Fprintf(b, "%s+ %s  %s\n", indent, c.Path, brief(c.New, c.Old))
		case Removed:
			fmt.Fprintf(b, "%s- %s  %s\n", indent, c.Path, brief(c.Old, c.New))
		default:
			fmt.Fprintf(b, "%s~ %s  %s → %s\n", indent, c.Path, brief(c.Old, c.New), brief(c.New, c.Old))
		}
	}
}

// payloadPaths flattens a payload. It omits mere references to it, and shows only the size and the digest of files.
func payloadPaths(p entities.Payload) map[string]string {
	flat := map[string]string{"runtime": p.Runtime, "kind": string(p.Kind)}
	for name, v := range p.Address {
		flat[name] = v
	}
	for name, v := range p.Parameters {
		flat["parameters."+name] = jsonText(v)
	}
	for name, v := range p.Constants {
		flat["constants."+name] = jsonText(v)
	}
	if k := p.Kubernetes; k != nil {
		kubernetesPaths(flat, k)
	}
	if e := p.ECS; e != nil {
		flat["prune"], flat["adopt"] = jsonText(e.Prune), jsonText(e.Adopt)
	}
	if b := p.Bundled(); b != nil {
		for name, v := range b.Values {
			if strings.HasPrefix(name, "labels.") || strings.HasPrefix(name, "runtime.labels.") || strings.HasPrefix(name, "addons.") {
				flat[name] = jsonText(v)
			}
		}
	}
	if p.Custom == nil {
		return flat
	}
	for name, v := range p.Custom.Env {
		flat["env."+name] = jsonText(v.Literal)
		if v.IsSecret() {
			flat["env."+name] = v.Reference()
		}
	}
	for name, content := range p.Custom.Files {
		flat["files."+name] = fmt.Sprintf("%d bytes, %s%s", len(content), sha256, canonical.Hash([]byte(content)))
	}
	return flat
}

func kubernetesPaths(flat map[string]string, k *entities.KubernetesPayload) {
	flat["prune"], flat["adopt"] = jsonText(k.Prune), jsonText(k.Adopt)
	flat["createNamespace"] = jsonText(k.CreateNamespace)
	flat["removeClaims"], flat["removeForeign"] = jsonText(k.RemoveClaims), jsonText(k.RemoveForeign)
	if len(k.Ignore) > 0 {
		flat["ignoreDifferences"] = jsonText(k.Ignore)
	}
	for _, o := range k.Excluded {
		flat["excluded."+strings.Join([]string{o.Group, o.Kind, o.Namespace, o.Name}, "/")] = o.Reason
	}
	for name, v := range k.NamespaceLabels {
		flat["createNamespace.labels."+name] = v
	}
	for name, v := range k.NamespaceAnnotations {
		flat["createNamespace.annotations."+name] = v
	}
}

func (s *Service) rules() map[string]string {
	if s == nil {
		return nil
	}
	flat := map[string]string{"configChanges": string(s.ConfigChanges)}
	putPath(flat, "description", s.Description)
	putPath(flat, "version", s.Version)
	putPath(flat, "initialVersion", s.InitialVersion)
	putPath(flat, "declaredAt", s.DeclaredAt)
	putPath(flat, "noRollbackBelow", s.NoRollbackBelow)
	if s.Remove {
		flat["onDelete"] = "remove"
	}
	for _, p := range s.Parameters {
		flat["parameters."+p.Name] = string(p.Type)
		putPath(flat, "parameters."+p.Name+".description", p.Description)
	}
	for name, addon := range s.Addons {
		flat["addons."+name] = addon.Type
		for field, v := range addon.Value {
			flat["addons."+name+"."+field] = jsonText(v)
		}
	}
	return flat
}

func (i *InstanceDoc) rules() map[string]string {
	deadline, _ := i.ProgressDeadline.MarshalText()
	flat := map[string]string{"drift": string(i.Drift), "progressDeadline": string(deadline)}
	if i.NoRollback {
		flat["autoRollback"] = "false"
	}
	if i.MovedFrom != nil {
		flat["movedFrom"] = jsonText(i.MovedFrom)
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
		if e.Every > 0 {
			flat[path+".every"] = e.Every.String()
		}
		if len(e.After) > 0 {
			flat[path+".dependsOn"] = strings.Join(e.After, ", ")
		}
		if e.Remote {
			flat[path+".worker"] = "remote"
		}
	}
	return flat
}

// stagesText lists when a check is evaluated: preApproval, postDeployment 2m0s+15m0s.
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
	putPath(flat, "description", i.doc.Description)
	for n, c := range i.doc.Channels {
		flat[c.Name] = fmt.Sprintf("at position %d", n+1)
		for key, v := range c.Labels {
			flat[c.Name+".labels."+key] = jsonText(v)
		}
		for key, v := range c.Constants {
			flat[c.Name+".constants."+key] = jsonText(v)
		}
		for _, condition := range c.Conditions {
			flat[c.Name+".preconditions."+condition.ID] = conditionText(condition)
		}
		if c.NoRollback {
			flat[c.Name+".autoRollback"] = "false"
		}
		if c.ReportOnly {
			flat[c.Name+".enforcement"] = "report"
		}
		if c.Rollout != nil {
			flat[c.Name+".rollout"] = c.Rollout.String()
		}
		if c.OnDelete != "" {
			flat[c.Name+".onDelete"] = string(c.OnDelete)
		}
		if c.Plan != nil {
			planRules(flat, c.Name+".plan", c.Plan)
		}
	}
	for _, library := range i.doc.Imports {
		flat["imports."+library.Name] = fmt.Sprintf("%d (%s)", library.Version, library.Digest[:min(len(library.Digest), shortDigest)])
	}
	for n, grant := range i.doc.Grants {
		flat[fmt.Sprintf("authorization[%d]", n)] = jsonText(grant)
	}
	if i.doc.Identity != nil {
		flat["identity"] = jsonText(i.doc.Identity)
	}
	for _, n := range i.doc.Notifications {
		flat["notifications."+n.Name] = jsonText(n)
	}
	return flat
}

// conditionText returns what a condition requires: channels, or people.
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

func putPath(flat map[string]string, path, v string) {
	if v != "" {
		flat[path] = jsonText(v)
	}
}

// jsonText writes a value as JSON.
func jsonText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
