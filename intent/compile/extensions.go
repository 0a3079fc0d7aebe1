package compile

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// extensionUse is a use of an extension.
type extensionUse struct {
	config.ExtensionUse
	usePosition
	addresses []config.Name // of which it reports the addresses
}

func extensionUses(d *strict.Decoder, at string, all []config.ExtensionUse) []extensionUse {
	var uses []extensionUse
	for i, use := range all {
		uses = append(uses, extensionUse{ExtensionUse: use, usePosition: newUsePosition(d, strict.Index(at, i), "extension", use.Name, use.Ref)})
	}
	return uses
}

// stageOrder is the order of the stages at which extensions run.
var stageOrder = []entities.Stage{entities.PreApproval, entities.PostApproval, entities.Deployment, entities.PostDeployment, entities.OnRollback}

func (u extensionUse) stage() int {
	return slices.Index(stageOrder, entities.Stage(u.Lifecycle))
}

// extensionDoc is a document of kind Extension.
type extensionDoc struct {
	*config.Document[config.Extension]
}

func (e extensionDoc) declaration() declaration {
	return declaration{"extension", string(e.Spec.Name), e.Decoder, e.Spec.Parameters}
}

// defineExtensions checks the documents of kind Extension.
func (c *compiler) defineExtensions() {
	for _, doc := range uniqueByName(c, "extension", c.config.Extensions, func(e config.Extension) config.Name { return e.Name }) {
		e := &extensionDoc{doc}
		c.extensions[string(doc.Spec.Name)] = e
		c.checkParameters(e.declaration())
		if !doc.Has("command") {
			c.report(doc.Decoder, "command", strict.Fault{Code: "missing-field", Message: "the extension has nothing to run", Expected: `"command"`})
		}
		c.checkRun(&fieldCompiler{c: c, d: doc.Decoder}, doc.Spec.ExtensionRun)
	}
}

// checkRun checks the command of an extension, once.
func (c *compiler) checkRun(f *fieldCompiler, run config.ExtensionRun) {
	f.run(run, &entities.ExtensionDefinition{})
	c.checkOutputs(f.d, strict.Field(f.at, "outputs"), run.Outputs)
	c.rejectTaskWithJob(f.d, f.at, run.Job, run.Task)
	c.retrying(f.d, strict.Field(f.at, "retry"), run.Retry)
	c.atLeast(f.d, strict.Field(f.at, "timeout"), run.Timeout, span{defaultApplyTimeout, time.Millisecond})
	if f.d.Has(strict.Field(f.at, "sharedInstanceKey")) {
		f.text(strict.Field(f.at, "sharedInstanceKey"), run.SharedInstanceKey, notEmpty("a text such as ${{ labels.tier }}"))
	}
}

// run sets the command in the definition.
func (f *fieldCompiler) run(run config.ExtensionRun, into *entities.ExtensionDefinition) {
	into.Command = f.command(f.at, run.Command, 0)
	into.Env = f.env(strict.Field(f.at, "env"), run.Env)
	if run.Job != nil {
		into.Job = f.job(strict.Field(f.at, "job"), run.Job)
	}
	if run.Task != nil {
		into.Task = f.task(strict.Field(f.at, "task"), run.Task, strict.Field(f.at, "env"), run.Env, into.Env)
	}
}

// checkExtension checks a use of an extension, once for all services.
func (c *compiler) checkExtension(use extensionUse) {
	switch {
	case use.Ref != "":
		c.checkExtensionRef(use)
	case !use.d.Has(use.at+".command") && !use.d.Faulty(use.at+".ref"):
		c.report(use.d, use.at, strict.Fault{Code: "missing-field", Message: fmt.Sprintf("the %s has nothing to run", use.kind), Expected: `"ref" or "command"`})
	case use.d.Has(use.at + ".parameters"):
		c.report(use.d, use.at+".parameters", strict.Fault{Code: "one-of", Message: "parameters need a reference", Expected: `"ref" with them`})
	}
	if use.Ref == "" && use.Name == "" && !use.d.Faulty(use.at) {
		c.report(use.d, use.at+".name", strict.Fault{Code: "missing-field", Message: `"name" is missing`, Expected: "the name in converge status"})
	}
	c.checkRun(&fieldCompiler{c: c, d: use.d, at: use.at}, use.ExtensionRun)
	c.atLeast(use.d, use.at+".every", use.Every, span{0, time.Second})
	if use.d.Has(use.at+".every") && use.Lifecycle != "" && use.Lifecycle != config.ExtensionStage(entities.PostDeployment) {
		c.report(use.d, use.at+".every", strict.Fault{Code: "one-of", Message: fmt.Sprintf("an extension at %s runs once", use.Lifecycle), Expected: "postDeployment with it"})
	}
	for i, name := range use.DependsOn {
		if string(name) == use.id && name != "" {
			c.report(use.d, strict.Index(use.at+".dependsOn", i), strict.Fault{Code: "cycle", Message: fmt.Sprintf("extension %q would wait for itself", use.id)})
		}
	}
}

