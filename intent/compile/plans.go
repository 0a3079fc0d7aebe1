package compile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// Bounds of plans: the size that a workflow processes and an incarnation contains.
const (
	maxPlanNodes     = 5000
	maxPlanEdges     = 200_000
	maxPlanFragments = 4_000_000 // of all release channels together
)

// planUse returns the command of a plan node as a use of an extension.
func planUse(d *strict.Decoder, at, what string, name config.Name, run config.CommandUse) extensionUse {
	use := config.ExtensionUse{Name: name, Ref: run.Ref, Parameters: run.Parameters, ExtensionRun: config.ExtensionRun{CommandRun: run.CommandRun}}
	return extensionUse{ExtensionUse: use, usePosition: newUsePosition(d, at, what, name, run.Ref)}
}

// hasPlan reports whether services of the application have plan settings in a channel.
func (c *compiler) hasPlan(app *config.Document[config.Application], channel string) bool {
	rules := app.Spec.Plan
	if rules != nil && app.Has("plan.releaseChannels") && !slices.Contains(rules.ReleaseChannels, config.Name(channel)) {
		return false
	}
	return rules != nil || slices.ContainsFunc(c.config.Services, func(s *config.Document[config.Service]) bool {
		return slices.Contains(c.serviceChannels[string(s.Spec.Name)], channel) && hasPlanSettings(s.Spec)
	})
}

// hasPlanSettings reports whether a service has plan settings that connect it with others.
func hasPlanSettings(s config.Service) bool {
	return len(s.Requires)+len(s.Feeds)+len(s.Reconcilers)+len(s.Integrations)+len(s.DNS) > 0 || s.SetupCallback != nil || s.Aggregator != nil
}

// checkPlan checks the plan settings of the application, once for all channels.
func (c *compiler) checkPlan(app *config.Document[config.Application]) {
	rules := app.Spec.Plan
	if rules == nil {
		return
	}
	c.checkListed(app.Decoder, "plan.releaseChannels", rules.ReleaseChannels, nil)
	if n := rules.MaxParallelism; n != nil && *n < 1 && !app.Faulty("plan.maxParallelism") {
		c.report(app.Decoder, "plan.maxParallelism", strict.Fault{Code: "bad-value", Message: fmt.Sprintf("a parallelism of %d is not possible", *n), Expected: "at least 1"})
	}
	c.checkRecipients(app)
	c.checkAddresses(app)
	uses := c.stepUses(app)
	checkUses(c, uses.before, c.checkExtension)
	checkUses(c, uses.after, c.checkExtension)
	checkUses(c, uses.dns, c.checkExtension)
	for _, use := range slices.Concat(uses.before, uses.after, uses.dns) {
		run := use.ExtensionRun
		if doc := c.extensions[string(use.Ref)]; doc != nil {
			run = doc.Spec.Overridden(run)
		}
		if run.Worker == workerRemote {
			c.report(use.d, use.at, strict.Fault{Code: "bad-value", Message: "this command belongs to no runtime, so there is no remote worker for it", Expected: `"worker: local"`})
		}
	}
}

// planSteps are the commands that belong to no service.
type planSteps struct{ before, after, dns []extensionUse }

func (c *compiler) stepUses(app *config.Document[config.Application]) (uses planSteps) {
	rules := app.Spec.Plan
	for i, step := range rules.Before {
		use := planUse(app.Decoder, strict.Index("plan.before", i), "step", step.Name, step.CommandUse)
		use.Outputs, use.addresses = step.Outputs, step.Addresses
		uses.before = append(uses.before, use)
	}
	for i, step := range rules.After {
		uses.after = append(uses.after, planUse(app.Decoder, strict.Index("plan.after", i), "step", step.Name, step.CommandUse))
	}
	if rules.DNS != nil {
		uses.dns = []extensionUse{planUse(app.Decoder, "plan.dns", "command", "dns", *rules.DNS)}
	}
	return uses
}

