package compile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

var keyRE = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$`)

// defineChannels checks the release channels except for their conditions.
func (c *compiler) defineChannels(app *config.Document[config.Application]) {
	c.requireChannels(app)
	first := map[config.Name]string{}
	for i, channel := range app.Spec.ReleaseChannels {
		path := strict.Index("releaseChannels", i)
		c.plainMap(app.Decoder, path+".labels", "label", channel.Labels)
		c.plainMap(app.Decoder, path+".constants", "constant", channel.Constants)
		if channel.Name == "" {
			continue // already reported by the decoder
		}
		if place, twice := first[channel.Name]; twice {
			c.report(app.Decoder, path+".name", duplicate("release channel", channel.Name, place))
			continue
		}
		first[channel.Name] = app.Location(path + ".name")
		c.channels = append(c.channels, incarnation.Channel{
			Name: string(channel.Name), RenamedFrom: string(channel.RenamedFrom), Labels: channel.Labels, Constants: channel.Constants,
			NoRollback: isFalse(channel.AutoRollback), OnDelete: entities.OnDelete(channel.OnDelete), ReportOnly: channel.Enforcement == "report",
			Rollout: c.rollout(app, path+".rollout", channel.Rollout),
		})
		c.channelRuntimes(app, path, channel)
	}
	c.renamedChannels(app, first)
}

// requireChannels rejects an application without own or imported release channels.
func (c *compiler) requireChannels(app *config.Document[config.Application]) {
	switch given, imports := app.Has("releaseChannels"), app.Has("imports"); {
	case len(app.Spec.ReleaseChannels) > 0 || app.Faulty("releaseChannels"):
	case !given && !imports:
		c.report(app.Decoder, "releaseChannels", strict.Fault{Code: "missing-field", Message: `"releaseChannels" is missing`, Expected: "a list"})
	case given && !imports, imports && !c.partial:
		c.report(app.Decoder, "releaseChannels", strict.Fault{Code: "missing-field", Message: "there are no release channels", Expected: "at least one"})
	}
}

// renamedChannels checks the former names of channels. A former name must not be a current channel, and belongs to one channel only.
func (c *compiler) renamedChannels(app *config.Document[config.Application], declared map[config.Name]string) {
	from := map[config.Name]config.Name{}
	for i, channel := range app.Spec.ReleaseChannels {
		old := channel.RenamedFrom
		fault := strict.Fault{Code: "bad-value", Expected: "its former name, which nothing else has"}
		switch place, still := declared[old]; {
		case old == "":
			continue
		case old == channel.Name:
			fault.Message = fmt.Sprintf("release channel %q is renamed from itself", string(old))
		case still:
			fault.Message = fmt.Sprintf("release channel %q is still declared at %s", string(old), place)
		case from[old] != "":
			fault.Message = fmt.Sprintf("release channel %q is renamed from %q, too", string(from[old]), string(old))
		default:
			from[old] = channel.Name
			continue
		}
		c.report(app.Decoder, strict.Index("releaseChannels", i)+".renamedFrom", fault)
	}
}

func duplicate(what string, name config.Name, place string) strict.Fault {
	return strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("%s %q is already declared at %s", what, string(name), place), Expected: "another name"}
}

// uniqueByName returns the first document of each name of a kind. It rejects the others, and names both (D2).
func uniqueByName[T any](c *compiler, kind string, docs []*config.Document[T], name func(T) config.Name) []*config.Document[T] {
	var all []*config.Document[T]
	first := map[config.Name]*config.Document[T]{}
	for _, doc := range docs {
		n := name(doc.Spec)
		if earlier := first[n]; earlier != nil && n != "" {
			c.report(doc.Decoder, "name", duplicate(kind, n, earlier.Location("name")))
			continue
		}
		first[n] = doc
		all = append(all, doc)
	}
	return all
}

// plainMap checks labels and constants: valid keys, and values without substitutions.
func (c *compiler) plainMap(d *strict.Decoder, path, what string, entries map[string]string) {
	for _, key := range strict.Keys(entries) {
		at := strict.Key(path, key)
		if !keyRE.MatchString(key) || len(key) > 63 {
			c.report(d, at, strict.Fault{
				Code: "bad-name", Message: fmt.Sprintf("%q is not a valid name of a %s", strict.Clip(key), what),
				Expected: "letters, digits and . _ / - between them, at most 63",
			})
		}
		c.noSubstitution(d, at, "a "+what, entries[key])
	}
}

// noSubstitution rejects `${{` in texts that are not substituted.
func (c *compiler) noSubstitution(d *strict.Decoder, path, where, text string) {
	if config.HasSubstitution(text) {
		c.report(d, path, strict.Fault{
			Code: "no-substitution", Message: fmt.Sprintf("substitution is not supported in %s", where),
			Expected: `text without "${{"; a service's parameters and custom.env support it`,
		})
	}
}

