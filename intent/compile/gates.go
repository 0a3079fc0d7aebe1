package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// defineGates checks the protections and extensions of the application and its channels, once for all services.
func (c *compiler) defineGates(app *config.Document[config.Application]) {
	checkUses(c, protectionUses(app.Decoder, "protections", app.Spec.Protections), c.checkProtection)
	checkUses(c, extensionUses(app.Decoder, "extensions", app.Spec.Extensions), c.checkExtension)
	for i, channel := range app.Spec.ReleaseChannels {
		at := strict.Index("releaseChannels", i)
		checkUses(c, protectionUses(app.Decoder, at+".protections", channel.Protections), c.checkProtection)
		checkUses(c, postconditions(app.Decoder, at+".postconditions", channel.Postconditions), c.checkProtection)
		checkUses(c, extensionUses(app.Decoder, at+".extensions", channel.Extensions), c.checkExtension)
	}
}

// ownGates checks the protections and extensions of the service itself, once for all channels.
func (s *serviceCompiler) ownGates() {
	checkUses(s.compiler, protectionUses(s.Decoder, "protections", s.Spec.Protections), s.checkProtection)
	checkUses(s.compiler, postconditions(s.Decoder, "postconditions", s.Spec.Postconditions), s.checkProtection)
	checkUses(s.compiler, extensionUses(s.Decoder, "extensions", s.Spec.Extensions), s.checkExtension)
	for i, o := range s.Spec.PerReleaseChannel {
		at := strict.Index("perReleaseChannel", i)
		checkUses(s.compiler, protectionUses(s.Decoder, at+".protections", o.Protections), s.checkProtection)
		checkUses(s.compiler, postconditions(s.Decoder, at+".postconditions", o.Postconditions), s.checkProtection)
		checkUses(s.compiler, extensionUses(s.Decoder, at+".extensions", o.Extensions), s.checkExtension)
	}
}

// gates compiles the gates of a release in one channel: conditions on other services, then the protections and extensions of
// application, channel and service.
func (s *serviceCompiler) gates(in *substitute.Scope, refs []runtimeRef, d *draft, into *incarnation.InstanceDoc) {
	app := s.config.Application
	protections := protectionUses(app.Decoder, "protections", app.Spec.Protections)
	if i := slices.IndexFunc(app.Spec.ReleaseChannels, func(r config.ReleaseChannel) bool { return string(r.Name) == in.Channel }); i >= 0 {
		at, channel := strict.Index("releaseChannels", i), app.Spec.ReleaseChannels[i]
		protections = append(protections, protectionUses(app.Decoder, at+".protections", channel.Protections)...)
		protections = append(protections, postconditions(app.Decoder, at+".postconditions", channel.Postconditions)...)
		into.Checks = s.selection(in, at+".rollout", channel.Rollout, refs)
	}
	var ref runtimeRef // runs checks and extensions of the channel; in a fleet, that of the first instance
	if len(refs) > 0 {
		ref = refs[0]
	}
	into.Checks = slices.Concat(s.dependencyChecks(in), s.configRolloutCheck(in), s.planGate(in, d), s.checks(in, ref, d.deadline, append(protections, d.protections...)), into.Checks)
	into.Extensions = s.compileExtensions(in, ref, s.extensionsIn(in.Channel, d))
	into.NoRollback = d.noRollback
	for _, ref := range refs {
		s.checkRemovable(in.Channel, ref)
		s.compiler.checkRuntimeRemovable(app, in.Channel, ref)
	}
}

// extensionsIn returns the extensions of application, channel and service.
func (s *serviceCompiler) extensionsIn(channel string, d *draft) []extensionUse {
	app := s.config.Application
	all := extensionUses(app.Decoder, "extensions", app.Spec.Extensions)
	for i, c := range app.Spec.ReleaseChannels {
		if string(c.Name) == channel {
			all = append(all, extensionUses(app.Decoder, strict.Index("releaseChannels", i)+".extensions", c.Extensions)...)
		}
	}
	return slices.Concat(all, d.extensions, s.setupUses())
}

// checkRemovable rejects a service with a removal policy on a runtime that cannot remove.
func (s *serviceCompiler) checkRemovable(channel string, ref runtimeRef) {
	runtime, known := s.compiler.runtimes[ref.name]
	if s.Spec.OnDelete != "remove" || !known || incarnation.CanRemove(runtime) {
		return
	}
	s.reportIn(s.Decoder, "onDelete", channel, substitute.ScopedFault{InChannel: true, Fault: cannotRemove(runtime)})
}

func cannotRemove(runtime entities.RuntimeDefinition) strict.Fault {
	if runtime.ReadOnly {
		return strict.Fault{Code: "bad-value", Message: fmt.Sprintf("runtime %q has access: read, so nothing is removed there", runtime.Name), Expected: `"orphan"`}
	}
	return strict.Fault{Code: "bad-value", Message: fmt.Sprintf("runtime %q cannot remove anything", runtime.Name), Expected: `"custom.remove" on the runtime, or "orphan" here`}
}

// checkRuntimeRemovable rejects a channel with a removal policy on a runtime that cannot remove.
func (c *compiler) checkRuntimeRemovable(app *config.Document[config.Application], channel string, ref runtimeRef) {
	i := slices.IndexFunc(app.Spec.ReleaseChannels, func(r config.ReleaseChannel) bool { return string(r.Name) == channel })
	runtime, known := c.runtimes[ref.name]
	if i < 0 || app.Spec.ReleaseChannels[i].OnDelete != "remove" || !known || incarnation.CanRemove(runtime) {
		return
	}
	// It is reported once for all services.
	c.reportIn(app.Decoder, strict.Index("releaseChannels", i)+".onDelete", channel, substitute.ScopedFault{Fault: cannotRemove(runtime)})
}