// planUses lists the commands for plan nodes of the service, with the kinds of the nodes.
func (s *serviceCompiler) planUses() (uses []extensionUse, kinds []plan.Kind) {
	add := func(kind plan.Kind, use extensionUse) { uses, kinds = append(uses, use), append(kinds, kind) }
	if run := s.Spec.SetupCallback; run != nil {
		add(plan.Callback, planUse(s.Decoder, "setupCallback", "command", "setup-callback", run.CommandUse))
	}
	if a := s.Spec.Aggregator; a != nil {
		add(strategies[a.Sync.Strategy], planUse(s.Decoder, "aggregator.sync", "command", "sync", a.Sync.CommandUse))
	}
	for i, r := range s.Spec.Reconcilers {
		add(plan.Reconcile, planUse(s.Decoder, strict.Index("reconcilers", i), "reconciler", r.Name, r.CommandUse))
	}
	return uses, kinds
}

// setupUses lists the extensions that set up the service after its start, in sequence.
func (s *serviceCompiler) setupUses() (uses []extensionUse) {
	for i, r := range s.Spec.SetupReconcilers {
		use := planUse(s.Decoder, strict.Index("setupReconcilers", i), "setup reconciler", r.Name, r.CommandUse)
		use.Lifecycle = config.ExtensionStage(entities.PostDeployment)
		if i > 0 {
			use.DependsOn = []config.Name{s.Spec.SetupReconcilers[i-1].Name}
		}
		uses = append(uses, use)
	}
	return uses
}

var strategies = map[config.SyncStrategy]plan.Kind{"dir": plan.Sync, "redeploy": plan.Redeploy}

// checkOwnPlan checks the service's plan settings about other services, once for all channels.
func (s *serviceCompiler) checkOwnPlan(app *config.Document[config.Application]) {
	uses, kinds := s.planUses()
	for n, use := range uses {
		if kinds[n] != plan.Reconcile {
			s.checkExtension(use)
		}
	}
	checkUses(s.compiler, slices.DeleteFunc(uses, func(u extensionUse) bool { return u.kind != "reconciler" }), s.checkExtension)
	checkUses(s.compiler, s.setupUses(), s.checkExtension)
	s.checkCaptures(app)
	s.checkOthers("requires", s.Spec.Requires)
	s.checkOthers("integrations", s.Spec.Integrations)
	for i, r := range s.Spec.Reconcilers {
		s.checkOthers(strict.Index("reconcilers", i)+".requires", r.Requires)
	}
	for i, feed := range s.Spec.Feeds {
		s.checkFeed(strict.Index("feeds", i), feed)
	}
	seen := map[string]bool{}
	for i, name := range s.Spec.DNS {
		at := strict.Index("dns", i) + ".name"
		if seen[name.Name] {
			s.report(s.Decoder, at, strict.Fault{Code: "duplicate-name", Message: "this name is listed twice"})
		}
		seen[name.Name] = true
		(&fieldCompiler{c: s.compiler, d: s.Decoder}).text(at, name.Name, config.CheckDNSName)
	}
	if len(s.Spec.DNS) > 0 && (app.Spec.Plan == nil || app.Spec.Plan.DNS == nil) && !app.Faulty("plan") {
		s.report(s.Decoder, "dns", strict.Fault{Code: "missing-field", Message: "there is no command that creates DNS names", Expected: `a command at "plan.dns" of the application`})
	}
}

// checkOthers checks the names of other services in a list.
func (s *serviceCompiler) checkOthers(at string, names []config.Name) {
	for i, name := range names {
		location := strict.Index(at, i)
		_, known := s.serviceChannels[string(name)]
		switch {
		case s.Faulty(location):
		case name == s.Spec.Name:
			s.report(s.Decoder, location, strict.Fault{Code: "cycle", Message: fmt.Sprintf("service %q names itself", string(name)), Expected: "another service"})
		case slices.Contains(names[:i], name):
			s.report(s.Decoder, location, strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("service %q is listed twice", string(name))})
		case !known && !s.partial:
			s.report(s.Decoder, location, unknownDocument("service", string(name), strict.Keys(s.serviceChannels)))
		}
	}
}