// channelRuntimes checks the runtimes that a channel names or selects.
func (c *compiler) channelRuntimes(app *config.Document[config.Application], path string, channel config.ReleaseChannel) {
	if slices.ContainsFunc(channel.Runtimes, func(ref config.RuntimeRef) bool { return ref.Selector != nil }) {
		c.fleet(app, path, channel)
		return
	}
	seen := map[config.Name]bool{}
	for i, ref := range channel.Runtimes {
		at := strict.Index(path+".runtimes", i)
		if ref.Name == "" && !app.Has(at+".name") && !app.Faulty(at) {
			c.report(app.Decoder, at, strict.Fault{Code: "missing-field", Message: "no runtime is named", Expected: `"name" or "selector"`})
			continue
		}
		if seen[ref.Name] {
			c.report(app.Decoder, at+".name", strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("runtime %q is listed twice", ref.Name)})
			continue
		}
		seen[ref.Name] = true
		if known, ok := c.runtimes[string(ref.Name)]; ok {
			c.channelRuntime(app, channel, at, ref, known)
		} else if !c.partial && !c.invalidRuntimeName && ref.Name.Check() == nil {
			c.report(app.Decoder, at+".name", c.unknownRuntime(string(ref.Name)))
		}
	}
}

// channelRuntime checks and records one runtime of a channel.
func (c *compiler) channelRuntime(app *config.Document[config.Application], channel config.ReleaseChannel, at string, ref config.RuntimeRef, known entities.RuntimeDefinition) {
	if known.Kind == entities.RuntimeKubernetes && ref.Namespace == "" && !app.Faulty(at) {
		c.report(app.Decoder, at+".namespace", strict.Fault{
			Code: "missing-field", Message: fmt.Sprintf("runtime %q is a cluster, and no namespace is named", known.Name), Expected: "the namespace for objects of this release channel",
		})
	}
	c.checkRuntimeAllowed(app, at, ref, known)
	c.refs[string(channel.Name)] = append(c.refs[string(channel.Name)], runtimeRef{
		name: known.Name, namespace: ref.Namespace, path: at, account: ref.ServiceAccount, movedFrom: c.movedFrom(app, at, ref), selected: ref.Selector != nil,
	})
}

// checkRuntimeAllowed rejects a runtime that its owner does not allow, as far as that is known now. The worker checks again against the
// owner's rules at that time.
func (c *compiler) checkRuntimeAllowed(app *config.Document[config.Application], at string, ref config.RuntimeRef, runtime entities.RuntimeDefinition) {
	account := ref.ServiceAccount
	switch {
	case account == "" || app.Faulty(at+".serviceAccount"):
	case runtime.Kind != entities.RuntimeKubernetes:
		c.report(app.Decoder, at+".serviceAccount", strict.Fault{Code: "wrong-kind", Message: fmt.Sprintf("runtime %q is not a cluster", runtime.Name), Expected: "no service account"})
		return
	case !accountRE().MatchString(account):
		c.report(app.Decoder, at+".serviceAccount", strict.Fault{Code: "bad-name", Message: fmt.Sprintf("invalid service account %q", account), Expected: "its name, or NAMESPACE/NAME"})
		return
	}
	if runtime.Owner == "" { // defined in this configuration
		runtime.Owner = string(app.Spec.Name)
	}
	if runtime.Allow != nil && config.HasSubstitution(ref.Namespace) {
		allow := *runtime.Allow
		allow.Namespaces, runtime.Allow = nil, &allow
	}
	address := map[string]string{entities.AddressNamespace: ref.Namespace, entities.AddressServiceAccount: account}
	if refusal := runtime.DenialReason(string(app.Spec.Name), address); refusal != "" {
		c.report(app.Decoder, at, strict.Fault{Code: "not-allowed", Message: refusal, Expected: "what the owner of the runtime allows"})
	}
}