func (c *compiler) checkExtensionRef(use extensionUse) {
	for _, field := range []string{"command", "env", "job", "task", "worker", "outputs"} {
		if use.d.Has(use.at + "." + field) {
			c.report(use.d, use.at+"."+field, strict.Fault{Code: "one-of", Message: fmt.Sprintf(`"ref" and %q are both given`, field), Expected: "one of them"})
		}
	}
	to := use.usePosition
	to.kind = "extension"
	checkRef(c, c.extensions, to, use.Ref, use.Parameters)
}

// compileExtensions compiles the extensions of the service in one channel, sorted by their dependencies.
func (s *serviceCompiler) compileExtensions(in *substitute.Scope, ref runtimeRef, uses []extensionUse) []entities.Extension {
	all := distinct(s, in, uses)
	s.checkDependsOn(in.Channel, all)
	var compiled []entities.Extension
	for _, use := range s.sortExtensions(in.Channel, all) {
		compiled = append(compiled, s.extension(in, ref, use, all))
	}
	return compiled
}

// checkDependsOn rejects dependencies that do not exist in the channel or run later.
func (s *serviceCompiler) checkDependsOn(channel string, all []extensionUse) {
	for _, use := range all {
		for i, name := range use.DependsOn {
			at := strict.Index(use.at+".dependsOn", i)
			of := slices.IndexFunc(all, func(o extensionUse) bool { return o.id == string(name) })
			switch {
			case string(name) == use.id || use.d.Faulty(at): // already reported
			case of < 0:
				var names []string
				for _, o := range all {
					if o.id != use.id && o.id != "" {
						names = append(names, o.id)
					}
				}
				fault := unknownDocument("extension", string(name), names)
				fault.Message += fmt.Sprintf(" of service %s", s.Spec.Name)
				if len(names) == 0 {
					fault.Expected = "another extension of the same channel"
				}
				s.reportIn(use.d, at, channel, substitute.ScopedFault{Fault: fault, InChannel: true})
			case use.Lifecycle == config.ExtensionStage(entities.OnRollback) && all[of].stage() < use.stage() && all[of].stage() >= 0:
				s.reportIn(use.d, at, channel, substitute.ScopedFault{Fault: strict.Fault{
					Code: "bad-value", Message: fmt.Sprintf("extension %q runs at rollback, where %q may never have run", use.id, name), Expected: "an extension at rollback",
				}})
			case all[of].stage() > use.stage() && use.stage() >= 0:
				s.reportIn(use.d, at, channel, substitute.ScopedFault{Fault: strict.Fault{
					Code: "cycle", Message: fmt.Sprintf("extension %q runs at %s and would wait for %q, which runs later, at %s", use.id, use.Lifecycle, name, all[of].Lifecycle),
					Expected: "an extension at the same stage or an earlier one",
				}})
			}
		}
	}
}

// sortExtensions sorts extensions by stage and by their dependencies, and otherwise keeps their order. It rejects and names a cycle.
func (s *serviceCompiler) sortExtensions(channel string, all []extensionUse) []extensionUse {
	slices.SortStableFunc(all, func(a, b extensionUse) int { return a.stage() - b.stage() })
	ordered, cycle := sortTopologically(all, func(use extensionUse) string { return use.id }, func(use extensionUse) []string {
		var before []string
		for _, o := range all {
			if slices.Contains(use.DependsOn, config.Name(o.id)) && o.stage() == use.stage() {
				before = append(before, o.id)
			}
		}
		return before
	})
	if len(cycle) > 2 { // otherwise already reported
		first := all[slices.IndexFunc(all, func(use extensionUse) bool { return use.id == cycle[0] })]
		s.reportIn(first.d, first.at+".dependsOn", channel, substitute.ScopedFault{Fault: strict.Fault{
			Code: "cycle", Message: "extensions wait for each other: " + strings.Join(cycle, " → "),
		}})
	}
	return ordered
}

