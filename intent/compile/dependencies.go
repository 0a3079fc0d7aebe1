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

// dependency is a condition on another service, of a channel's services or of one service (D20–D22).
type dependency struct {
	kind entities.CheckKind
	on   entities.Dependency
	d    *strict.Decoder
	at   string
}

// dependencyNames are the names of conditions on other services.
var dependencyNames = map[entities.CheckKind]string{
	entities.CheckServiceStable: "service-stable", entities.CheckVersionOrder: "version-order",
	entities.CheckStaticOrder: "static-order", entities.CheckCapacityOrder: "capacity-order",
}

// dependencyKinds maps rules to kinds of checks.
var dependencyKinds = map[config.DependencyRule]entities.CheckKind{
	"stable": entities.CheckServiceStable, "versionOrder": entities.CheckVersionOrder,
	"staticOrder": entities.CheckStaticOrder, "capacity": entities.CheckCapacityOrder,
}

// id is the name that explain shows and bypass accepts.
func (d dependency) id() string {
	id := dependencyNames[d.kind] + "/" + d.on.Service
	if d.on.Channel != "" {
		id += "@" + d.on.Channel
	}
	return id
}

// recordServices records the channels and the parameters of all services before any of them is compiled, because services may refer to
// each other.
func (c *compiler) recordServices() {
	for _, doc := range c.config.Services {
		name := string(doc.Spec.Name)
		if _, twice := c.serviceChannels[name]; twice || name == "" {
			continue
		}
		c.serviceChannels[name] = c.channelNames()
		if doc.Has("releaseChannels") {
			c.serviceChannels[name] = slices.DeleteFunc(c.channelNames(), func(channel string) bool { return !slices.Contains(doc.Spec.ReleaseChannels, config.Name(channel)) })
		}
		c.parameterTypes[name] = map[string]entities.ParamType{}
		for _, p := range doc.Spec.Parameters {
			c.parameterTypes[name][string(p.Name)] = entities.ParamType(p.Type)
		}
	}
}

// checkNumeric returns why a parameter of a service cannot be a capacity, or nil.
func (c *compiler) checkNumeric(service string, name config.ParameterName) *strict.Fault {
	types := c.parameterTypes[service]
	kind, known := types[string(name)]
	switch {
	case !known:
		fault := strict.Unknown("unknown-parameter", fmt.Sprintf("service %q has no parameter %q", service, string(name)), string(name), strict.Keys(types))
		if len(types) == 0 {
			fault.Expected = "a parameter of type int or float"
		}
		return &fault
	case kind != entities.ParamInt && kind != entities.ParamFloat:
		return &strict.Fault{Code: "wrong-type", Message: fmt.Sprintf("parameter %q of service %q is of type %s", string(name), service, kind), Expected: "one of type int or float"}
	}
	return nil
}

// checkServiceChannel checks a reference to a service and a channel.
func (c *compiler) checkServiceChannel(d *strict.Decoder, at string, service, channel config.Name) bool {
	if d.Faulty(at) || service == "" {
		return false
	}
	channels, known := c.serviceChannels[string(service)]
	switch {
	case !known && c.partial:
		return false
	case !known:
		fault := unknownDocument("service", string(service), strict.Keys(c.serviceChannels))
		c.report(d, at+".service", fault)
	case channel == "":
		return true
	case !slices.Contains(c.channelNames(), string(channel)):
		c.report(d, at+".releaseChannel", c.unknownChannel(channel, c.channelNames()))
	case !slices.Contains(channels, string(channel)):
		c.report(d, at+".releaseChannel", strict.Fault{
			Code: "unknown-channel", Message: fmt.Sprintf("service %q is not deployed to release channel %q", string(service), string(channel)), Expected: strict.OneOf(channels),
		})
	default:
		return true
	}
	return false
}

// resolveService returns the service that a rule of an application refers to: a plain name is its own service, other names belong to other
// applications.
func resolveService(application string, name config.ServiceName) (service string, external bool) {
	of, service := entities.ResolveService(application, string(name))
	if of != application {
		return string(name), true
	}
	return service, false
}

