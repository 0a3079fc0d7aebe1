package compile

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// defineGates checks the protections and extensions of the application and its channels, once for all
// services.
func (c *compiler) defineGates(app *config.Document[config.Application]) {
	c.checkProtections(protectionUses(app.Decoder, "protections", app.Spec.Protections))
	for i, channel := range app.Spec.ReleaseChannels {
		at := strict.Index("releaseChannels", i)
		c.checkProtections(protectionUses(app.Decoder, at+".protections", channel.Protections))
		c.checkExtensions(extensionUses(app.Decoder, at+".extensions", channel.Extensions))
	}
}

// ownGates checks the protections and extensions of the service itself, once for all channels.
func (s *serviceCompiler) ownGates() {
	s.checkProtections(protectionUses(s.Decoder, "protections", s.Spec.Protections))
	s.checkExtensions(extensionUses(s.Decoder, "extensions", s.Spec.Extensions))
	for i, o := range s.Spec.PerReleaseChannel {
		at := strict.Index("perReleaseChannel", i)
		s.checkProtections(protectionUses(s.Decoder, at+".protections", o.Protections))
		s.checkExtensions(extensionUses(s.Decoder, at+".extensions", o.Extensions))
	}
}

// gates compiles what stands between a release and its target in one channel: conditions on other
// services, then the protections and extensions of application, channel and service.
func (s *serviceCompiler) gates(in *substitute.Scope, ref runtimeRef, d *draft, into *incarnation.Instance) {
	app := s.config.Application
	protections := protectionUses(app.Decoder, "protections", app.Spec.Protections)
	var extensions []extensionUse
	if i := slices.IndexFunc(app.Spec.ReleaseChannels, func(r config.ReleaseChannel) bool { return string(r.Name) == in.Channel }); i >= 0 {
		at, channel := strict.Index("releaseChannels", i), app.Spec.ReleaseChannels[i]
		protections = append(protections, protectionUses(app.Decoder, at+".protections", channel.Protections)...)
		extensions = extensionUses(app.Decoder, at+".extensions", channel.Extensions)
	}
	into.Checks = append(s.dependencyChecks(in), s.checks(in, append(protections, d.protections...))...)
	into.Extensions = s.runs(in, ref, append(extensions, d.extensions...))
	into.NoRollback = d.noRollback
	s.removable(in.Channel, ref)
}

// removable refuses a service that shall be removed where nothing can be.
func (s *serviceCompiler) removable(channel string, ref runtimeRef) {
	runtime, known := s.compiler.runtimes[ref.name]
	if s.Spec.OnDelete != "remove" || !known || incarnation.CanRemove(runtime) {
		return
	}
	s.reportIn(s.Decoder, "onDelete", channel, substitute.Trouble{InChannel: true, Fault: strict.Fault{
		Code: "bad-value", Message: fmt.Sprintf("runtime %q cannot remove anything", ref.name), Expected: `"custom.remove" on the runtime, or "orphan" here`,
	}})
}

// definitions are how checks are judged and what extensions run, by the digests by which an incarnation
// names them. Their directories are relative, so that an incarnation is the same wherever it was
// compiled; what is stored and run has absolute ones.
type definitions struct {
	dir        string
	checks     map[string]entities.CheckDefinition
	extensions map[string]entities.ExtensionDefinition
}

func newDefinitions(dir string) definitions {
	return definitions{dir, map[string]entities.CheckDefinition{}, map[string]entities.ExtensionDefinition{}}
}

func (d definitions) check(digest string) entities.CheckDefinition {
	definition := d.checks[digest]
	if definition.Dir != "" {
		definition.Dir = filepath.Join(d.dir, filepath.FromSlash(definition.Dir))
	}
	return definition
}

func (d definitions) extension(digest string) entities.ExtensionDefinition {
	definition := d.extensions[digest]
	definition.Dir = filepath.Join(d.dir, filepath.FromSlash(definition.Dir))
	return definition
}

// inStore names definitions by the digests that they have in the store.
func (d definitions) inStore(spec entities.Spec) entities.Spec {
	for i, channel := range spec.Channels {
		channel.Checks, channel.Extensions = slices.Clone(channel.Checks), slices.Clone(channel.Extensions)
		for n, check := range channel.Checks {
			channel.Checks[n].Definition = entities.DigestOf(d.check(check.Definition))
		}
		for n, extension := range channel.Extensions {
			channel.Extensions[n].Definition = entities.DigestOf(d.extension(extension.Definition))
		}
		spec.Channels[i] = channel
	}
	return spec
}

// Checks returns how the checks of a service are judged, each once and in order. They are put into the
// store before its spec.
func (c *Compiled) Checks(service string) []entities.CheckDefinition {
	var all []entities.CheckDefinition
	for _, i := range c.instances(service) {
		for _, check := range i.Checks {
			all = append(all, c.definitions.check(check.Definition))
		}
	}
	return all
}

// Extensions returns what the extensions of a service run, each once and in order. They are put into
// the store before its spec.
func (c *Compiled) Extensions(service string) []entities.ExtensionDefinition {
	var all []entities.ExtensionDefinition
	seen := map[string]bool{}
	for _, i := range c.instances(service) {
		for _, e := range i.Extensions {
			if !seen[e.Definition] {
				all = append(all, c.definitions.extension(e.Definition))
			}
			seen[e.Definition] = true
		}
	}
	return all
}

func (c *Compiled) instances(service string) []incarnation.Instance {
	if doc, ok := c.Incarnation.Service(service); ok {
		return doc.Channels
	}
	return nil
}