func (s *serviceCompiler) checkFeed(at string, feed config.Feed) {
	if s.Has(at+".file") && s.Has(at+".content") {
		s.report(s.Decoder, at, strict.Fault{Code: "one-of", Message: `"file" and "content" are both given`, Expected: "one of them"})
	}
	if s.Faulty(at + ".aggregator") {
		return
	}
	var aggregators []string
	for _, other := range s.config.Services {
		if other.Spec.Aggregator != nil {
			aggregators = append(aggregators, string(other.Spec.Name))
		}
	}
	switch _, known := s.serviceChannels[string(feed.Aggregator)]; {
	case slices.Contains(aggregators, string(feed.Aggregator)), s.partial:
	case known:
		s.report(s.Decoder, at+".aggregator", strict.Fault{
			Code: "wrong-kind", Message: fmt.Sprintf("service %q is not an aggregator", string(feed.Aggregator)),
			Expected: cmp.Or(strict.OneOf(aggregators), `a service with "aggregator"`),
		})
	default:
		s.report(s.Decoder, at+".aggregator", unknownDocument("service", string(feed.Aggregator), strict.Keys(s.serviceChannels)))
	}
}

// plan adds the service to the plan of a channel.
func (s *serviceCompiler) plan(in *substitute.Scope, refs []runtimeRef, d *draft) {
	work := s.works[in.Channel]
	if work == nil {
		return
	}
	service := plan.Service{
		Name: in.Service, SetupCallback: s.Spec.SetupCallback != nil, Reconciles: len(s.Spec.Reconcilers) > 0,
		Captured: s.needsCaptured(in, d), Requires: s.inChannel(in, s.Spec.Requires), Integrations: s.inChannel(in, s.Spec.Integrations),
	}
	for _, ref := range refs {
		if len(service.Targets) == 0 || ref.selected {
			service.Targets = append(service.Targets, ref.name)
			s.addTarget(work, ref.name)
		}
	}
	var after []config.Name
	for _, r := range s.Spec.Reconcilers {
		after = append(after, r.Requires...)
	}
	service.ReconcilesAfter = s.inChannel(in, after)
	if s.Spec.Aggregator != nil {
		service.Aggregator = strategies[s.Spec.Aggregator.Sync.Strategy]
	}
	s.addFeeds(in, &service, work)
	f := &fieldCompiler{c: s.compiler, d: s.Decoder, scope: s.referenceScope(in, declaration{}, reference{})}
	for i, name := range s.Spec.DNS {
		at := strict.Index("dns", i) + ".name"
		service.DNS = true
		service.Names = append(service.Names, s.rejectVersion(f, at, name.Name, f.text(at, name.Name, config.CheckDNSName)))
	}
	uses, kinds := s.planUses()
	for n, use := range uses {
		run := s.planRun(in, use, s.beforeSteps())
		for _, target := range service.Targets {
			if run.Remote && !s.runtimes[target].Remote {
				s.reportIn(use.d, use.at, in.Channel, substitute.ScopedFault{InChannel: true, Fault: noWorker(runtimeRef{name: target}, in)})
				break
			}
		}
		command := plan.Command{Kind: kinds[n], Service: in.Service, Run: run}
		if kinds[n] == plan.Callback {
			command.Captures = strict.Map(s.Spec.SetupCallback.Captures, func(name config.ParameterName) string { return string(name) })
		}
		s.rejectEarlyCapture(use, kinds[n], run)
		service.ReconcilesCaptured = service.ReconcilesCaptured || kinds[n] == plan.Reconcile && usesCaptured(s.definitions.extensions[run.Definition])
		work.Commands = append(work.Commands, command)
	}
	work.Services = append(work.Services, service)
}

