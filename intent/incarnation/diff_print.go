package incarnation

import (
	"fmt"
	"strings"
)

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