// channelDependency compiles a precondition on another service.
func (c *compiler) channelDependency(app *config.Document[config.Application], at string, p config.Precondition, channel *incarnation.Channel) {
	for _, rule := range []struct {
		name  string
		kind  entities.CheckKind
		other *config.OtherService
	}{
		{"serviceStable", entities.CheckServiceStable, p.ServiceStable},
		{"versionOrder", entities.CheckVersionOrder, p.VersionOrder},
		{"staticOrder", entities.CheckStaticOrder, p.StaticOrder},
	} {
		if rule.other == nil {
			continue
		}
		service, external := resolveService(string(app.Spec.Name), rule.other.Service)
		if external && app.Faulty(at+"."+rule.name) ||
			!external && !c.checkServiceChannel(app.Decoder, at+"."+rule.name, config.Name(service), rule.other.ReleaseChannel) {
			continue
		}
		compiled := dependency{rule.kind, entities.Dependency{Service: service, Channel: string(rule.other.ReleaseChannel)}, app.Decoder, at}
		if slices.ContainsFunc(c.preconditions[channel.Name], func(o dependency) bool { return o.id() == compiled.id() }) {
			c.report(app.Decoder, at, strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("this channel has the precondition %q twice", compiled.id())})
			continue
		}
		c.preconditions[channel.Name] = append(c.preconditions[channel.Name], compiled)
	}
}

// dependencies checks the service's own dependencies.
func (s *serviceCompiler) dependencies() {
	for i, given := range s.Spec.Dependencies {
		at := strict.Index("dependencies", i)
		service, external := resolveService(s.application, given.Service)
		given.Service = config.ServiceName(service)
		compiled := dependency{dependencyKinds[given.Rule], entities.Dependency{Service: string(given.Service), Channel: string(given.ReleaseChannel)}, s.Decoder, at}
		if given.Rule == "capacity" {
			compiled.on.Parameter, compiled.on.First = string(given.Parameter), string(given.First)
			compiled.on.OtherParameter = cmp.Or(string(given.OtherParameter), string(given.Parameter))
		}
		switch {
		case s.Faulty(at):
		case string(given.Service) == string(s.Spec.Name):
			s.report(s.Decoder, at+".service", strict.Fault{Code: "cycle", Message: fmt.Sprintf("service %q would wait for itself", string(given.Service)), Expected: "another service"})
		case !external && !s.checkServiceChannel(s.Decoder, at, config.Name(given.Service), given.ReleaseChannel):
		case slices.ContainsFunc(s.dependsOnServices, func(o dependency) bool { return o.id() == compiled.id() }):
			s.report(s.Decoder, at, strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("the service has the dependency %q twice", compiled.id())})
		case !external && given.ReleaseChannel == "" && !slices.ContainsFunc(s.channels, func(name string) bool { return slices.Contains(s.serviceChannels[string(given.Service)], name) }):
			s.report(s.Decoder, at+".service", strict.Fault{
				Code: "no-match", Message: fmt.Sprintf("no release channel has both %s and %s", s.Spec.Name, given.Service), Expected: `"releaseChannel" of the other service`,
			})
		default:
			s.capacityRule(at, given, external)
			s.dependsOnServices = append(s.dependsOnServices, compiled)
		}
	}
}

// capacityRule checks the fields that only the rule capacity has. The parameters of services of other applications are not known here.
func (s *serviceCompiler) capacityRule(at string, given config.Dependency, external bool) {
	if given.Rule != "capacity" {
		for _, field := range []string{"parameter", "otherParameter", "first"} {
			if s.Has(at + "." + field) {
				s.report(s.Decoder, at+"."+field, strict.Fault{Code: "one-of", Message: fmt.Sprintf("%q belongs to the rule capacity", field), Expected: "rule: capacity with it"})
			}
		}
		return
	}
	if given.Parameter == "" {
		s.report(s.Decoder, at+".parameter", strict.Fault{Code: "missing-field", Message: `"parameter" is missing`, Expected: "the parameter with the capacity of this service"})
	} else if fault := s.checkNumeric(string(s.Spec.Name), given.Parameter); fault != nil {
		s.report(s.Decoder, at+".parameter", *fault)
	}
	if other := config.ParameterName(cmp.Or(string(given.OtherParameter), string(given.Parameter))); other != "" && !external {
		if fault := s.checkNumeric(string(given.Service), other); fault != nil {
			s.report(s.Decoder, at+".otherParameter", *fault)
		}
	}
	if given.First == "" {
		s.report(s.Decoder, at+".first", strict.Fault{Code: "missing-field", Message: `"first" is missing`, Expected: "when this service is deployed before the other: growing or shrinking"})
	}
}

