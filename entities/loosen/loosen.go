// Package loosen reports which requirements a new configuration of a service relaxes, compared with the one in force. Rules take effect at
// once, for waiting releases too. So the publisher and the readers of the history have to see each relaxation (G2). The package compares
// values as well as names: a raised limit, a dropped freeze. Two values without an order, such as two queries, count as a possible
// relaxation. The package decides nothing. It imports declarations only.
package loosen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/order"
)

// Definitions returns the definitions of checks and extensions by digest. A nil function knows none.
type Definitions struct {
	Check     func(digest string) *entities.CheckDefinition
	Extension func(digest string) *entities.ExtensionDefinition
}

// Rules lists the relaxations of a service, channel by channel. It follows renamed channels. Relaxations that apply to all channels come
// last, with an empty channel. A new or removed channel relaxes nothing.
func Rules(before, after *entities.Spec, of Definitions) []entities.Loosening {
	var out []entities.Loosening
	if before == nil || after == nil || len(after.Channels) == 0 {
		return nil
	}
	before = before.WithChannelNames(entities.RenamedChannels(before, after))
	others := entities.RenamedServices(before, after)
	for n := range after.Channels {
		now := &after.Channels[n]
		old, ok := before.Channel(now.Name)
		if !ok {
			continue
		}
		for _, text := range slices.Concat(conditions(&old, now), checks(&old, now, of, others), extensions(&old, now, of), applies(before, after, &old, now)) {
			out = append(out, entities.Loosening{Channel: now.Name, Text: text})
		}
	}
	if before.GatedRollback && !after.GatedRollback {
		out = append(out, entities.Loosening{Text: "a manual rollback skips the gates"})
	}
	if now, _, ok := order.CompareVersions(after.NoRollbackBelow, before.NoRollbackBelow); before.NoRollbackBelow != "" && (!ok || now < 0) {
		out = append(out, entities.Loosening{Text: "a rollback may go below " + before.NoRollbackBelow})
	}
	if before.Maestro.HoldUntil != "" && after.Maestro.HoldUntil == "" {
		out = append(out, entities.Loosening{Text: "no channel is held for its release"})
	}
	for _, text := range append(grants(before.Grants, after.Grants, after.ChannelNames()), identity(before.Identity, after.Identity)...) {
		out = append(out, entities.Loosening{Text: text})
	}
	return out
}

func conditions(old, now *entities.ChannelSpec) []string {
	var out []string
	for _, o := range old.Conditions {
		if o.Kind.IsMarker() {
			continue
		}
		at := slices.IndexFunc(now.Conditions, func(n entities.Condition) bool { return n.ID == o.ID })
		if at < 0 {
			out = append(out, "no "+o.ID)
			continue
		}
		n := &now.Conditions[at]
		if n.MinApprovers < o.MinApprovers {
			out = append(out, fmt.Sprintf("%s from %d instead of %d", o.ID, n.MinApprovers, o.MinApprovers))
		}
		if o.Kind == entities.ManualApproval && len(o.Approvers) > 0 {
			if len(n.Approvers) == 0 {
				out = append(out, o.ID+" from any caller")
			} else if more := difference(n.Approvers, o.Approvers); len(more) > 0 {
				out = append(out, o.ID+" from "+strings.Join(more, ", ")+", too")
			}
		}
		if o.NotReleaser && !n.NotReleaser {
			out = append(out, o.ID+" from the person who released it, too")
		}
		if removed := difference(o.Channels, n.Channels); len(removed) > 0 {
			out = append(out, o.ID+" without "+strings.Join(removed, ", "))
		}
		if n.For < o.For {
			out = append(out, fmt.Sprintf("%s %s instead of %s", o.ID, durationText(n.For), durationText(o.For)))
		}
		if o.Kind == entities.ChannelHealthy && n.Kind != o.Kind {
			out = append(out, o.ID+" without requiring current health")
		}
	}
	return out
}

// durationText describes how long ago a release must have succeeded.
func durationText(d time.Duration) string {
	if d == 0 {
		return "at any time"
	}
	return "for " + entities.Length(d)
}