// inChannel filters the services that go to the channel, in order.
func (s *serviceCompiler) inChannel(in *substitute.Scope, names []config.Name) (all []string) {
	for _, name := range names {
		if slices.Contains(s.serviceChannels[string(name)], in.Channel) && name != s.Spec.Name {
			all = append(all, string(name))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// addTarget records a runtime of services in a plan.
func (c *compiler) addTarget(work *plan.Work, name string) {
	at, known := slices.BinarySearchFunc(work.Targets, name, func(t plan.Target, name string) int { return strings.Compare(t.Name, name) })
	if !known {
		runtime := c.runtimes[name]
		work.Targets = slices.Insert(work.Targets, at, plan.Target{
			Name: name, Address: runtime.Address, ReportedBy: c.addressedBy(name), Serial: runtime.MaxApplies == 1,
		})
	}
}

// addFeeds records the service's input for aggregators of the channel.
func (s *serviceCompiler) addFeeds(in *substitute.Scope, service *plan.Service, work *plan.Work) {
	f := &fieldCompiler{c: s.compiler, d: s.Decoder, scope: s.referenceScope(in, declaration{}, reference{})}
	f.scope.NotCaptured = func(service, name string) *strict.Fault { return s.capturedFault(in.Channel, service, name) }
	f.scope.Reported = s.reportedInPlan(s.beforeSteps())
	for i, feed := range s.Spec.Feeds {
		at := strict.Index("feeds", i)
		if !slices.Contains(s.serviceChannels[string(feed.Aggregator)], in.Channel) {
			continue
		}
		service.Feeds = append(service.Feeds, string(feed.Aggregator))
		fragment := plan.Fragment{Service: in.Service, Aggregator: string(feed.Aggregator)}
		switch {
		case s.Has(at + ".file"):
			fragment.Content = s.config.Contents[path.Join(path.Dir(s.File), path.Clean(feed.File))]
		case s.Has(at + ".content"):
			fragment.Content = s.rejectVersion(f, at+".content", feed.Content, f.text(at+".content", feed.Content, nil))
			fragment.Captured, fragment.Reported = plan.RefersToCaptured(fragment.Content), entities.HasReportedReference(fragment.Content)
		default:
			continue
		}
		work.Fragments = append(work.Fragments, fragment)
		if s.fragments += len(fragment.Content); s.fragments > maxPlanFragments && s.fragments-len(fragment.Content) <= maxPlanFragments {
			s.report(s.Decoder, at, strict.Fault{
				Code: "too-large", Message: "the feeds of all services in all release channels are too large",
				Expected: fmt.Sprintf("at most %d bytes", maxPlanFragments),
			})
		}
	}
	slices.Sort(service.Feeds)
	service.Feeds = slices.Compact(service.Feeds)
}

// rejectVersion rejects a text that names the version, because there is none in this place.
func (c *compiler) rejectVersion(f *fieldCompiler, at, text, filled string) string {
	if config.HasSubstitution(withoutOutputs(plan.ReplaceCaptured(filled, func(string, string) string { return "" }))) {
		f.reportSubstituted(at, text, noVersion)
	}
	return filled
}

var noVersion = strict.Fault{Code: "bad-substitution", Message: "the version is not available here", Expected: "labels or constants of the channel"}

// planRun compiles the command of a node in one channel, after steps.
func (c *compiler) planRun(in *substitute.Scope, use extensionUse, after []extensionUse) entities.Extension {
	_, run, definition := c.compileRun(in, use, c.reportedInPlan(after))
	if text, err := json.Marshal(definition); in.Service == "" && err == nil && config.HasSubstitution(withoutOutputs(string(text))) {
		c.reportIn(use.d, use.at, in.Channel, substitute.ScopedFault{Fault: noVersion})
	}
	compiled := c.extension(use, run, &definition)
	compiled.Key = in.Channel
	compiled.Definition = c.defineExtension(definition)
	return compiled
}

// compilePlans makes the plan of each channel from its compiled services.
func (c *compiler) compilePlans(app *config.Document[config.Application]) {
	for n := range c.channels {
		channel := &c.channels[n]
		work := c.works[channel.Name]
		if work == nil {
			continue
		}
		slices.SortFunc(work.Services, func(a, b plan.Service) int { return strings.Compare(a.Name, b.Name) })
		slices.SortStableFunc(work.Commands, func(a, b plan.Command) int { return strings.Compare(a.Service, b.Service) })
		slices.SortStableFunc(work.Fragments, func(a, b plan.Fragment) int { return strings.Compare(a.Service, b.Service) })
		if rules := app.Spec.Plan; rules != nil {
			in := &substitute.Scope{Application: string(app.Spec.Name), Channel: channel.Name, Labels: channel.Labels, Constants: channel.Constants}
			uses := c.stepUses(app)
			run := func(use extensionUse) entities.Extension { return c.planRun(in, use, uses.before) }
			for n, use := range uses.before {
				work.Before = append(work.Before, c.planRun(in, use, uses.before[:n]))
			}
			work.After = strict.Map(uses.after, run)
			for _, use := range uses.dns {
				work.Commands = append(work.Commands, plan.Command{Kind: plan.DNS, Run: run(use)})
			}
			for n, use := range uses.before {
				c.rejectEarlyCapture(use, "", work.Before[n])
			}
			for n, use := range uses.dns {
				c.rejectEarlyCapture(use, plan.DNS, work.Commands[len(work.Commands)-len(uses.dns)+n].Run)
			}
			work.Recipients = rules.AgeRecipients
			work.Eager = rules.EagerReconcile
			if rules.MaxParallelism != nil {
				work.Limit = *rules.MaxParallelism
			}
		}
		if c.boundPlan(app, channel.Name, work) && c.checkAcyclic(app, work) {
			channel.Plan = work
		}
	}
}

// boundPlan rejects a plan that is too large to process.
func (c *compiler) boundPlan(app *config.Document[config.Application], channel string, work *plan.Work) bool {
	nodes, edges := work.Size()
	if nodes <= maxPlanNodes && edges <= maxPlanEdges {
		return true
	}
	c.reportIn(app.Decoder, "name", channel, substitute.ScopedFault{InChannel: true, Fault: strict.Fault{
		Code: "plan-too-large", Message: fmt.Sprintf("the plan has up to %d nodes and %d dependencies", nodes, edges),
		Expected: fmt.Sprintf("at most %d and %d", maxPlanNodes, maxPlanEdges),
	}})
	return false
}

// checkAcyclic rejects a cycle, at its first dependency.
func (c *compiler) checkAcyclic(app *config.Document[config.Application], work *plan.Work) bool {
	_, err := work.Plan(plan.Scope{All: true})
	var cycle *plan.CycleError
	switch {
	case err == nil:
		return true
	case !errors.As(err, &cycle):
		if len(c.allProblems()) == 0 {
			c.report(app.Decoder, "plan", strict.Fault{Code: "internal", Message: err.Error()})
		}
		return false
	}
	first, fault := cycle.Path[0], strict.Fault{Code: "cycle", Message: err.Error(), Expected: "no cycle: remove one of these dependencies"}
	for _, doc := range c.config.Services {
		if string(doc.Spec.Name) == first.Service {
			at := "requires"
			if first.Kind == plan.Reconcile {
				at = "reconcilers"
			}
			c.report(doc.Decoder, at, fault)
			break
		}
	}
	return false
}

// PlanDefinitions returns the definitions of the commands of plans, each once and in order. They are put into the store before the
// incarnation.
func (c *Compiled) PlanDefinitions() (all []entities.ExtensionDefinition) {
	seen := map[string]bool{}
	for _, channel := range c.Incarnation.Channels() {
		work := c.Incarnation.Work(channel)
		if work == nil {
			continue
		}
		for _, run := range work.AllCommands() {
			if !seen[run.Definition] {
				all = append(all, c.definitions.extensions[run.Definition])
			}
			seen[run.Definition] = true
		}
	}
	return all
}