var accountRE = strict.Pattern(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/)?[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// movedFrom returns the previous runtime of the services; nil: none.
func (c *compiler) movedFrom(app *config.Document[config.Application], at string, ref config.RuntimeRef) *entities.MovedFrom {
	switch from := ref.MovedFrom; {
	case from == nil || from.Runtime == "": // already reported by the decoder
		return nil
	case from.Runtime == ref.Name:
		c.report(app.Decoder, at+".movedFrom.runtime", strict.Fault{
			Code: "bad-value", Message: fmt.Sprintf("runtime %q is the runtime that services move to", string(ref.Name)), Expected: "their previous runtime",
		})
		return nil
	default:
		return &entities.MovedFrom{Runtime: string(from.Runtime), Remove: from.Then == "remove"}
	}
}

// UnknownRuntime is the code of a problem: neither this configuration nor a known other one defines the runtime.
const UnknownRuntime = "unknown-runtime"

func (c *compiler) unknownRuntime(name string) strict.Fault {
	known := strict.Keys(c.runtimes)
	fault := strict.Unknown(UnknownRuntime, fmt.Sprintf("there is no runtime %q", name), name, known)
	if len(known) == 0 {
		fault.Expected = "a document of kind Runtime with that name"
	}
	return fault
}

// channelNames lists the channels in file order.
func (c *compiler) channelNames() []string {
	return strict.Map(c.channels, func(channel incarnation.Channel) string { return channel.Name })
}

func (c *compiler) unknownChannel(name config.Name, among []string) strict.Fault {
	if slices.Contains(c.channelNames(), string(name)) {
		return strict.Fault{Code: "unknown-channel", Message: fmt.Sprintf("the service is not deployed to release channel %q", string(name)), Expected: strict.OneOf(among)}
	}
	return strict.Unknown("unknown-channel", fmt.Sprintf("no release channel %q", string(name)), string(name), among)
}

func matches(selector, labels map[string]string) bool {
	for key, want := range selector {
		if has, ok := labels[key]; !ok || has != want {
			return false
		}
	}
	return true
}

// channelSelection is a pair of fields of which exactly one must be set, and the allowed channels.
type channelSelection struct {
	name     config.Name
	selector map[string]string
	among    []string
}

// selectChannels resolves a choice to channels.
func (c *compiler) selectChannels(d *strict.Decoder, path string, from channelSelection) []string {
	name, selector, among := from.name, from.selector, from.among
	byName, bySelector := d.Has(path+".releaseChannel"), d.Has(path+".selector")
	switch {
	case byName && bySelector:
		c.report(d, path, strict.Fault{Code: "one-of", Message: `"releaseChannel" and "selector" are both given`, Expected: "one of them"})
	case !byName && !bySelector:
		c.report(d, path, strict.Fault{Code: "one-of", Message: "no release channel is named", Expected: `"releaseChannel" or "selector"`})
	case byName && name.Check() != nil: // already reported by the decoder
	case byName && slices.Contains(among, string(name)):
		return []string{string(name)}
	case byName && !c.partial:
		c.report(d, path+".releaseChannel", c.unknownChannel(name, among))
	case bySelector && len(selector) == 0:
		c.report(d, path+".selector", strict.Fault{Code: "no-match", Message: "the selector is empty", Expected: "at least one label"})
	case bySelector:
		return c.matchingChannels(d, path+".selector", selector, among)
	}
	return nil
}

func (c *compiler) matchingChannels(d *strict.Decoder, path string, selector map[string]string, among []string) []string {
	var found []string
	for _, channel := range c.channels {
		if matches(selector, channel.Labels) && slices.Contains(among, channel.Name) {
			found = append(found, channel.Name)
		}
	}
	if len(found) == 0 && !c.partial {
		labels, wanted := c.labelsOf(among), selectorText(selector)
		c.report(d, path, strict.Unknown("no-match", "no release channel here has the labels "+wanted, wanted, labels))
	}
	return found
}

// labelsOf lists the labels that a selector can match.
func (c *compiler) labelsOf(among []string) []string {
	var all []string
	for _, channel := range c.channels {
		if !slices.Contains(among, channel.Name) {
			continue
		}
		for _, key := range strict.Keys(channel.Labels) {
			all = append(all, key+"="+channel.Labels[key])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// selectorText formats a selector as in the names of conditions: tier=prod,zone=eu.
func selectorText(selector map[string]string) string {
	return strings.Join(strict.Map(strict.Keys(selector), func(key string) string { return key + "=" + selector[key] }), ",")
}

// runtimesFor returns the runtimes of a channel for the service: all suitable runtimes of a fleet, otherwise one.
func (s *serviceCompiler) runtimesFor(channel string, d *draft) []runtimeRef {
	refs := s.refs[channel]
	if d.runtime.v == "" && len(refs) > 0 && refs[0].selected {
		if compatible := s.compatibleRuntimes(refs, d); len(compatible) > 0 {
			return compatible
		}
	}
	if ref, ok := s.runtimeFor(channel, d); ok {
		return []runtimeRef{ref}
	}
	return nil
}

// compatibleRuntimes filters the runtimes whose kind matches the service's configuration.
func (s *serviceCompiler) compatibleRuntimes(refs []runtimeRef, d *draft) []runtimeRef {
	return slices.DeleteFunc(slices.Clone(refs), func(ref runtimeRef) bool { return d.kindMismatch(s.runtimes[ref.name].Kind) != nil })
}

// runtimeFor returns the runtime of a channel for the service: the one that it names, or the only suitable one.
func (s *serviceCompiler) runtimeFor(channel string, d *draft) (runtimeRef, bool) {
	refs := s.refs[channel]
	if wanted := d.runtime.v; wanted != "" {
		if i := slices.IndexFunc(refs, func(ref runtimeRef) bool { return ref.name == wanted }); i >= 0 {
			return refs[i], s.supportsRuntime(channel, refs[i], d)
		}
		if !s.partial && !s.invalidRuntimeName && !s.Faulty(d.runtime.at) {
			s.reportIn(s.Decoder, d.runtime.at, channel, substitute.ScopedFault{InChannel: true, Fault: strict.Unknown(UnknownRuntime, fmt.Sprintf("there is no runtime %q", wanted), wanted, namesOf(refs))})
		}
		return runtimeRef{}, false
	}
	if len(refs) == 1 {
		return refs[0], s.supportsRuntime(channel, refs[0], d)
	}
	compatible := s.compatibleRuntimes(refs, d)
	if len(compatible) == 1 {
		return compatible[0], true
	}
	if s.partial || s.invalidRuntimeName || s.config.Application.Faulty("releaseChannels") || s.hasUnknownRuntime(channel) {
		return runtimeRef{}, false
	}
	fault := strict.Fault{Code: "no-runtime", Message: "no runtime can run this service", Expected: "a runtime there, or the service without this release channel"}
	if len(refs) > 0 {
		fault.Expected = fmt.Sprintf("one of kind %s there, or the service without this release channel", d.runtimeKind())
	}
	if len(compatible) > 1 {
		fault = strict.Fault{Code: "ambiguous-runtime", Message: "several runtimes can run this service", Expected: `"runtime" to be ` + strict.OneOf(namesOf(compatible))}
	}
	s.reportIn(s.Decoder, "runtime", channel, substitute.ScopedFault{InChannel: true, Fault: fault})
	return runtimeRef{}, false
}

func namesOf(refs []runtimeRef) []string {
	return strict.Map(refs, func(ref runtimeRef) string { return ref.name })
}

// supportsRuntime reports whether the service has configuration for the kind of the runtime.
func (s *serviceCompiler) supportsRuntime(channel string, ref runtimeRef, d *draft) bool {
	mismatch := d.kindMismatch(s.runtimes[ref.name].Kind)
	if mismatch == nil {
		return true
	}
	if s.Faulty("kubernetes") || s.Faulty("ecs") || s.Faulty("custom") || s.Faulty("perReleaseChannel") {
		return false
	}
	fault := mismatch.v
	fault.Message = fmt.Sprintf("runtime %q, of kind %s, %s", ref.name, s.runtimes[ref.name].Kind, fault.Message)
	s.reportIn(s.Decoder, mismatch.at, channel, substitute.ScopedFault{InChannel: true, Fault: fault})
	return false
}

// runtimeKind returns the runtime kind that the service is configured for.
func (d *draft) runtimeKind() entities.RuntimeKind {
	switch {
	case d.kubernetes != nil:
		return entities.RuntimeKubernetes
	case d.ecs != nil:
		return entities.RuntimeECS
	}
	return entities.RuntimeCustom
}

// kindMismatch returns why a service cannot run on runtimes of a kind, or nil. In-memory runtimes accept any service.
func (d *draft) kindMismatch(kind entities.RuntimeKind) *located[strict.Fault] {
	if kind == entities.RuntimeECS || d.ecs != nil {
		return d.ecsKindMismatch(kind)
	}
	switch {
	case kind == entities.RuntimeKubernetes && d.customAt != "":
		return &located[strict.Fault]{strict.Fault{Code: "wrong-kind", Message: "does not run commands", Expected: `"kubernetes" instead of "custom"`}, d.customAt}
	case kind == entities.RuntimeKubernetes && d.kubernetes == nil:
		return &located[strict.Fault]{strict.Fault{
			Code: "missing-field", Message: "gets nothing to deploy",
			Expected: `"kubernetes" with manifests, a kustomization or a chart`,
		}, "kubernetes"}
	case kind == entities.RuntimeCustom && d.kubernetes != nil:
		return &located[strict.Fault]{strict.Fault{Code: "wrong-kind", Message: "does not accept objects", Expected: `"custom" instead of "kubernetes", or a runtime of kind kubernetes`}, d.kubernetes.at}
	}
	return nil
}
