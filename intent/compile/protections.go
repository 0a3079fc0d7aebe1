package compile

import (
	"fmt"
	"slices"
	"strings"
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
	usePosition
	after  bool // it is a postcondition
	within config.Duration
}

func protectionUses(d *strict.Decoder, at string, all []config.ProtectionUse) []protectionUse {
	var uses []protectionUse
	for i, use := range all {
		uses = append(uses, protectionUse{ProtectionUse: use, usePosition: newUsePosition(d, strict.Index(at, i), "protection", use.Name, use.Ref)})
	}
	return uses
}

func postconditions(d *strict.Decoder, at string, all []config.PostconditionUse) []protectionUse {
	var uses []protectionUse
	for i, p := range all {
		use := config.ProtectionUse{ProtectionItem: p.ProtectionItem}
		uses = append(uses, protectionUse{ProtectionUse: use, usePosition: newUsePosition(d, strict.Index(at, i), "postcondition", p.Name, p.Ref), after: true, within: p.Within})
	}
	return uses
}

// defineProtections checks the documents of kind Protection.
func (c *compiler) defineProtections() {
	for _, doc := range uniqueByName(c, "protection", c.config.Protections, func(p config.Protection) config.Name { return p.Name }) {
		p := &protectionDoc{doc}
		c.protections[string(doc.Spec.Name)] = p
		c.checkParameters(p.declaration())
		c.checkProtectionName(doc.Decoder, "name", doc.Spec.Name)
		switch kinds := doc.Spec.Kinds(); {
		case len(kinds) == 0 && !p.kindFaulty():
			c.report(doc.Decoder, "", missingKind())
		case len(kinds) > 1:
			c.report(doc.Decoder, "", multipleKinds(kinds))
		}
		f := &fieldCompiler{c: c, d: doc.Decoder}
		f.kind(doc.Spec.ProtectionKind, &entities.CheckDefinition{})
	}
}

// protectionDoc is a document of kind Protection.
type protectionDoc struct {
	*config.Document[config.Protection]
}

func (p protectionDoc) declaration() declaration {
	return declaration{"protection", string(p.Spec.Name), p.Decoder, p.Spec.Parameters}
}

// kindFaulty reports whether the document has a kind that could not be decoded.
func (p protectionDoc) kindFaulty() bool {
	return slices.ContainsFunc(config.KindNames(), p.Faulty)
}

func missingKind() strict.Fault {
	return strict.Fault{Code: "missing-field", Message: "the protection has no kind", Expected: strict.OneOf(config.KindNames())}
}

func multipleKinds(kinds []entities.CheckKind) strict.Fault {
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
		checkRef(c, c.protections, usePosition{use.d, use.at, "protection", use.id}, use.Ref, use.Parameters)
	case len(kinds) == 0 && !faulty && !use.d.Faulty(use.at+".ref"):
		fault := missingKind()
		fault.Expected = `"ref" or ` + fault.Expected
		c.report(use.d, use.at, fault)
	case len(kinds) > 1:
		c.report(use.d, use.at, multipleKinds(kinds))
	case use.d.Has(use.at + ".parameters"):
		c.report(use.d, use.at+".parameters", strict.Fault{Code: "one-of", Message: "parameters need a reference", Expected: `"ref" with them`})
	}
	if use.Ref == "" && use.Name == "" && !use.d.Faulty(use.at) {
		c.report(use.d, use.at+".name", strict.Fault{Code: "missing-field", Message: `"name" is missing`, Expected: "the name for converge explain and converge bypass"})
	}
	c.checkProtectionName(use.d, use.at+".name", use.Name)
	f := &fieldCompiler{c: c, d: use.d, at: use.at}
	f.kind(use.ProtectionKind, &entities.CheckDefinition{})
	c.atLeast(use.d, use.at+".interval", use.Interval, span{defaultInterval, minPoll})
	c.atLeast(use.d, use.at+".within", use.within, span{defaultProgress, time.Millisecond})
	c.checkStages(use)
}

