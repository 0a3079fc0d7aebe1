package compile

import (
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// Times between evaluations while a release waits, by kind.
const (
	defaultInterval    = 30 * time.Second
	jobInterval        = time.Minute
	slowInterval       = 5 * time.Minute // for kinds that know when they change
	dependencyInterval = 10 * time.Second
)

// protectionUse is a use of a protection or a postcondition.
type protectionUse struct {
	config.ProtectionUse
	place
	after  bool // it is a postcondition
	within config.Duration
}

func protectionUses(d *strict.Decoder, at string, all []config.ProtectionUse) []protectionUse {
	var uses []protectionUse
	for i, use := range all {
		uses = append(uses, protectionUse{ProtectionUse: use, place: placeOf(d, strict.Index(at, i), "protection", use.Name, use.Ref)})
	}
	return uses
}

func postconditions(d *strict.Decoder, at string, all []config.PostconditionUse) []protectionUse {
	var uses []protectionUse
	for i, p := range all {
		use := config.ProtectionUse{ProtectionItem: p.ProtectionItem}
		uses = append(uses, protectionUse{ProtectionUse: use, place: placeOf(d, strict.Index(at, i), "postcondition", p.Name, p.Ref), after: true, within: p.Within})
	}
	return uses
}

// defineProtections checks the documents of kind Protection.
func (c *compiler) defineProtections() {
	for _, doc := range firsts(c, "protection", c.config.Protections, func(p config.Protection) config.Name { return p.Name }) {
		p := &protectionDoc{doc}
		c.protections[string(doc.Spec.Name)] = p
		c.checkParameters(p.declared())
		switch kinds := doc.Spec.Kinds(); {
		case len(kinds) == 0 && !p.kindFaulty():
			c.report(doc.Decoder, "", noKind())
		case len(kinds) > 1:
			c.report(doc.Decoder, "", twoKinds(kinds))
		}
		f := &filling{c: c, d: doc.Decoder}
		f.kind(doc.Spec.ProtectionKind, &entities.CheckDefinition{})
	}
}

// protectionDoc is a document of kind Protection.
type protectionDoc struct {
	*config.Document[config.Protection]
}

func (p protectionDoc) declared() declared {
	return declared{"protection", string(p.Spec.Name), p.Decoder, p.Spec.Parameters}
}

// kindFaulty reports whether the document has a kind that could not be decoded.
func (p protectionDoc) kindFaulty() bool {
	return slices.ContainsFunc(config.KindNames(), p.Faulty)
}

func noKind() strict.Fault {
	return strict.Fault{Code: "missing-field", Message: "the protection has no kind", Expected: strict.OneOf(config.KindNames())}
}

func twoKinds(kinds []entities.CheckKind) strict.Fault {
	return strict.Fault{Code: "one-of", Message: fmt.Sprintf("a protection has one kind, and both %q and %q are given", kinds[0], kinds[1]), Expected: "one of them"}
}

// checkProtection checks a use of a protection, once for all services.
func (c *compiler) checkProtection(use protectionUse) {
	kinds := use.Kinds()
	faulty := slices.ContainsFunc(config.KindNames(), func(kind string) bool { return use.d.Faulty(use.at + "." + kind) })
	switch {
	case use.Ref != "" && len(kinds) > 0:
		c.report(use.d, use.at, strict.Fault{Code: "one-of", Message: fmt.Sprintf(`"ref" and %q are both given`, kinds[0]), Expected: "one of them"})
	case use.Ref != "":
		checkRef(c, c.protections, place{use.d, use.at, "protection", use.id}, use.Ref, use.Parameters)
	case len(kinds) == 0 && !faulty && !use.d.Faulty(use.at+".ref"):
		fault := noKind()
		fault.Expected = `"ref" or ` + fault.Expected
		c.report(use.d, use.at, fault)
	case len(kinds) > 1:
		c.report(use.d, use.at, twoKinds(kinds))
	case use.d.Has(use.at + ".parameters"):
		c.report(use.d, use.at+".parameters", strict.Fault{Code: "one-of", Message: "parameters need a reference", Expected: `"ref" with them`})
	}
	if use.Ref == "" && use.Name == "" && !use.d.Faulty(use.at) {
		c.report(use.d, use.at+".name", strict.Fault{Code: "missing-field", Message: `"name" is missing`, Expected: "the name for converge explain and converge bypass"})
	}
	f := &filling{c: c, d: use.d, at: use.at}
	f.kind(use.ProtectionKind, &entities.CheckDefinition{})
	c.atLeast(use.d, use.at+".interval", use.Interval, span{defaultInterval, shortestPoll})
	c.atLeast(use.d, use.at+".within", use.within, span{defaultProgress, time.Millisecond})
	c.checkStages(use)
}

// checkStages checks the stages at which a protection is evaluated.
func (c *compiler) checkStages(use protectionUse) {
	at := use.at + ".lifecycle"
	if use.d.Has(at) && len(use.Lifecycle) == 0 && !use.d.Faulty(at) {
		c.report(use.d, at, strict.Fault{Code: "missing-field", Message: "it would never be evaluated", Expected: "at least one stage; omit the field for the default"})
	}
	seen := map[entities.Stage]bool{}
	for i, stage := range use.Lifecycle {
		at := strict.Index(at, i)
		stages := stage.Stages()
		if len(stages) != 1 {
			if !use.d.Faulty(at) {
				c.report(use.d, at, strict.Fault{Code: "one-of", Message: fmt.Sprintf("this names %d stages", len(stages)), Expected: "one of preApproval, postApproval, deployment, postDeployment"})
			}
			continue
		}
		if seen[stages[0].Stage] {
			c.report(use.d, at, strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("the stage %s is named twice", stages[0].Stage)})
		}
		seen[stages[0].Stage] = true
		if after := stage.PostDeployment; after != nil {
			c.atLeast(use.d, at+".postDeployment.for", after.For, span{time.Second, time.Millisecond})
		}
	}
}