// checks compares the checks of a channel. Dependencies on other services are compared by their new names (others).
func checks(old, now *entities.ChannelSpec, of Definitions, others map[string]string) []string {
	var out []string
	for i := range old.Checks {
		o := old.Checks[i]
		o.ID = o.IDIn(others)
		at := slices.IndexFunc(now.Checks, func(n entities.Check) bool { return n.ID == o.ID })
		if at < 0 {
			if o.Kind != entities.CheckSelection { // compared as part of the policy
				out = append(out, "no "+o.ID)
			}
			continue
		}
		n := &now.Checks[at]
		for _, text := range append(stages(&o, n), definition(&o, n, of, others)...) {
			out = append(out, o.ID+": "+text)
		}
	}
	return out
}

// stages compares the stages at which a check runs.
func stages(old, now *entities.Check) []string {
	var out []string
	for _, o := range old.At {
		switch n := now.AtStage(o.Stage); {
		case n == nil:
			out = append(out, "not at "+string(o.Stage))
		case o.Stage == entities.Postcondition:
			out = append(out, textIf(n.For > o.For, fmt.Sprintf("it may take %s instead of %s to pass", n.For, o.For))...)
		case o.Fails && !n.Fails:
			out = append(out, "at "+string(o.Stage)+" it blocks instead of failing")
		case n.For < o.For || n.Delay+n.For < o.Delay+o.For:
			out = append(out, fmt.Sprintf("watches for %s instead of %s", n.Delay+n.For, o.Delay+o.For))
		case n.Delay > o.Delay:
			out = append(out, fmt.Sprintf("watches from %s on instead of %s", n.Delay, o.Delay))
		}
	}
	if old.Repairs && !now.Repairs {
		out = append(out, "repairs do not wait for it")
	}
	return out
}

func definition(old, now *entities.Check, of Definitions, others map[string]string) []string {
	if old.Definition == now.Definition {
		return nil
	}
	if old.Kind != now.Kind {
		return []string{fmt.Sprintf("evaluated by %s instead of %s", now.Kind, old.Kind)}
	}
	if of.Check == nil {
		return nil
	}
	o, n := of.Check(old.Definition), of.Check(now.Definition)
	if o == nil || n == nil {
		return []string{"evaluated differently; the previous definition is not known any more"}
	}
	if o.Dependency != nil {
		was, on := *o, *o.Dependency
		on.Service = entities.NameIn(others, on.Service)
		was.Dependency, o = &on, &was
	}
	return values(now.Kind, o, n)
}

func extensions(old, now *entities.ChannelSpec, of Definitions) []string {
	var out []string
	for _, o := range old.Extensions {
		at := slices.IndexFunc(now.Extensions, func(n entities.Extension) bool { return n.Name == o.Name })
		if at < 0 {
			out = append(out, "no extension/"+o.Name)
			continue
		}
		n := &now.Extensions[at]
		switch {
		case o.Stage != n.Stage:
			out = append(out, fmt.Sprintf("extension/%s at %s instead of %s", o.Name, n.Stage, o.Stage))
		case of.Extension != nil && o.Definition != n.Definition && runsDifferently(of.Extension(o.Definition), of.Extension(n.Definition)):
			out = append(out, "extension/"+o.Name+" runs something else")
		}
		if o.Every > 0 && (n.Every > o.Every || n.Every == 0) {
			out = append(out, fmt.Sprintf("extension/%s %s instead of %s", o.Name, intervalText(n.Every), intervalText(o.Every)))
		}
	}
	return out
}

// intervalText describes how often an extension runs.
func intervalText(every time.Duration) string {
	if every == 0 {
		return "once"
	}
	return "every " + entities.Length(every)
}

func runsDifferently(o, n *entities.ExtensionDefinition) bool {
	return o == nil || n == nil || differ(o.Command, n.Command) || differ(o.Env, n.Env) || differ(o.Job, n.Job) || differ(o.Task, n.Task)
}

