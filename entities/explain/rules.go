package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Rules describes the rules of an installation, one per line: who has which permissions, how callers prove their identity, and the baseline.
func Rules(r entities.Rules) (lines []string) {
	if r.Board != "" {
		lines = append(lines, "board: "+r.Board)
	}
	if i := r.Identity; i != nil {
		text := "identity: tokens of " + i.Issuer + " for " + i.Audience
		if len(i.Required) > 0 {
			text += ", required to " + strings.Join(i.Required, ", ")
		}
		if len(i.Bound) > 0 {
			text += ", issued for that one act to " + strings.Join(i.Bound, ", ")
		}
		lines = append(lines, text)
	}
	for _, g := range r.Grants {
		where := "everything and every runtime"
		if slices.Equal(g.Verbs, []string{protocol.Publish}) {
			where = "any new application"
		}
		if slices.Equal(g.Verbs, []string{protocol.PublishLibrary}) {
			where = "any library"
		}
		if len(g.Channels) > 0 {
			where = strings.Join(g.Channels, ", ")
		}
		lines = append(lines, fmt.Sprintf("%s of %s: %s", strings.Join(g.Verbs, ", "), where, strings.Join(g.To, ", ")))
	}
	lines = append(lines, baselineText(r.Baseline)...)
	if len(lines) == 0 {
		return []string{"nothing is restricted"}
	}
	return lines
}

// baselineText lists, one per line, what every application gets.
func baselineText(b *entities.Baseline) (lines []string) {
	if b == nil {
		return nil
	}
	for _, c := range b.Checks {
		lines = append(lines, fmt.Sprintf("%s (%s)%s", c.ID, c.Kind, whereText(c.Where)))
	}
	for _, a := range b.Approvals {
		by := "anyone"
		if len(a.Approvers) > 0 {
			by = strings.Join(a.Approvers, ", ")
		}
		text := fmt.Sprintf("%s from %d of %s", a.ID, a.MinApprovers, by)
		if a.NotReleaser {
			text += " except the releaser"
		}
		lines = append(lines, text+whereText(a.Where))
	}
	if len(b.Bypass) > 0 {
		lines = append(lines, "bypassed by "+strings.Join(b.Bypass, ", "))
	}
	if len(b.Required) > 0 {
		lines = append(lines, "proof of identity required in every application to "+strings.Join(b.Required, ", "))
	}
	if n := b.Limits.Services; n > 0 {
		lines = append(lines, fmt.Sprintf("at most %d services in an application", n))
	}
	if n := b.Limits.Channels; n > 0 {
		lines = append(lines, fmt.Sprintf("at most %d release channels in an application", n))
	}
	if len(b.Limits.RuntimesOf) > 0 {
		lines = append(lines, "only runtimes of "+strings.Join(b.Limits.RuntimesOf, ", "))
	}
	for n := range lines {
		lines[n] = "baseline: " + lines[n]
	}
	return lines
}

// whereText names the channels that a rule covers.
func whereText(w entities.ChannelSelector) string {
	text := ""
	for _, part := range []struct {
		what  string
		names []string
	}{{" in channels ", w.Channels}, {" on runtimes ", w.Runtimes}, {" of applications ", w.Applications}} {
		if len(part.names) > 0 {
			text += part.what + strings.Join(part.names, ", ")
		}
	}
	return cmp.Or(text, " everywhere")
}
