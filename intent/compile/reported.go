package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// This file checks the outputs of extensions and plan steps, and the references to them (A21, E15).

// checkOutputs checks the names of an extension's outputs, once.
func (c *compiler) checkOutputs(d *strict.Decoder, at string, names []config.ParameterName) {
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			c.report(d, strict.Index(at, i), strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("%q is reported twice", string(name))})
		}
	}
	if len(names) > entities.MaxReported {
		c.report(d, at, strict.Fault{Code: "too-large", Message: fmt.Sprintf("%d outputs are reported", len(names)), Expected: fmt.Sprintf("at most %d", entities.MaxReported)})
	}
}

// checkAddresses checks the runtimes whose addresses the plan's before steps report.
func (c *compiler) checkAddresses(app *config.Document[config.Application]) {
	seen := map[config.Name]bool{}
	for i, step := range app.Spec.Plan.Before {
		for j, name := range step.Addresses {
			at := strict.Index(strict.Index("plan.before", i)+".addresses", j)
			runtime, known := c.runtimes[string(name)]
			switch {
			case app.Faulty(at):
			case !known && c.partial:
			case !known:
				c.report(app.Decoder, at, unknownDocument("runtime", string(name), strict.Keys(c.runtimes)))
			case runtime.Address != "":
				c.report(app.Decoder, at, strict.Fault{
					Code: "one-of", Message: fmt.Sprintf("runtime %q declares its address, %s", string(name), runtime.Address), Expected: "either a declared or a reported address",
				})
			case seen[name]:
				c.report(app.Decoder, at, strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("the address of runtime %q is reported twice", string(name))})
			}
			seen[name] = true
		}
	}
}

// addressedBy returns the step that reports the address of a runtime, or "".
func (c *compiler) addressedBy(runtime string) string {
	if rules := c.config.Application.Spec.Plan; rules != nil {
		for _, step := range rules.Before {
			if slices.Contains(step.Addresses, config.Name(runtime)) {
				return stepID(step)
			}
		}
	}
	return ""
}

// runOf returns the run of an extension at its use.
func (c *compiler) runOf(use extensionUse) config.ExtensionRun {
	if doc := c.extensions[string(use.Ref)]; doc != nil {
		return doc.Spec.Overridden(use.ExtensionRun)
	}
	return use.ExtensionRun
}

// outputLookup resolves an output for a text. It only finds outputs of extensions that ran before the text is used.
type outputLookup func(group, key string) (string, *strict.Fault)

// outputFault returns why no earlier extension or step has an output of that name, or nil.
func (c *compiler) outputFault(what, key string, all []extensionUse, before func(extensionUse) bool, expected string) *strict.Fault {
	id, name, _ := strings.Cut(key, ".")
	at := indexOfUse(all, id)
	if at < 0 && c.partial {
		return nil
	}
	if at < 0 {
		fault := strict.Unknown("not-reported", fmt.Sprintf("no %s %q runs before this", what, id), id, strict.Map(all, func(use extensionUse) string { return use.id }))
		return &fault
	}
	run := c.runOf(all[at])
	names := strict.Map(run.Outputs, func(name config.ParameterName) string { return string(name) })
	switch {
	case !before(all[at]):
		return &strict.Fault{Code: "not-reported", Message: fmt.Sprintf("%s %q may run later than this", all[at].kind, id), Expected: expected}
	case run.SharedInstanceKey != "":
		return &strict.Fault{Code: "not-reported", Message: fmt.Sprintf("the run of extension %q may be shared with other channels", id), Expected: `the extension without "sharedInstanceKey"`}
	case slices.Contains(names, name):
		return nil
	}
	fault := strict.Unknown("not-reported", fmt.Sprintf("%s %q reports no %q", all[at].kind, id, name), name, names)
	if len(names) == 0 {
		fault.Expected = `an output in its "outputs"`
	}
	return &fault
}

// reportedBefore resolves outputs of the service's extensions.
func (s *serviceCompiler) reportedBefore(all []extensionUse, before func(extensionUse) bool, expected string) outputLookup {
	return func(group, key string) (string, *strict.Fault) {
		if group != "outputs" {
			return "", &strict.Fault{Code: "unknown-name", Message: "addresses of runtimes are not known here"}
		}
		return "", s.outputFault("extension", key, all, before, expected)
	}
}

// reportedToPayload resolves outputs of extensions that succeed before the service is deployed.
func (s *serviceCompiler) reportedToPayload(channel string, d *draft) outputLookup {
	early := func(use extensionUse) bool {
		return use.Lifecycle == config.ExtensionStage(entities.PreApproval) || use.Lifecycle == config.ExtensionStage(entities.PostApproval)
	}
	return func(group, key string) (string, *strict.Fault) {
		return s.reportedBefore(s.extensionsIn(channel, d), early, "an extension at preApproval or postApproval")(group, key)
	}
}

// reportedTo resolves outputs of extensions that succeed before another extension runs.
func (s *serviceCompiler) reportedTo(use extensionUse, all []extensionUse) outputLookup {
	return s.reportedBefore(all, func(o extensionUse) bool {
		return o.stage() < use.stage() || slices.Contains(use.DependsOn, config.Name(o.id))
	}, `the extension in "dependsOn"`)
}

// reportedInPlan resolves outputs of steps, and addresses of runtimes that are declared or that a step reports.
func (c *compiler) reportedInPlan(steps []extensionUse) outputLookup {
	return func(group, key string) (string, *strict.Fault) {
		if group == "outputs" {
			return "", c.outputFault("step", key, steps, func(extensionUse) bool { return true }, "")
		}
		runtime, known := c.runtimes[key]
		switch step := c.addressedBy(key); {
		case !known && c.partial:
		case !known:
			fault := unknownDocument("runtime", key, strict.Keys(c.runtimes))
			return "", &fault
		case runtime.Address == "" && indexOfUse(steps, step) < 0:
			return "", &strict.Fault{Code: "not-reported", Message: fmt.Sprintf("the address of runtime %q is not known at this point", key), Expected: `"address" of the runtime, or the runtime in "addresses" of an earlier step`}
		}
		return runtime.Address, nil
	}
}

// withoutOutputs returns a text without references to outputs.
func withoutOutputs(text string) string {
	return entities.WithReported(text, func(string) string { return "" })
}

// beforeSteps returns the before steps of a plan.
func (c *compiler) beforeSteps() []extensionUse {
	app := c.config.Application
	if app.Spec.Plan == nil {
		return nil
	}
	return c.stepUses(app).before
}

// stepID returns the name by which a text refers to the outputs of a step.
func stepID(step config.FirstStepUse) string { return cmp.Or(string(step.Name), string(step.Ref)) }