// applies compares what follows a release, and the checks before each apply.
func applies(before, after *entities.Spec, old, now *entities.ChannelSpec) []string {
	var out []string
	if old.Report != "" && now.Report == "" {
		out = append(out, "Converge applies instead of only reporting")
	}
	if now.NoRollback && !old.NoRollback {
		out = append(out, "failed releases are not rolled back")
	}
	if old.Rollout != nil && old.Rollout.String() != now.Rollout.String() { // rollout policies have no order
		out = append(out, fmt.Sprintf("releases go to %s instead of %s", now.Rollout, old.Rollout))
	}
	for _, o := range old.Instances {
		n, declared := after.Instance(now.ID(o))
		text := fmt.Sprintf("applies on %s need no approval", n.Runtime)
		if declared && before.Runtime(o.Runtime).ApproveApplies && !after.Runtime(n.Runtime).ApproveApplies && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// grants compares permissions. A verb that no grant names is free for all.
func grants(old, now []entities.Grant, channels []string) []string {
	var out []string
	for _, verb := range verbs(slices.Concat(old, now)) {
		if verb == pinApplication && !slices.Contains(verbs(old), verb) { // until now the grants of pin decided
			old = append(slices.Clip(old), asVerb(old, "pin", verb)...)
		}
		if _, restricted := granted(old, verb, ""); !restricted {
			continue
		}
		what := strings.ReplaceAll(verb, "*", "do what no other grant names")
		if _, restrictedNow := granted(now, verb, ""); !restrictedNow {
			out = append(out, "any caller may "+what)
			continue
		}
		inAll := newPrincipals(old, now, verb, "")
		if len(inAll) > 0 {
			out = append(out, strings.Join(inAll, ", ")+" may "+what)
		}
		for _, c := range channels {
			if inChannel := difference(newPrincipals(old, now, verb, c), inAll); len(inChannel) > 0 {
				out = append(out, strings.Join(inChannel, ", ")+" may "+what+entities.InChannel(c))
			}
		}
	}
	return out
}

// newPrincipals returns the principals that newly get a verb.
// pinApplication is the verb of its own for pinning a whole application. Without a grant that names it, the grants of pin decide.
const pinApplication = "pinApplication"

// asVerb returns the grants of a verb, as grants of another one.
func asVerb(grants []entities.Grant, verb, as string) (out []entities.Grant) {
	for _, g := range grants {
		if slices.Contains(g.Verbs, verb) {
			g.Verbs = []string{as}
			out = append(out, g)
		}
	}
	return out
}

func newPrincipals(old, now []entities.Grant, verb, channel string) []string {
	before, _ := granted(old, verb, channel)
	after, _ := granted(now, verb, channel)
	return difference(after, before)
}

// verbs returns the verbs that grants name, sorted.
func verbs(grants []entities.Grant) []string {
	var out []string
	for _, g := range grants {
		out = append(out, difference(g.Verbs, out)...)
	}
	return out
}

// granted lists who may use a verb in a channel. An empty channel means all channels. restricted is true if a grant names the verb.
func granted(grants []entities.Grant, verb, channel string) (to []string, restricted bool) {
	for _, g := range grants {
		if !slices.Contains(g.Verbs, verb) && !slices.Contains(g.Verbs, "*") {
			continue
		}
		restricted = true
		if len(g.Channels) == 0 || slices.Contains(g.Channels, channel) {
			to = append(to, difference(g.To, to)...)
		}
	}
	return to, restricted
}

func identity(old, now *entities.Identity) []string {
	switch {
	case old == nil:
		return nil
	case now == nil:
		return []string{"identities are not verified"}
	}
	var out []string
	a, b := *old, *now
	a.Required, b.Required = nil, nil
	a.Bound, b.Bound, a.BoundExcept, b.BoundExcept = nil, nil, nil, nil
	if differ(a, b) {
		out = append(out, "identities are verified differently, by "+now.Issuer)
	}
	if !slices.Contains(now.Bound, "*") {
		for _, verb := range difference(old.Bound, now.Bound) {
			out = append(out, strings.ReplaceAll(verb+" requires no token for the one act", "* requires", "every other verb requires"))
		}
	}
	for _, name := range difference(now.BoundExcept, old.BoundExcept) {
		out = append(out, name+" needs no token for the one act")
	}
	if slices.Contains(now.Required, "*") {
		return out
	}
	for _, verb := range difference(old.Required, now.Required) {
		out = append(out, strings.ReplaceAll(verb+" requires no proven identity", "* requires", "every other verb requires"))
	}
	return out
}

// difference returns the elements of a that are not in b.
func difference(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

func differ(a, b any) bool { return entities.DigestOf(a) != entities.DigestOf(b) }