// checks compiles the protections of the service in one channel.
func (s *serviceCompiler) checks(in *substitute.Scope, ref runtimeRef, deadline time.Duration, uses []protectionUse) []entities.Check {
	uses = distinct(s, in, uses)
	defaults := s.defaultsOf(in.Channel, ref)
	s.comparisons = len(defaults)
	for _, use := range uses {
		if s.kindOf(use).Compare != nil {
			s.comparisons++
		}
	}
	compiled := strict.Map(uses, func(use protectionUse) entities.Check {
		check := s.check(in, use)
		if use.after {
			check.At, check.Repairs = []entities.CheckAt{{Stage: entities.Postcondition, For: s.within(in, use, &check, deadline)}}, false
		}
		check.Remote = use.Worker == remotely && s.hasWorker(in, ref, use, check.Kind)
		return check
	})
	return append(compiled, s.compareByDefault(in, defaults, deadline)...)
}

// remotely is the location of tasks that the worker of a channel's runtime runs.
const remotely config.WorkerLocation = "remote"

// hasWorker rejects a remote protection that needs no worker, or whose runtime has no worker of its own.
func (s *serviceCompiler) hasWorker(in *substitute.Scope, ref runtimeRef, use protectionUse, kind entities.CheckKind) bool {
	fault := strict.Fault{Code: "bad-value", Expected: `"local" here`}
	switch {
	case kind.Offline():
		fault.Message = fmt.Sprintf("%s needs no worker", kind)
	case ref.name != "" && !s.compiler.runtimes[ref.name].Remote:
		fault = noWorker(ref, in)
	default:
		return true
	}
	s.reportIn(use.d, use.at+".worker", in.Channel, substitute.Trouble{InChannel: true, Fault: fault})
	return false
}

