package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/converge-engine/converge/client/preview"
	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
)

const (
	fieldsInLine = 2 // fields of one object, in the line of its name
	fieldsBelow  = 5 // fields below that line, unless --full is set
)

// planText prints a plan: a line for each object, under its channel and service.
type planText struct {
	screen show.Screen
	full   bool
	plan   *preview.Plan
	// deletes means that the plan is of a deletion, not of a configuration.
	deletes bool
	b       strings.Builder
}

// String returns the whole text.
func (t *planText) String() string {
	for _, s := range t.plan.Services {
		t.service(s)
	}
	for _, name := range t.plan.Removed {
		if !slices.ContainsFunc(t.plan.Services, func(s preview.Service) bool { return s.Removal && s.Service == name }) {
			t.line("", "%s/%s is no longer declared: what runs is left in place, orphaned", t.plan.Application, name)
		}
	}
	if t.plan.Rules != nil {
		t.rules(t.plan.Rules)
	}
	t.line("", "%s", t.summary())
	return t.b.String()
}

func (t *planText) line(indent, format string, args ...any) {
	t.b.WriteString(indent + strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
}

func (t *planText) service(s preview.Service) {
	title := t.plan.Application + "/" + s.Service
	switch {
	case s.Removal && t.deletes:
		title += ", to be deleted"
	case s.Removal:
		title += ", deleted as declared (not published)"
	case s.Version == "":
		title += ", changed configuration (not published)"
	case s.Known:
		title += fmt.Sprintf(" %s, incarnation %d (released before)", s.Version, s.Incarnation)
	default:
		title += fmt.Sprintf(" %s, incarnation %d (not released)", s.Version, s.Incarnation)
	}
	t.line("", "%s", title)
	if s.Refused != "" {
		t.line(" ", "%s", t.screen.Sign("!", "currently refused: "+preview.OneLine(s.Refused)))
	}
	for _, note := range s.Notes {
		t.line(" ", "%s", note)
	}
	width := 0
	for _, c := range s.Channels {
		width = max(width, utf8.RuneCountInString(channelTitle(s, c)))
	}
	for _, c := range s.Channels {
		t.channel(c, fmt.Sprintf("%-*s", width, channelTitle(s, c)))
	}
}

// channelTitle adds the versions to the title if they differ from those of the service.
func channelTitle(s preview.Service, c preview.Channel) string {
	switch {
	case s.Removal:
		return c.Name() + " " + c.Present
	case s.Version != "":
		return c.Name()
	case c.Present == "":
		return c.Name() + " → " + c.Version
	}
	return c.Name() + " " + c.Present + " → " + c.Version
}

func (t *planText) channel(c preview.Channel, title string) {
	switch {
	case c.Failed():
		t.line(" ", "%s  %s", title, t.screen.Sign("!", fmt.Sprintf("cannot be planned: %s [%s]", preview.OneLine(c.Message), c.Code)))
	case c.Removal:
		t.removal(c, title)
	case c.Unchanged():
		t.line(" ", "%s  no change", title)
	case c.Unseen():
		t.line(" ", "%s  would be applied; %s", title, preview.OneLine(c.Message))
		for _, f := range c.Sent {
			t.line("  ", "%s %s", t.screen.Sign("~", "~"), t.field(f, f.Path))
		}
	default:
		t.line(" ", "%s  %s", title, entities.Count(len(c.Changes)+c.Omitted, "change"))
		t.objects(c.Changes)
		if c.Omitted > 0 {
			t.line("  ", "and %s more, too many to list", entities.Count(c.Omitted, "object"))
		}
	}
}

// removal lists which objects of an instance are removed and which stay.
func (t *planText) removal(c preview.Channel, title string) {
	removed, kept := c.Totals.Removed, c.Totals.Orphaned
	switch {
	case c.Unseen():
		t.line(" ", "%s  deleted; %s", title, preview.OneLine(c.Message))
	case len(c.Changes)+c.Omitted == 0:
		t.line(" ", "%s  no objects", title)
	default:
		t.line(" ", "%s  %s removed, %d left in place", title, entities.Count(removed, "object"), kept)
		t.objects(c.Changes)
		if c.Omitted > 0 {
			t.line("  ", "and %s more, too many to list", entities.Count(c.Omitted, "object"))
		}
	}
}

func (t *planText) objects(all []protocol.PreviewChange) {
	versionOnly := 0
	if !t.full {
		all, versionOnly = foldVersionOnly(all)
	}
	several := severalNamespaces(all)
	signs, names := 0, 0
	for _, c := range all {
		signs = max(signs, len(sign(c)))
		names = max(names, utf8.RuneCountInString(objectName(c, several)))
	}
	for _, c := range all {
		inline, below := t.change(c)
		mark := sign(c)
		t.line("  ", "%s%s %-*s  %s", t.screen.Sign(mark, mark), strings.Repeat(" ", signs-len(mark)), names, objectName(c, several), inline)
		for _, line := range below {
			t.line("      ", "%s", line)
		}
	}
	if versionOnly > 0 {
		t.line("  ", "%s %s with no change except the version", t.screen.Sign("~", "~"), entities.Count(versionOnly, "object"))
	}
}

// foldVersionOnly removes objects whose only change is the version annotation, if there are several of them, and counts them.
func foldVersionOnly(all []protocol.PreviewChange) (distinct []protocol.PreviewChange, versionOnly int) {
	for _, c := range all {
		if onlyVersion(c) {
			versionOnly++
		} else {
			distinct = append(distinct, c)
		}
	}
	if versionOnly < 2 {
		return all, 0
	}
	return distinct, versionOnly
}

func onlyVersion(c protocol.PreviewChange) bool {
	other := func(f protocol.PreviewField) bool { return !strings.HasSuffix(f.Path, preview.VersionField) }
	return c.Action == "update" && len(c.Fields) > 0 && c.More == 0 && len(c.Conflicts) == 0 && c.Message == "" && c.Replaces == nil && !slices.ContainsFunc(c.Fields, other)
}

func severalNamespaces(all []protocol.PreviewChange) bool {
	return slices.ContainsFunc(all, func(c protocol.PreviewChange) bool { return c.Namespace != all[0].Namespace })
}

func objectName(c protocol.PreviewChange, several bool) string {
	name := c.Type + "/" + c.Name
	if several && c.Namespace != "" {
		name += " in " + c.Namespace
	}
	return name
}

var signOf = map[string]string{"create": "+", "update": "~", "recreate": "-/+", "prune": "-", "orphan": "o", "refuse": "!", "remove": "-", "keep": "o"}

func sign(c protocol.PreviewChange) string {
	if len(c.Conflicts) > 0 {
		return "!"
	}
	return first(signOf[c.Action], c.Action) // the action of a newer worker may be unknown
}

// change describes what happens to one object: in its line if the text is short, otherwise below it.
func (t *planText) change(c protocol.PreviewChange) (inline string, below []string) {
	reasons := t.reasons(c)
	fields, more := t.fields(c)
	short := len(reasons) == 0 && more == 0 && len(fields) > 0 && len(fields) <= fieldsInLine
	if r := c.Replaces; r != nil && !short {
		reasons = append(reasons, "its "+r.What+" are replaced: "+preview.OneLine(r.Why))
	}
	switch {
	case len(fields)+more == 0 && len(reasons) == 1:
		return reasons[0], nil
	case short && c.Replaces != nil:
		return strings.Join(fields, "; ") + "; its " + c.Replaces.What + " are replaced", nil
	case short, len(fields)+more+len(reasons) == 0:
		return strings.Join(fields, "; "), nil
	}
	below = append(reasons, fields...)
	if more > 0 {
		below = append(below, "and "+entities.Count(more, "more field"))
	}
	if len(fields)+more > 0 {
		inline = entities.Count(len(fields)+more, "field")
	}
	return inline, below
}

// reasons are the texts about an object besides its fields.
func (t *planText) reasons(c protocol.PreviewChange) (all []string) {
	for _, conflict := range c.Conflicts {
		all = append(all, preview.OneLine(conflict)+": "+t.screen.Sign("!", "CONFLICT"))
	}
	if c.Message != "" {
		all = append(all, preview.OneLine(c.Message))
	}
	if c.Action == "orphan" && len(all) == 0 {
		all = append(all, "no longer declared, left in place")
	}
	return all
}

// fields lists the changes of an object's fields. It lists only the first few unless --full is set.
func (t *planText) fields(c protocol.PreviewChange) (lines []string, more int) {
	shown := preview.FoldVersion(c.Fields)
	if (c.Message != "" || c.Replaces != nil) && len(shown) == 1 && shown[0].Path == "version" {
		shown = nil // the message contains more
	}
	paths := preview.ShortPaths(shown)
	for n, f := range shown {
		path := paths[n]
		if t.full {
			path = f.Path
		}
		lines = append(lines, t.field(f, path))
	}
	more = c.More
	if !t.full && len(lines) > fieldsBelow+1 { // a line "and 1 more field" would need the same space
		more += len(lines) - fieldsBelow
		lines = lines[:fieldsBelow]
	}
	return lines, more
}

func (t *planText) field(f protocol.PreviewField, path string) string {
	return path + " " + t.value(f.Old) + " → " + t.value(f.New)
}

// value shortens a JSON value for display. Text without special characters has no quotes.
func (t *planText) value(json string) string {
	const widest = 60
	text := preview.DisplayValue(json)
	if !t.full && utf8.RuneCountInString(text) > widest {
		text = string([]rune(text)[:widest-1]) + "…"
	}
	return text
}

// rules prints the changes that take effect at once, without a release.
func (t *planText) rules(d *incarnation.Difference) {
	t.line("", "rules (take effect at once, release nothing)")
	for line := range strings.Lines(d.String()) {
		t.line(" ", "%s", strings.TrimRight(line, "\n"))
	}
}

// summary returns the last line.
func (t *planText) summary() string {
	p := t.plan
	if p.Empty() {
		return "nothing would change"
	}
	if t.onlyRemoves() {
		return t.removalSummary()
	}
	var parts []string
	if p.Totals != (protocol.PreviewTotals{}) {
		parts = append(parts, fmt.Sprintf("%s, %d removed", countChanges(p.Totals.Changed), p.Totals.Removed))
	}
	for _, part := range []struct {
		n    int
		text string
	}{
		{p.Totals.Orphaned, "%d left in place"},
		{p.Totals.Conflicts, entities.Count(p.Totals.Conflicts, "conflict")},
		{p.Totals.Refused, "%d refused"},
		{p.Unseen, entities.Count(p.Unseen, "channel") + " applied without a preview"},
		{p.Failed, entities.Count(p.Failed, "channel") + " could not be planned"},
	} {
		if part.n > 0 {
			parts = append(parts, strings.Replace(part.text, "%d", fmt.Sprint(part.n), 1))
		}
	}
	if len(parts) == 0 {
		return "no object changes"
	}
	return strings.Join(parts, ", ")
}

func (t *planText) onlyRemoves() bool {
	return t.plan.Rules == nil && !slices.ContainsFunc(t.plan.Services, func(s preview.Service) bool { return !s.Removal })
}

// removalSummary returns the last line if the plan contains only removals.
func (t *planText) removalSummary() string {
	p := t.plan
	parts := []string{fmt.Sprintf("%s removed, %d left in place", entities.Count(p.Totals.Removed, "object"), p.Totals.Orphaned)}
	if p.Totals.Refused > 0 {
		parts = append(parts, fmt.Sprintf("%d refused", p.Totals.Refused))
	}
	if p.Unseen > 0 {
		parts = append(parts, entities.Count(p.Unseen, "channel")+" deleted without a preview")
	}
	if p.Failed > 0 {
		parts = append(parts, entities.Count(p.Failed, "channel")+" could not be planned")
	}
	return strings.Join(parts, ", ")
}

func countChanges(n int) string {
	if n == 1 {
		return "1 object changes"
	}
	return entities.Count(n, "object") + " change"
}