// definitions are the definitions of checks and extensions, by the digests that an incarnation and the store use. Their directories are
// relative to that of the application, so the result does not depend on the machine.
type definitions struct {
	checks     map[string]entities.CheckDefinition
	extensions map[string]entities.ExtensionDefinition
}

// Checks returns the definitions of the checks of a service, each once and in order. They are put into the store before its spec.
func (c *Compiled) Checks(service string) []entities.CheckDefinition {
	var all []entities.CheckDefinition
	for _, i := range c.instances(service) {
		for _, check := range i.Checks {
			all = append(all, c.definitions.checks[check.Definition])
		}
	}
	return all
}

// Extensions returns the definitions of the extensions of a service, each once and in order. They are put into the store before its
// spec.
func (c *Compiled) Extensions(service string) []entities.ExtensionDefinition {
	var all []entities.ExtensionDefinition
	seen := map[string]bool{}
	for _, i := range c.instances(service) {
		for _, e := range i.Extensions {
			if !seen[e.Definition] {
				all = append(all, c.definitions.extensions[e.Definition])
			}
			seen[e.Definition] = true
		}
	}
	return all
}

func (c *Compiled) instances(service string) []incarnation.InstanceDoc {
	if doc, ok := c.Incarnation.Service(service); ok {
		return doc.Channels
	}
	return nil
}

// usePosition is the position and the id of a use of a protection or an extension.
type usePosition struct {
	d            *strict.Decoder
	at, kind, id string
}

func newUsePosition(d *strict.Decoder, at, what string, name, ref config.Name) usePosition {
	return usePosition{d, at, what, cmp.Or(string(name), string(ref))}
}

func (p usePosition) position() usePosition { return p }

// gateUse is a protectionUse or an extensionUse.
type gateUse interface{ position() usePosition }

// indexOfUse returns the index of the use with an id; -1: none.
func indexOfUse[U gateUse](uses []U, id string) int {
	return slices.IndexFunc(uses, func(o U) bool { return o.position().id == id })
}

// checkUses checks the uses in one list, once for all services.
func checkUses[U gateUse](c *compiler, uses []U, check func(U)) {
	for i, use := range uses {
		check(use)
		if p := use.position(); p.id != "" && indexOfUse(uses[:i], p.id) >= 0 {
			c.report(p.d, p.at, strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("two %ss here are named %q", p.kind, p.id), Expected: `another "name" for one of them`})
		}
	}
}

// distinct removes uses with an id that already exists in the channel. It rejects them if the earlier use is in another list; duplicates
// in one list are already reported.
func distinct[U gateUse](s *serviceCompiler, in *substitute.Scope, uses []U) []U {
	var all []U
	for _, use := range uses {
		p := use.position()
		at := indexOfUse(all, p.id)
		if at < 0 {
			all = append(all, use)
			continue
		}
		if earlier := all[at].position(); earlier.d != p.d || useList(earlier.at) != useList(p.at) {
			s.reportIn(p.d, p.at, in.Channel, substitute.ScopedFault{InChannel: true, Fault: strict.Fault{
				Code: "duplicate-name", Message: fmt.Sprintf("service %s has %s %q from %s, too,", in.Service, article(p.kind), p.id, earlier.d.Location(earlier.at)),
				Expected: `another "name" for one of them`,
			}})
		}
	}
	return all
}

func article(what string) string {
	if what == "extension" {
		return "an " + what
	}
	return "a " + what
}

// useList returns the path of the list that contains an item.
func useList(at string) string { return at[:strings.LastIndex(at, "[")] }

// checkRef checks a reference to a document by its name.
func checkRef[D interface {
	comparable
	declaration() declaration
}](c *compiler, documents map[string]D, p usePosition, ref config.Name, values map[config.ParameterName]config.Literal) {
	var none D
	if doc := documents[string(ref)]; doc != none {
		c.checkReference(doc.declaration(), reference{p.d, p.at, values})
	} else if !c.partial && !p.d.Faulty(p.at+".ref") {
		c.report(p.d, p.at+".ref", unknownDocument(p.kind, string(ref), strict.Keys(documents)))
	}
}

func unknownDocument(what, name string, known []string) strict.Fault {
	fault := strict.Unknown("unknown-"+what, fmt.Sprintf("there is no %s %q", what, name), name, known)
	if len(known) == 0 {
		fault.Expected = "a document of that kind and name"
	}
	return fault
}

// sortTopologically sorts items topologically, and otherwise keeps their order. If there is a cycle, ordered is nil and cycle lists its
// names; the first name is repeated at the end.
func sortTopologically[T any](all []T, name func(T) string, dependencies func(T) []string) (ordered []T, cycle []string) {
	done := map[string]bool{}
	unresolved := func(names []string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return done[name] })
	}
	for len(ordered) < len(all) {
		next := slices.IndexFunc(all, func(v T) bool { return !done[name(v)] && len(unresolved(dependencies(v))) == 0 })
		if next < 0 {
			break
		}
		done[name(all[next])] = true
		ordered = append(ordered, all[next])
	}
	if len(ordered) == len(all) {
		return ordered, nil
	}
	at := slices.IndexFunc(all, func(v T) bool { return !done[name(v)] })
	for { // follow the dependencies until one repeats
		from := name(all[at])
		if i := slices.Index(cycle, from); i >= 0 {
			return nil, append(cycle[i:], from)
		}
		cycle = append(cycle, from)
		next := unresolved(dependencies(all[at]))[0]
		at = slices.IndexFunc(all, func(v T) bool { return name(v) == next })
	}
}