func (s *serviceCompiler) extension(in *substitute.Scope, ref runtimeRef, use extensionUse, all []extensionUse) entities.Extension {
	f, run, definition := s.compileRun(in, use, s.reportedTo(use, all))
	compiled := s.compiler.extension(use, run, &definition)
	if compiled.Remote && ref.name != "" && !s.compiler.runtimes[ref.name].Remote {
		s.reportIn(f.d, strict.Field(f.at, "worker"), in.Channel, substitute.ScopedFault{InChannel: true, Fault: noWorker(ref, in)})
	}
	compiled.Key = s.sharedKey(f, use, run)
	compiled.Definition = s.share(use, compiled, definition)
	return compiled
}

// compileRun returns the run of an extension in one channel, with the outputs of earlier extensions, and the document that declares it.
func (c *compiler) compileRun(in *substitute.Scope, use extensionUse, outputs outputLookup) (*fieldCompiler, config.ExtensionRun, entities.ExtensionDefinition) {
	f := &fieldCompiler{c: c, d: use.d, at: use.at}
	run := c.runOf(use)
	if doc := c.extensions[string(use.Ref)]; doc != nil {
		f.d, f.at = doc.Decoder, ""
		f.scope = c.referenceScope(in, doc.declaration(), reference{use.d, use.at, use.Parameters})
	} else {
		f.scope = c.referenceScope(in, declaration{}, reference{})
	}
	f.scope.Reported = outputs
	definition := entities.ExtensionDefinition{Application: in.Application, Service: in.Service, Channel: in.Channel, Name: use.id, Dir: path.Dir(f.d.File)}
	if in.Service != "" {
		definition.ServiceID = in.Application + "." + in.Service
	}
	f.run(run, &definition)
	definition.Outputs = strict.Map(run.Outputs, func(name config.ParameterName) string { return string(name) })
	definition.Addresses = strict.Map(use.addresses, func(name config.Name) string { return string(name) })
	return f, run, definition
}

// extension compiles the schedule and conditions of a run, without its key and its definition.
func (c *compiler) extension(use extensionUse, run config.ExtensionRun, definition *entities.ExtensionDefinition) entities.Extension {
	retry := c.retrying(nil, "", run.Retry)
	compiled := entities.Extension{
		Name: use.id, Stage: entities.Stage(use.Lifecycle), Every: use.Every.Or(0), Timeout: run.Timeout.Or(defaultApplyTimeout),
		MaxAttempts: retry.attempts, RetryBackoff: retry.backoff, RetryMax: retry.maxBackoff, Remote: run.Worker == workerRemote,
	}
	if definition.Task != nil {
		compiled.Place = definition.Task.Place()
	}
	compiled.After = strict.Map(use.DependsOn, func(name config.Name) string { return string(name) })
	return compiled
}

// sharedKey returns the key by which channels share a run. A key at the use overrides the key of the referenced document.
func (s *serviceCompiler) sharedKey(f *fieldCompiler, use extensionUse, run config.ExtensionRun) string {
	if run.SharedInstanceKey == "" {
		return f.scope.Channel
	}
	if use.SharedInstanceKey != "" {
		f = &fieldCompiler{c: f.c, d: use.d, at: use.at, scope: f.scope}
	}
	at := strict.Field(f.at, "sharedInstanceKey")
	v := f.text(at, run.SharedInstanceKey, notEmpty("a text such as ${{ labels.tier }}"))
	if config.HasSubstitution(v) {
		f.reportSubstituted(at, run.SharedInstanceKey, strict.Fault{Code: "bad-substitution", Message: "a key must not contain the version", Expected: "labels or constants of the channel"})
	}
	return v
}

// share makes all channels with the same key use the same definition: that of the first channel.
func (s *serviceCompiler) share(use extensionUse, run entities.Extension, definition entities.ExtensionDefinition) string {
	id := definition.Service + " " + run.RunKey()
	first, shared := s.shared[id]
	if !shared {
		s.shared[id] = definition
		return s.defineExtension(definition)
	}
	channel := definition.Channel
	definition.Channel = first.Channel
	if entities.DigestOf(definition) != entities.DigestOf(first) {
		s.reportIn(use.d, use.at, channel, substitute.ScopedFault{InChannel: true, Fault: strict.Fault{
			Code: "shared-differs", Message: fmt.Sprintf("extension %q shares its run with release channel %s by the key %q, but would run something else", run.Name, first.Channel, run.Key),
			Expected: "the same command and environment in both, or different keys",
		}})
	}
	return s.defineExtension(first)
}

func (c *compiler) defineExtension(definition entities.ExtensionDefinition) string {
	digest := entities.DigestOf(definition)
	c.definitions.extensions[digest] = definition
	return digest
}
