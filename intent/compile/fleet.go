package compile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// This file resolves fleets: release channels whose services have an instance on each runtime that a selector matches.

// fleet checks the selectors of a channel, and records the matching runtimes by name.
func (c *compiler) fleet(app *config.Document[config.Application], path string, channel config.ReleaseChannel) {
	first := map[string]string{}
	for i, ref := range channel.Runtimes {
		at := strict.Index(path+".runtimes", i)
		if !c.checkSelector(app, at, ref) {
			continue
		}
		for _, known := range c.matching(app, at, ref.Selector) {
			if earlier, twice := first[known.Name]; twice {
				c.report(app.Decoder, at+".selector", strict.Fault{
					Code: "duplicate-name", Message: fmt.Sprintf("runtime %q is already in the fleet, by the selector at %s", known.Name, earlier), Expected: "selectors that do not match the same runtime",
				})
				continue
			}
			first[known.Name] = app.Location(at + ".selector")
			c.channelRuntime(app, channel, at, ref, known)
		}
	}
	slices.SortFunc(c.refs[string(channel.Name)], func(a, b runtimeRef) int { return cmp.Compare(a.name, b.name) })
}

// checkSelector reports whether an entry of a fleet is a resolvable selector, and reports its problems.
func (c *compiler) checkSelector(app *config.Document[config.Application], at string, ref config.RuntimeRef) bool {
	switch {
	case ref.Selector == nil && !app.Has(at+".selector"), ref.Name != "":
		c.report(app.Decoder, at, strict.Fault{
			Code: "one-of", Message: "a release channel has either a fleet of runtimes by label, or runtimes by name, of which each service uses one", Expected: `either "selector" alone in all of them, or "name"`,
		})
		return false
	case app.Faulty(at + ".selector"):
		return false
	case len(ref.Selector) == 0:
		c.report(app.Decoder, at+".selector", strict.Fault{Code: "no-match", Message: "the selector is empty", Expected: "at least one label"})
		return false
	case ref.MovedFrom != nil:
		c.report(app.Decoder, at+".movedFrom", strict.Fault{Code: "one-of", Message: "instances of a fleet do not move: each belongs to its runtime", Expected: `no "movedFrom" with "selector"`})
		return false
	}
	return true
}

// matching returns the runtimes that match labels, by name. It ignores runtimes whose labels do not count.
func (c *compiler) matching(app *config.Document[config.Application], at string, selector map[string]string) []entities.RuntimeDefinition {
	var found []entities.RuntimeDefinition
	var labels []string
	matched := false
	for _, name := range strict.Keys(c.runtimes) {
		known := c.runtimes[name]
		if !c.trustsLabels(app, known) {
			continue
		}
		for _, key := range strict.Keys(known.Labels) {
			labels = append(labels, key+"="+known.Labels[key])
		}
		if !matches(selector, known.Labels) {
			continue
		}
		matched = true
		if name == entities.OnlyInstance {
			c.report(app.Decoder, at+".selector", strict.Fault{
				Code: "bad-name", Message: fmt.Sprintf("runtime %q matches, and this name is reserved for the instance of a channel without a fleet", name), Expected: "another name for the runtime",
			})
			continue
		}
		found = append(found, known)
	}
	if !matched && !c.partial && !c.invalidRuntimeName {
		slices.Sort(labels)
		wanted := selectorText(selector)
		fault := strict.Unknown(UnknownRuntime, "no runtime that this application may use has the labels "+wanted, wanted, slices.Compact(labels))
		if len(labels) == 0 {
			fault.Expected = "a Runtime with these labels, of this application or of one in limits.runtimesOf of the installation"
		}
		c.report(app.Decoder, at+".selector", fault)
	}
	return found
}

// trustsLabels reports whether a fleet may select a runtime by its labels. Either the runtime is declared here, or the installation
// lists its owner as a provider of shared runtimes and the owner allows this application. The labels of other applications' runtimes
// have no effect.
func (c *compiler) trustsLabels(app *config.Document[config.Application], known entities.RuntimeDefinition) bool {
	if known.Owner == "" {
		return true
	}
	own := known.Owner == string(app.Spec.Name) // published earlier and no longer declared
	return !own && slices.Contains(c.config.Options.RuntimesOf, known.Owner) && known.DenialReason(string(app.Spec.Name), nil) == ""
}
