package compile

import (
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
	"github.com/converge-engine/converge/intent/sops"
)

// This file checks the secrets that a plan captures from services, and the services that use them (E2).

// maxCaptures bounds the secrets that are captured from a service.
const maxCaptures = 50

// checkCaptures checks the captured secrets of the service, once for all channels.
func (s *serviceCompiler) checkCaptures(app *config.Document[config.Application]) {
	run := s.Spec.SetupCallback
	if run == nil || len(run.Captures) == 0 {
		return
	}
	const at = "setupCallback.captures"
	for i, name := range run.Captures {
		if slices.Contains(run.Captures[:i], name) {
			s.report(s.Decoder, strict.Index(at, i), strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("%q is captured twice", string(name))})
		}
	}
	if len(run.Captures) > maxCaptures {
		s.report(s.Decoder, at, strict.Fault{Code: "too-large", Message: fmt.Sprintf("%d secrets are captured", len(run.Captures)), Expected: fmt.Sprintf("at most %d", maxCaptures)})
	}
	if rules := app.Spec.Plan; (rules == nil || len(rules.AgeRecipients) == 0) && !app.Faulty("plan") {
		s.report(s.Decoder, at, strict.Fault{
			Code: "missing-field", Message: "there are no recipients for these secrets", Expected: `age recipients in "plan.ageRecipients" of the application, including the one of its workers`,
		})
	}
	where := config.ExtensionRun{CommandRun: run.CommandRun}
	if doc := s.extensions[string(run.Ref)]; doc != nil {
		where = doc.Spec.ExtensionRun
	}
	if where.Job != nil || where.Task != nil {
		s.report(s.Decoder, "setupCallback", strict.Fault{
			Code: "one-of", Message: "the output of a Job or a task can be read where it runs, and this one captures secrets", Expected: "a command on the worker's machine",
		})
	}
}

// checkRecipients checks the recipients of captured secrets.
func (c *compiler) checkRecipients(app *config.Document[config.Application]) {
	for i, name := range app.Spec.Plan.AgeRecipients {
		at := strict.Index("plan.ageRecipients", i)
		if err := sops.CheckRecipient(name); err != nil && !app.Faulty(at) {
			c.report(app.Decoder, at, strict.Fault{Code: "bad-name", Message: fmt.Sprintf("invalid age recipient %q", strict.Clip(name)), Expected: "one that begins with age1, from age-keygen"})
		}
	}
}

// capturedFault returns why no secret of that name is ever captured from a service in a channel, or nil.
func (c *compiler) capturedFault(channel, service, name string) *strict.Fault {
	at := slices.IndexFunc(c.config.Services, func(s *config.Document[config.Service]) bool { return string(s.Spec.Name) == service })
	var fault strict.Fault
	switch {
	case at < 0:
		fault = unknownDocument("service", service, strict.Keys(c.serviceChannels))
	case c.works[channel] == nil || !slices.Contains(c.serviceChannels[service], channel):
		fault = strict.Fault{Code: "not-captured", Message: fmt.Sprintf("nothing is captured from service %q in this release channel", service), Expected: "a service that a plan deploys there"}
	default:
		var names []string
		if run := c.config.Services[at].Spec.SetupCallback; run != nil {
			names = strict.Map(run.Captures, func(n config.ParameterName) string { return string(n) })
		}
		if slices.Contains(names, name) {
			return nil
		}
		fault = strict.Unknown("not-captured", fmt.Sprintf("no secret %q is captured from service %q", name, service), name, names)
		if len(names) == 0 {
			fault.Expected = `a secret in "captures" of its "setupCallback"`
		}
	}
	return &fault
}

// checkCaptured checks a reference to a captured secret. It ignores other values.
func (c *compiler) checkCaptured(d *strict.Decoder, at, channel string, v entities.Value) {
	if v.Captured == "" {
		return
	}
	if fault := c.capturedFault(channel, v.Captured, v.Key); fault != nil {
		c.reportIn(d, at, channel, substitute.ScopedFault{InChannel: true, Fault: *fault})
	}
}

// needsCaptured reports whether the service uses a captured secret: in its payload, or in an extension that runs during its deployment.
func (s *serviceCompiler) needsCaptured(in *substitute.Scope, d *draft) bool {
	scope := *in // a copy, because the uses that are recorded here are discarded
	for _, name := range strict.Keys(d.env) {
		if v, t := scope.Env(d.env[name].v); t == nil && v.Captured != "" {
			return true
		}
	}
	return slices.ContainsFunc(s.extensionsIn(in.Channel, d), s.receivesCaptured)
}

// receivesCaptured reports whether an extension receives a captured secret, directly or possibly by the value of a parameter.
func (c *compiler) receivesCaptured(use extensionUse) bool {
	env := use.Env
	if doc := c.extensions[string(use.Ref)]; doc != nil {
		env = doc.Spec.Env
	}
	for _, name := range strict.Keys(env) {
		if env[config.EnvName(name)].Captured != "" {
			return true
		}
	}
	for _, name := range strict.Keys(use.Parameters) {
		if v, is := use.Parameters[config.ParameterName(name)].V.(entities.Value); is && v.Captured != "" {
			return true
		}
	}
	return false
}

// usesCaptured reports whether a command uses a captured secret.
func usesCaptured(d entities.ExtensionDefinition) bool {
	for _, name := range entities.SortedKeys(d.Env) {
		if d.Env[name].Captured != "" {
			return true
		}
	}
	return false
}

// afterCallback lists the kinds of nodes that run after CALLBACK.
var afterCallback = []plan.Kind{plan.Sync, plan.Redeploy, plan.Reconcile}

// rejectEarlyCapture rejects a captured secret in a command that may run before the capture.
func (c *compiler) rejectEarlyCapture(use extensionUse, kind plan.Kind, run entities.Extension) {
	if !slices.Contains(afterCallback, kind) && usesCaptured(c.definitions.extensions[run.Definition]) {
		c.report(use.d, use.at, strict.Fault{Code: "not-captured", Message: "this runs before anything is captured", Expected: "a secret in a reconciler or in the sync of an aggregator"})
	}
}