func noWorker(ref runtimeRef, in *substitute.Scope) strict.Fault {
	return strict.Fault{
		Code: "bad-value", Message: fmt.Sprintf("runtime %q of service %s has no worker of its own", ref.name, in.Service), Expected: `"worker: remote" on the runtime, or "local" here`,
	}
}

func (s *serviceCompiler) check(in *substitute.Scope, use protectionUse) entities.Check {
	definition := entities.CheckDefinition{Application: in.Application, Service: in.Service, Channel: in.Channel, ID: use.id}
	f := &filling{c: s.compiler, d: use.d, at: use.at, scope: in}
	kind := use.ProtectionKind
	if doc := s.protections[string(use.Ref)]; doc != nil && len(kind.Kinds()) == 0 {
		f.d, f.at, kind = doc.Decoder, "", doc.Spec.ProtectionKind
		f.scope = s.refer(in, doc.declared(), reference{use.d, use.at, use.Parameters})
	} else {
		f.scope = s.refer(in, declared{}, reference{})
	}
	f.kind(kind, &definition)
	if definition.Compare != nil {
		s.comparison(f, in, use, definition.Compare)
	}
	if kind.Capacity != nil {
		s.capacityParameter(f, in.Channel, kind.Capacity.Parameter)
	}
	check := entities.Check{
		ID: use.id, Kind: definition.Kind, Definition: s.define(definition),
		At: stagesOf(use.Lifecycle, definition.Kind), Repairs: repairs(kind), Interval: use.Interval.Or(intervalOf(definition.Kind)),
	}
	if use.Repairs != nil {
		check.Repairs = *use.Repairs
	}
	return check
}

// kindOf returns the kind of a protection, which may be inline or in a referenced document.
func (s *serviceCompiler) kindOf(use protectionUse) config.ProtectionKind {
	if doc := s.protections[string(use.Ref)]; doc != nil && len(use.Kinds()) == 0 {
		return doc.Spec.ProtectionKind
	}
	return use.ProtectionKind
}

// define stores a definition and returns the digest by which the incarnation refers to it.
func (c *compiler) define(definition entities.CheckDefinition) string {
	digest := entities.DigestOf(definition)
	c.definitions.checks[digest] = definition
	return digest
}

// capacityParameter rejects a parameter that the service does not have, or that is not a number.
func (s *serviceCompiler) capacityParameter(f *filling, channel string, name config.ParameterName) {
	if fault := s.numeric(string(s.Spec.Name), name); fault != nil && name != "" && !f.d.Faulty(f.at) {
		s.reportIn(f.d, strict.Field(f.at, "capacity.parameter"), channel, substitute.Trouble{Fault: *fault})
	}
}

func stagesOf(lifecycle []config.ProtectionStage, kind entities.CheckKind) []entities.CheckAt {
	var all []entities.CheckAt
	for _, stage := range lifecycle {
		all = append(all, stage.Stages()...)
	}
	if len(all) > 0 {
		return all
	}
	all = append(all, entities.CheckAt{Stage: entities.PreApproval})
	if changesByItself(kind) {
		all = append(all, entities.CheckAt{Stage: entities.PostApproval})
	}
	return all
}

func intervalOf(kind entities.CheckKind) time.Duration {
	switch {
	case kind == entities.CheckJob, kind == entities.CheckTask:
		return jobInterval
	case changesByItself(kind):
		return slowInterval
	}
	return defaultInterval
}

// repairs reports whether drift repairs evaluate a protection, too. Freezes and capacity do. Freezes that are defined by windows do not,
// or no drift would be repaired at night.
func repairs(kind config.ProtectionKind) bool {
	if t := kind.AllowedTimes; t != nil {
		return len(t.Freezes) > 0 && len(t.Windows)+len(t.Holidays)+len(t.HolidayCountries) == 0
	}
	return kind.Capacity != nil && kind.Capacity.Object == "" // an object's capacity may be what needs repair
}
