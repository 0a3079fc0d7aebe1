package compile

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/order"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// defineServices compiles the services, by name.
func (c *compiler) defineServices(app *config.Document[config.Application]) []incarnation.Service {
	var all []incarnation.Service
	for _, doc := range uniqueByName(c, "service", c.config.Services, func(s config.Service) config.Name { return s.Name }) {
		s := &serviceCompiler{compiler: c, Document: doc, application: string(app.Spec.Name)}
		s.ownGates()
		s.checkOwnPlan(app)
		all = append(all, s.compile())
	}
	c.renamedServices()
	slices.SortFunc(all, func(a, b incarnation.Service) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// serviceCompiler compiles one service.
type serviceCompiler struct {
	*compiler
	*config.Document[config.Service]
	application       string
	types             map[string]entities.ParamType
	carried           map[string]entities.Addon
	channels          []string // of the service
	dependsOnServices []dependency
	comparisons       int // in the current channel
}

func (s *serviceCompiler) compile() incarnation.Service {
	spec := s.Spec
	doc := incarnation.Service{
		Name: string(spec.Name), RenamedFrom: string(spec.RenamedFrom), Description: spec.Description,
		Version: string(spec.Version), InitialVersion: string(spec.InitialVersion),
		ConfigChanges:    entities.ConfigChanges(cmp.Or(string(spec.ConfigChanges), "release")),
		ProgressDeadline: incarnation.Period(s.atLeast(s.Decoder, "progressDeadline", spec.ProgressDeadline, span{defaultProgress, time.Millisecond})),
		Parameters:       s.parameters(), Aspects: s.aspects(), Remove: spec.OnDelete == "remove", GatesApplyToRollback: s.gatesApplyToRollback(),
		Maestro: maestro(cmp.Or(spec.Maestro, s.config.Application.Spec.Maestro)), NoRollbackBelow: s.noRollbackBelow(),
	}
	s.carried = s.addons()
	doc.Addons = s.carried
	s.versions(&doc)
	s.channels = s.channelsOf()
	s.dependencies()
	drafts := s.draft()
	s.override(drafts)
	for _, channel := range s.compiler.channels {
		if draft := drafts[channel.Name]; draft != nil {
			doc.Channels = append(doc.Channels, s.instance(channel, draft, &doc))
		}
	}
	s.checkSizes(&doc)
	return doc
}

// versions records the file that declares the version, and rejects two sources at once.
func (s *serviceCompiler) versions(doc *incarnation.Service) {
	at := ""
	switch {
	case doc.Version != "" && doc.InitialVersion != "":
		s.report(s.Decoder, "initialVersion", strict.Fault{Code: "one-of", Message: `the service has "version" too`, Expected: `either "version" or "initialVersion"`})
	case doc.Version != "":
		at = "version"
	case doc.InitialVersion != "":
		at = "initialVersion"
	default:
		return
	}
	doc.DeclaredAt = fmt.Sprintf("%s:%d", s.File, s.At(at).Line)
}

// channelsOf lists the channels of the service in file order of the application.
func (s *serviceCompiler) channelsOf() []string {
	all := s.channelNames()
	if !s.Has("releaseChannels") {
		return all
	}
	if len(s.Spec.ReleaseChannels) == 0 && !s.Faulty("releaseChannels") {
		s.report(s.Decoder, "releaseChannels", strict.Fault{Code: "missing-field", Message: "the service has no release channel", Expected: "at least one; omit the field for all"})
	}
	listed := s.checkListed(s.Decoder, "releaseChannels", s.Spec.ReleaseChannels, nil)
	return slices.DeleteFunc(all, func(name string) bool { return !slices.Contains(listed, name) })
}

// parameters checks the declared parameters. Their values are checked in each channel.
func (s *serviceCompiler) parameters() []incarnation.Parameter {
	s.types = map[string]entities.ParamType{}
	var all []incarnation.Parameter
	for i, p := range s.Spec.Parameters {
		at := strict.Index("parameters", i)
		if _, twice := s.types[string(p.Name)]; twice {
			s.report(s.Decoder, at+".name", strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("parameter %q is declared twice", string(p.Name))})
			continue
		}
		s.types[string(p.Name)] = entities.ParamType(p.Type)
		all = append(all, parameter(p))
	}
	return all
}

// aspects checks the groups of parameters that are released separately (B5).
func (s *serviceCompiler) aspects() []entities.Aspect {
	var all []entities.Aspect
	of := map[config.ParameterName]string{}
	for _, name := range strict.Keys(s.Spec.Aspects) {
		at, given := strict.Key("aspects", name), s.Spec.Aspects[config.AspectName(name)]
		a := entities.Aspect{Name: name}
		for i, p := range given {
			at := strict.Index(at, i)
			if fault := s.aspectFault(p, of); fault != nil && !s.Faulty(at) {
				s.report(s.Decoder, at, *fault)
				continue
			}
			of[p] = name
			a.Parameters = append(a.Parameters, string(p))
		}
		if len(given) == 0 && !s.Faulty(at) {
			s.report(s.Decoder, at, strict.Fault{Code: "missing-field", Message: fmt.Sprintf("aspect %q has no parameters", name), Expected: "at least one"})
		}
		all = append(all, a)
	}
	return all
}

// aspectFault returns why a parameter cannot belong to an aspect, or nil. The map has the parameters that already belong to one.
func (s *serviceCompiler) aspectFault(p config.ParameterName, aspects map[config.ParameterName]string) *strict.Fault {
	declared := slices.IndexFunc(s.Spec.Parameters, func(d config.ServiceParameter) bool { return d.Name == p })
	switch {
	case declared < 0:
		fault := strict.Unknown("unknown-parameter", fmt.Sprintf("the service has no parameter %q", string(p)), string(p), strict.Keys(s.types))
		return &fault
	case aspects[p] != "":
		return &strict.Fault{
			Code: "duplicate-name", Message: fmt.Sprintf("parameter %q already belongs to aspect %q", string(p), aspects[p]), Expected: "one aspect for each parameter",
		}
	case !parameter(s.Spec.Parameters[declared]).Settable():
		return &strict.Fault{Code: "fixed-parameter", Message: fmt.Sprintf("parameter %q is set in the configuration only", string(p)), Expected: "one that releases may set"}
	}
	return nil
}

func parameter(p config.ServiceParameter) incarnation.Parameter {
	return incarnation.Parameter{Name: string(p.Name), Type: entities.ParamType(p.Type), Description: p.Description, Overridable: p.Overridable}
}

// located is a value and the path of its declaration.
type located[T any] struct {
	v  T
	at string
}

// draft is the merged configuration of a service in one channel.
type draft struct {
	runtime    located[string] // the runtime that the service names; ""
	parameters map[string]located[any]
	env        map[string]located[entities.Value]
	files      []string
	customAt   string // path of the last layer that set custom
	kubernetes *kubernetesDraft
	ecs        *ecsDraft
	deadline   time.Duration
	drift      entities.Drift
	noRollback bool

	protections []protectionUse // of the service, including its postconditions
	extensions  []extensionUse
}

// draft initializes every channel with the common configuration of the service.
func (s *serviceCompiler) draft() map[string]*draft {
	drafts := map[string]*draft{}
	for _, channel := range s.channels {
		d := &draft{
			runtime:    located[string]{string(s.Spec.Runtime), "runtime"},
			parameters: map[string]located[any]{},
			env:        map[string]located[entities.Value]{},
			deadline:   s.Spec.ProgressDeadline.Or(defaultProgress),
			drift:      entities.Drift(cmp.Or(string(s.Spec.Drift), "enforce")),
			noRollback: isFalse(s.Spec.AutoRollback),

			protections: append(protectionUses(s.Decoder, "protections", s.Spec.Protections), postconditions(s.Decoder, "postconditions", s.Spec.Postconditions)...),
			extensions:  extensionUses(s.Decoder, "extensions", s.Spec.Extensions),
		}
		for i, p := range s.Spec.Parameters {
			if _, twice := d.parameters[string(p.Name)]; p.Default != nil && !twice {
				d.parameters[string(p.Name)] = located[any]{p.Default.V, strict.Index("parameters", i) + ".default"}
			}
		}
		d.custom("custom", s.Spec.Custom)
		d.objects(s.Decoder, "kubernetes", s.Spec.Kubernetes)
		d.tasks("ecs", s.Spec.ECS)
		drafts[channel] = d
	}
	return drafts
}

// custom merges environment variables by name and replaces the list of files.
func (d *draft) custom(at string, custom *config.ServiceCustom) {
	if custom == nil {
		return
	}
	d.customAt = at
	for name, v := range custom.Env {
		d.env[string(name)] = located[entities.Value]{entities.Value(v), strict.Key(at+".env", string(name))}
	}
	if custom.Files != nil {
		d.files = nil
		for _, name := range custom.Files {
			if clean, fault := config.LocalFile(name); fault == nil {
				d.files = append(d.files, clean)
			}
		}
		slices.Sort(d.files)
	}
}

// override applies perReleaseChannel in file order; later entries win.
func (s *serviceCompiler) override(drafts map[string]*draft) {
	for i, o := range s.Spec.PerReleaseChannel {
		at := strict.Index("perReleaseChannel", i)
		s.atLeast(s.Decoder, at+".progressDeadline", o.ProgressDeadline, span{defaultProgress, time.Millisecond})
		s.overriddenParameters(at, o)
		for _, channel := range s.selectChannels(s.Decoder, at, channelSelection{o.ReleaseChannel, o.Selector, s.channels}) {
			d := drafts[channel]
			if o.Runtime != "" {
				d.runtime = located[string]{string(o.Runtime), at + ".runtime"}
			}
			for name, v := range o.Parameters {
				d.parameters[string(name)] = located[any]{v.V, strict.Key(at+".parameters", string(name))}
			}
			d.custom(at+".custom", o.Custom)
			d.objects(s.Decoder, at+".kubernetes", o.Kubernetes)
			d.tasks(at+".ecs", o.ECS)
			d.deadline = o.ProgressDeadline.Or(d.deadline)
			d.drift = entities.Drift(cmp.Or(string(o.Drift), string(d.drift)))
			if o.AutoRollback != nil {
				d.noRollback = !*o.AutoRollback
			}
			d.protections = append(d.protections, protectionUses(s.Decoder, at+".protections", o.Protections)...)
			d.protections = append(d.protections, postconditions(s.Decoder, at+".postconditions", o.Postconditions)...)
			d.extensions = append(d.extensions, extensionUses(s.Decoder, at+".extensions", o.Extensions)...)
		}
	}
}

// overriddenParameters rejects values of undeclared parameters.
func (s *serviceCompiler) overriddenParameters(at string, o config.ChannelOverride) {
	for _, name := range strict.Keys(o.Parameters) {
		if _, known := s.types[name]; known || s.Faulty("parameters") {
			continue
		}
		names := strict.Keys(s.types)
		fault := strict.Unknown("unknown-parameter", fmt.Sprintf("the service has no parameter %q", name), name, names)
		if len(names) == 0 {
			fault.Expected = `a declaration under "parameters"`
		}
		s.report(s.Decoder, strict.Key(at+".parameters", name), fault)
	}
}

// instance compiles the service in one channel.
func (s *serviceCompiler) instance(channel incarnation.Channel, d *draft, doc *incarnation.Service) incarnation.InstanceDoc {
	instance := incarnation.InstanceDoc{
		Channel: channel.Name, Drift: d.drift, ProgressDeadline: incarnation.Period(d.deadline),
		Parameters: map[string]any{}, Env: map[string]entities.Value{},
	}
	for _, name := range strict.Keys(d.parameters) {
		instance.Parameters[name] = d.parameters[name].v
	}
	for _, name := range strict.Keys(d.env) {
		instance.Env[name] = d.env[name].v
	}
	for _, name := range d.files {
		instance.Files = append(instance.Files, name)
		if doc.Files == nil {
			doc.Files = map[string]string{}
		}
		doc.Files[name] = s.config.Contents[path.Join(path.Dir(s.File), name)]
	}
	refs := s.runtimesFor(channel.Name, d)
	s.gates(s.channelScope(channel, d), refs, d, &instance)
	s.plan(s.channelScope(channel, d), refs, d)
	if len(refs) == 0 {
		scope := s.channelScope(channel, d)
		scope.AnyRuntime = true
		s.substitutions(scope, d, runtimeRef{})
	}
	for _, ref := range refs {
		s.checkEnvAllowed(channel.Name, d, s.runtimes[ref.name])
		member := s.member(channel, d, ref, doc)
		if !ref.selected {
			instance.Member = member
			break
		}
		instance.Fleet = append(instance.Fleet, member)
	}
	return instance
}

// checkEnvAllowed rejects environment variables that the runtime of another application does not allow, as far as that is known now. The
// worker checks again against the owner's rules at that time.
func (s *serviceCompiler) checkEnvAllowed(channel string, d *draft, runtime entities.RuntimeDefinition) {
	if runtime.Owner == "" || runtime.Kind != entities.RuntimeCustom { // defined in this configuration, or runs no commands
		return
	}
	for _, name := range strict.Keys(d.env) {
		if refusal := runtime.EnvDenial(runtime.Allow, s.application, name); refusal != "" {
			fault := strict.Fault{Code: "not-allowed", Message: refusal, Expected: "a name that it allows"}
			s.reportIn(s.Decoder, d.env[name].at, channel, substitute.ScopedFault{InChannel: true, Fault: fault})
		}
	}
}

// member compiles the runtime-specific part of an instance.
func (s *serviceCompiler) member(channel incarnation.Channel, d *draft, ref runtimeRef, doc *incarnation.Service) incarnation.Member {
	runtime := s.runtimes[ref.name]
	member := incarnation.Member{Runtime: ref.name, Kind: runtime.Kind, RuntimeLabels: runtime.Labels, MovedFrom: ref.movedFrom}
	if ref.namespace != "" {
		member.Address = map[string]string{entities.AddressNamespace: ref.namespace}
	}
	if ref.account != "" {
		member.Address = with(member.Address, entities.AddressServiceAccount, ref.account)
	}
	scope := s.channelScope(channel, d)
	scope.Runtime, scope.RuntimeLabels = ref.name, runtime.Labels
	if ref.selected {
		scope.Instance = ref.name
	}
	s.substitutions(scope, d, ref)
	var list incarnation.ObjectList
	if d.kubernetes != nil {
		member.Kubernetes, list = s.compileObjects(scope, d.kubernetes, ref)
		doc.Objects = with(doc.Objects, member.Kubernetes.Bundle, list)
	}
	if d.ecs != nil {
		member.ECS, list = s.compileTasks(scope, d.ecs, ref)
		doc.Objects = with(doc.Objects, member.ECS.Bundle, list)
	}
	return member
}

// with adds an entry to a map, and creates a nil map.
func with[V any](all map[string]V, name string, v V) map[string]V {
	if all == nil {
		all = map[string]V{}
	}
	all[name] = v
	return all
}

// maestro returns the strategy by which releases follow each other; the default is latest.
func maestro(declared *config.Maestro) entities.Maestro {
	if declared == nil {
		declared = &config.Maestro{}
	}
	return entities.Maestro{Strategy: cmp.Or(string(declared.Strategy), "latest"), HoldUntil: string(declared.HoldUntil)}
}

// gatesApplyToRollback reports whether a manual rollback has to pass the gates. A service is never less strict than its application.
func (s *serviceCompiler) gatesApplyToRollback() bool {
	all, own := s.config.Application.Spec.Rollback, s.Spec.Rollback
	required := all != nil && all.Gates == "ask"
	if required && own != nil && own.Gates == "skip" && !s.Faulty("rollback.gates") {
		s.report(s.Decoder, "rollback.gates", strict.Fault{
			Code: "bad-value", Message: "the application requires the gates for every manual rollback", Expected: "ask, or nothing",
		})
	}
	return required || own != nil && own.Gates == "ask"
}

// noRollbackBelow returns the lowest version for rollbacks, which must be comparable.
func (s *serviceCompiler) noRollbackBelow() string {
	v := string(s.Spec.NoRollbackBelow)
	if v != "" && !s.Faulty("noRollbackBelow") && !order.Orderable(v) {
		s.report(s.Decoder, "noRollbackBelow", strict.Fault{
			Code: "bad-version", Message: fmt.Sprintf("%q cannot be compared with others", v), Expected: "a number behind a name (v8), a semantic version, or a time stamp",
		})
	}
	return v
}

// hasUnknownRuntime reports whether a channel names a runtime that is already reported as unknown.
func (s *serviceCompiler) hasUnknownRuntime(channel string) bool {
	for _, r := range s.config.Application.Spec.ReleaseChannels {
		if string(r.Name) == channel {
			return len(r.Runtimes) > len(s.refs[channel])
		}
	}
	return false
}

// channelScope returns the names that the service can use in one channel. The version and the values that a release provides stay open.
func (s *serviceCompiler) channelScope(channel incarnation.Channel, d *draft) *substitute.Scope {
	scope := &substitute.Scope{
		Application: s.application, Service: string(s.Spec.Name), Channel: channel.Name,
		Labels: channel.Labels, Constants: channel.Constants, Addons: s.carried, Types: s.types, Declared: map[string]any{},
		Reported: s.reportedToPayload(channel.Name, d),
	}
	for _, name := range strict.Keys(d.parameters) {
		scope.Declared[name] = d.parameters[name].v
	}
	return scope
}

// substitutions tries every text of the service in one channel except those of its objects.
func (s *serviceCompiler) substitutions(in *substitute.Scope, d *draft, ref runtimeRef) {
	scope := *in // a copy, because the uses that are recorded here are discarded
	for _, name := range strict.Keys(s.types) {
		if _, t := scope.Param(name); t != nil && t.Param == name && !s.Faulty(d.parameters[name].at) {
			s.reportIn(s.Decoder, d.parameters[name].at, scope.DisplayName(), *t)
		}
		s.requireValue(scope.DisplayName(), name, d)
	}
	for _, name := range strict.Keys(d.env) {
		v, t := scope.Env(d.env[name].v)
		if t != nil && t.Param == "" && !s.Faulty(d.env[name].at) {
			s.reportIn(s.Decoder, d.env[name].at, scope.DisplayName(), *t)
		}
		s.checkCaptured(s.Decoder, d.env[name].at, in.Channel, v)
	}
	scope.AddressOnly = true
	if _, t := scope.Text(ref.namespace); t != nil {
		s.reportIn(s.config.Application.Decoder, ref.path+".namespace", scope.DisplayName(), *t)
	}
}

// requireValue rejects a parameter without a value if no person who could provide it makes a release, or if no one may provide it.
func (s *serviceCompiler) requireValue(channel, name string, d *draft) {
	if _, ok := d.parameters[name]; ok || s.Faulty("parameters") {
		return
	}
	at := slices.IndexFunc(s.Spec.Parameters, func(p config.ServiceParameter) bool { return string(p.Name) == name })
	p, reason := s.Spec.Parameters[at], "for the version that this file releases"
	switch {
	case !(incarnation.Parameter{Type: entities.ParamType(p.Type), Overridable: p.Overridable}).Settable():
		reason = "and no release may give one"
	case s.Spec.Version == "" && s.Spec.InitialVersion == "":
		return
	}
	s.reportIn(s.Decoder, strict.Index("parameters", at), channel, substitute.ScopedFault{InChannel: true, Fault: strict.Fault{
		Code: "missing-parameter", Message: fmt.Sprintf("parameter %q has no value %s", name, reason),
		Expected: "a default, or a value in perReleaseChannel",
	}})
}

// checkSizes rejects payloads that exceed the size limit of an asset, by name (D1).
func (s *serviceCompiler) checkSizes(doc *incarnation.Service) {
	for _, instance := range doc.Channels {
		size, files := 0, 0
		for _, name := range instance.Files {
			files += len(doc.Files[name])
		}
		for name, v := range instance.Env {
			size += len(name) + len(v.Literal)
		}
		if size += files; size > config.MaxAsset {
			s.reportIn(s.Decoder, "name", instance.Channel, substitute.ScopedFault{InChannel: true, Fault: strict.Fault{
				Code: "too-large", Message: fmt.Sprintf("service %s has %d bytes, %d of them files,", doc.Name, size, files),
				Expected: fmt.Sprintf("at most %d; refer to larger content instead of including it", config.MaxAsset),
			}})
		}
	}
}
