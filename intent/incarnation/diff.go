package incarnation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// Difference is how one incarnation differs from another (D7). Payload changes open releases, rules
// changes do not.
type Difference struct {
	Schema      string              `json:"schema"`
	Application string              `json:"application"`
	From        string              `json:"from"` // hashes
	To          string              `json:"to"`
	Rules       []Change            `json:"rules,omitempty"` // of the application's channels
	Services    []ServiceDifference `json:"services"`        // those that differ, by name
}

// DifferenceSchema names the version of the Difference document.
const DifferenceSchema = "converge.difference/v1"

// ServiceDifference is how one service differs.
type ServiceDifference struct {
	Service  string              `json:"service"`
	Kind     ChangeKind          `json:"kind"`
	Rules    []Change            `json:"rules,omitempty"`
	Channels []ChannelDifference `json:"channels,omitempty"` // those that differ, in order
}

// ChannelDifference is how one service in one channel differs.
type ChannelDifference struct {
	Channel string     `json:"channel"`
	Kind    ChangeKind `json:"kind"`
	Payload []Change   `json:"payload,omitempty"`
	Rules   []Change   `json:"rules,omitempty"`
}

// Change is one value that differs, by its path.
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

// Empty tells whether nothing differs.
func (d *Difference) Empty() bool { return len(d.Rules) == 0 && len(d.Services) == 0 }

// Diff says how incarnation b differs from a. A nil a is one without services.
func Diff(a, b *Incarnation) (*Difference, error) {
	if a == nil {
		a = &Incarnation{}
	}
	d := &Difference{Schema: DifferenceSchema, Application: b.Application(), To: b.Hash(), Services: []ServiceDifference{}}
	if a.bytes != nil {
		d.From = a.Hash()
	}
	d.Rules = changes(a.channelRules(), b.channelRules())
	for _, name := range slices.Sorted(slices.Values(union(a.Services(), b.Services()))) {
		service, err := diffService(a, b, name)
		if err != nil {
			return nil, err
		}
		if service.Kind != Changed || len(service.Rules)+len(service.Channels) > 0 {
			d.Services = append(d.Services, service)
		}
	}
	return d, nil
}

func diffService(a, b *Incarnation, name string) (ServiceDifference, error) {
	old, before := a.Service(name)
	now, after := b.Service(name)
	d := ServiceDifference{Service: name, Kind: kindOf(before, after), Rules: changes(old.rules(), now.rules())}
	if d.Kind != Changed {
		d.Rules = nil
	}
	for _, channel := range union(a.Channels(), b.Channels()) {
		c, err := diffChannel(a, b, name, channel)
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

func diffChannel(a, b *Incarnation, service, channel string) (ChannelDifference, error) {
	old, before, err := a.side(service, channel)
	if err != nil {
		return ChannelDifference{}, err
	}
	now, after, err := b.side(service, channel)
	d := ChannelDifference{Channel: channel, Kind: kindOf(before, after)}
	if d.Kind != "" {
		d.Payload = changes(old.payload, now.payload)
	}
	if d.Kind == Changed {
		d.Rules = changes(old.rules, now.rules)
	}
	return d, err
}

// side is a service in a channel as two lists of paths and values.
type side struct{ payload, rules map[string]string }

func (i *Incarnation) side(service, channel string) (side, bool, error) {
	doc, ok := i.Service(service)
	if !ok {
		return side{}, false, nil
	}
	instance, ok := doc.instance(channel)
	if !ok {
		return side{}, false, nil
	}
	template, err := i.Template(service, channel)
	if err != nil {
		return side{}, false, err
	}
	flat := payloadPaths(template)
	if k := instance.Kubernetes; k != nil {
		doc.Objects[k.Bundle].paths(flat)
	}
	return side{flat, instance.rules()}, true, nil
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

// changes compares two flat lists.
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

// union lists the names of both, those of b first, each once.
func union(a, b []string) []string {
	var all []string
	seen := map[string]bool{}
	for _, name := range slices.Concat(b, a) {
		if !seen[name] {
			all = append(all, name)
		}
		seen[name] = true
	}
	return all
}

// String prints one line for each change, with + - and ~, under its service and channel.
func (d *Difference) String() string {
	if d.Empty() {
		return "no difference\n"
	}
	var b strings.Builder
	if len(d.Rules) > 0 {
		b.WriteString("release channels\n")
		printChanges(&b, "  ", d.Rules)
	}
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
		printChanges(b, indent, all)
	}
}

func printChanges(b *strings.Builder, indent string, all []Change) {
	for _, c := range all {
		switch c.Kind {
		case Added:
			fmt.Fprintf(b, "%s+ %s  %s\n", indent, c.Path, c.New)
		case Removed:
			fmt.Fprintf(b, "%s- %s  %s\n", indent, c.Path, c.Old)
		default:
			fmt.Fprintf(b, "%s~ %s  %s → %s\n", indent, c.Path, c.Old, c.New)
		}
	}
}