// checkProtectionName rejects a name that a pin gives to the older of two protections.
func (c *compiler) checkProtectionName(d *strict.Decoder, at string, name config.Name) {
	if base, reserved := strings.CutSuffix(string(name), entities.PinnedSuffix); reserved {
		c.report(d, at, strict.Fault{
			Code: "reserved-name", Message: fmt.Sprintf("%q is reserved: under a pin it is the older of two protections named %q", string(name), base),
			Expected: fmt.Sprintf("a name that does not end with %q", entities.PinnedSuffix),
		})
	}
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
			check.At, check.Repairs = []entities.CheckAt{{Stage: entities.Postcondition, For: s.postconditionTimeout(in, use, &check, deadline)}}, false
		}
		check.Remote = use.Worker == workerRemote && s.checkWorker(in, ref, use, check.Kind)
		return check
	})
	return append(compiled, s.compareByDefault(in, defaults, deadline)...)
}

// workerRemote is the location of tasks that the worker of a channel's runtime runs.
const workerRemote config.WorkerLocation = "remote"

// checkWorker rejects a remote protection that needs no worker, or whose runtime has no worker of its own.
func (s *serviceCompiler) checkWorker(in *substitute.Scope, ref runtimeRef, use protectionUse, kind entities.CheckKind) bool {
	fault := strict.Fault{Code: "bad-value", Expected: `"local" here`}
	switch {
	case kind.Offline():
		fault.Message = fmt.Sprintf("%s needs no worker", kind)
	case ref.name != "" && !s.compiler.runtimes[ref.name].Remote:
		fault = noWorker(ref, in)
	default:
		return true
	}
	s.reportIn(use.d, use.at+".worker", in.Channel, substitute.ScopedFault{InChannel: true, Fault: fault})
	return false
}

func noWorker(ref runtimeRef, in *substitute.Scope) strict.Fault {
	return strict.Fault{
		Code: "bad-value", Message: fmt.Sprintf("runtime %q of service %s has no worker of its own", ref.name, in.Service), Expected: `"worker: remote" on the runtime, or "local" here`,
	}
}

func (s *serviceCompiler) check(in *substitute.Scope, use protectionUse) entities.Check {
	definition := entities.CheckDefinition{Application: in.Application, Service: in.Service, Channel: in.Channel, ID: use.id}
	f := &fieldCompiler{c: s.compiler, d: use.d, at: use.at, scope: in}
	kind := use.ProtectionKind
	if doc := s.protections[string(use.Ref)]; doc != nil && len(kind.Kinds()) == 0 {
		f.d, f.at, kind = doc.Decoder, "", doc.Spec.ProtectionKind
		f.scope = s.referenceScope(in, doc.declaration(), reference{use.d, use.at, use.Parameters})
	} else {
		f.scope = s.referenceScope(in, declaration{}, reference{})
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
		At: stagesOf(use.Lifecycle, definition.Kind), Repairs: hasRepairsDefault(kind), Interval: use.Interval.Or(intervalOf(definition.Kind)),
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
func (s *serviceCompiler) capacityParameter(f *fieldCompiler, channel string, name config.ParameterName) {
	if fault := s.checkNumeric(string(s.Spec.Name), name); fault != nil && name != "" && !f.d.Faulty(f.at) {
		s.reportIn(f.d, strict.Field(f.at, "capacity.parameter"), channel, substitute.ScopedFault{Fault: *fault})
	}
}

func stagesOf(lifecycle []config.ProtectionStage, kind entities.CheckKind) []entities.CheckAt {
	var stages []entities.CheckAt
	for _, stage := range lifecycle {
		stages = append(stages, stage.Stages()...)
	}
	if len(stages) > 0 {
		return stages
	}
	stages = append(stages, entities.CheckAt{Stage: entities.PreApproval})
	if hasNextChange(kind) {
		stages = append(stages, entities.CheckAt{Stage: entities.PostApproval})
	}
	return stages
}

func intervalOf(kind entities.CheckKind) time.Duration {
	switch {
	case kind == entities.CheckJob, kind == entities.CheckTask:
		return jobInterval
	case hasNextChange(kind):
		return slowInterval
	}
	return defaultInterval
}

// hasRepairsDefault reports whether drift repairs evaluate a protection, too. Freezes and capacity do. Freezes that are defined by windows
// do not, or no drift would be repaired at night.
func hasRepairsDefault(kind config.ProtectionKind) bool {
	if t := kind.AllowedTimes; t != nil {
		return len(t.Freezes) > 0 && len(t.Windows)+len(t.Holidays)+len(t.HolidayCountries) == 0
	}
	return kind.Capacity != nil && kind.Capacity.Object == "" // an object's capacity may be what needs repair
}