// dependencyChecks compiles the dependencies of the service in one channel: the channel's preconditions, which apply to all services
// except the named one, and its own dependencies.
func (s *serviceCompiler) dependencyChecks(in *substitute.Scope) []entities.Check {
	var all []entities.Check
	for _, d := range slices.Concat(s.preconditions[in.Channel], s.dependsOnServices) {
		where := cmp.Or(d.on.Channel, in.Channel)
		known := slices.ContainsFunc(all, func(c entities.Check) bool { return c.ID == d.id() })
		external := strings.Contains(d.on.Service, "/")
		if d.on.Service == in.Service || known || !external && !slices.Contains(s.serviceChannels[d.on.Service], where) {
			continue
		}
		on := d.on
		all = append(all, entities.Check{
			ID: d.id(), Kind: d.kind, At: []entities.CheckAt{{Stage: entities.PreApproval}}, Repairs: true, Interval: dependencyInterval,
			Definition: s.define(entities.CheckDefinition{
				Application: in.Application, Service: in.Service, Channel: in.Channel, ID: d.id(), Kind: d.kind, Dependency: &on,
			}),
		})
		if external { // cycles through another application are detected at run time
			continue
		}
		s.edges = append(s.edges, edge{instanceRef{in.Service, in.Channel}, instanceRef{d.on.Service, where}, d})
	}
	return all
}

// instanceRef is a service in a channel.
type instanceRef struct{ service, channel string }

// edge means that one instance waits for another.
type edge struct {
	from, to   instanceRef
	dependency dependency
}

// checkDeadlocks rejects conditions that no release could satisfy: two services that each wait for the other by capacity (D21), and cycles
// of services that wait for each other.
func (c *compiler) checkDeadlocks() {
	reported := map[string]bool{}
	for _, e := range c.edges {
		if e.dependency.kind != entities.CheckCapacityOrder {
			continue
		}
		for _, o := range c.edges {
			names := []string{e.from.service, o.from.service}
			slices.Sort(names)
			pair := strings.Join(names, " and ")
			if o.dependency.kind == e.dependency.kind && o.from == e.to && o.to == e.from && o.dependency.on.First == e.dependency.on.First && e.dependency.on.First != "" && !reported[pair] {
				reported[pair] = true
				c.report(e.dependency.d, e.dependency.at+".first", strict.Fault{
					Code: "deadlock", Message: fmt.Sprintf("services %s would both be first when %s, and wait for each other", pair, e.dependency.on.First),
					Expected: "one of them first when growing, the other when shrinking",
				})
			}
		}
	}
	c.checkWaitCycles()
}

// checkWaitCycles searches cycles in all conditions except capacity, which does not block services whose capacity does not change. In a
// cycle of other conditions, each service waits for the next: before their first releases, and, because repairs also evaluate these
// conditions, if all of them are unhealthy.
func (c *compiler) checkWaitCycles() {
	next := map[instanceRef][]edge{}
	for _, e := range c.edges {
		if e.dependency.kind != entities.CheckCapacityOrder {
			next[e.from] = append(next[e.from], e)
		}
	}
	done := map[instanceRef]bool{}
	reported := map[string]bool{}
	var visit func(at instanceRef, trail []edge)
	visit = func(at instanceRef, trail []edge) {
		if i := slices.IndexFunc(trail, func(e edge) bool { return e.from == at }); i >= 0 {
			c.reportCycle(trail[i:], reported)
			return
		}
		if done[at] {
			return
		}
		for _, e := range next[at] {
			visit(e.to, append(slices.Clone(trail), e))
		}
		done[at] = true
	}
	for _, e := range c.edges {
		visit(e.from, nil)
	}
}

func (c *compiler) reportCycle(cycle []edge, reported map[string]bool) {
	var names []string
	for _, e := range cycle {
		names = append(names, e.from.service)
	}
	id := strings.Join(slices.Sorted(slices.Values(names)), " ")
	if reported[id] {
		return // already reported for another channel
	}
	reported[id] = true
	text := cycle[0].from.service + " in " + cycle[0].from.channel
	for n, e := range cycle {
		if n > 0 {
			text += ", which"
		}
		text += " waits for " + e.to.service
		if e.to.channel != e.from.channel {
			text += " in " + e.to.channel
		}
		text += fmt.Sprintf(" (%s, %s)", e.dependency.id(), e.dependency.d.Location(e.dependency.at))
	}
	c.report(cycle[0].dependency.d, cycle[0].dependency.at, strict.Fault{
		Code: "cycle", Message: "services wait for each other, and would block each other when all are unhealthy or have a waiting release: " + text,
		Expected: "one of these conditions less, or one for another release channel",
	})
}
