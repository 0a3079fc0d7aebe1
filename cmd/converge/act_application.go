package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/protocol"
)

// scope is a workflow for many services: the workflow of an application, of a runtime or of the installation. missing says why it may
// not exist.
type scope struct{ name, id, missing string }

func applicationScope(name string) scope {
	return scope{name, protocol.ApplicationID(name), "not found"}
}

func runtimeScope(name string) scope {
	return scope{"runtime/" + name, protocol.RuntimeID(name), "not found"}
}

func installationScope() scope {
	return scope{"everything", protocol.InstallationID(), "no worker has served this namespace yet"}
}

// actOnScope sends an act to an application or a runtime and prints its answer.
func (f *Factory) actOnScope(ctx context.Context, w scope, verb string, act protocol.RequestMeta, request any) error {
	var answer protocol.Answer
	err := f.send(ctx, w.id, verb, act.RequestID, request, &answer)
	switch {
	case errors.Is(err, errNotFound):
		return fmt.Errorf("%s %s: %s", verb, w.name, w.missing)
	case transient(err):
		return fmt.Errorf("%s %s: %w; it may have been accepted", verb, w.name, err)
	case err != nil:
		return err
	}
	if f.json() {
		return f.screen().JSON(map[string]string{"name": w.name, "message": answer.Message})
	}
	return f.screen().Lines(answer.Message)
}

// runOnApplication pauses or resumes all services of an application at once, including future ones (A16).
func (o *scopeOptions) runOnApplication(ctx context.Context) error {
	names, err := o.f.servicesOf(ctx, o.target.application)
	if err != nil {
		return err
	}
	if err := o.f.confirmAll(ctx, o.yes, o.verb, names); err != nil {
		return err
	}
	act := o.f.newAct(o.reason)
	return o.f.actOnScope(ctx, applicationScope(o.target.application), o.verb, act, act)
}

// servicesOf returns the running services of an application. The list may be empty, for example while all services are unmanaged. A
// pause of the application still applies to them when they are managed again.
func (f *Factory) servicesOf(ctx context.Context, application string) ([]serviceName, error) {
	names, err := f.services(ctx, target{serviceName: serviceName{application: application}, all: true})
	if err == nil || transient(err) {
		return names, err
	}
	api, e := f.client(ctx)
	if e != nil {
		return nil, e
	}
	var status protocol.ApplicationStatus
	if e = api.Query(ctx, protocol.ApplicationID(application), protocol.QueryStatus, &status); e != nil {
		return nil, err
	}
	return nil, nil
}

// runOnRuntime pauses or resumes a runtime: while it is paused, nothing is applied there for any service (A16). A runtime without a limit
// on its applies has no workflow until its first pause. The workflow is started only if some service uses the runtime.
func (o *scopeOptions) runOnRuntime(ctx context.Context) error {
	if o.channel != "" {
		return fmt.Errorf("--channel: a runtime can only be paused as a whole; name a service to pause one channel")
	}
	if err := o.f.confirm(ctx, o.yes, fmt.Sprintf("%s everything on runtime %s", o.verb, o.runtime)); err != nil {
		return err
	}
	act, w := o.f.newAct(o.reason), runtimeScope(o.runtime)
	if o.verb == protocol.Pause {
		if err := o.f.ensureRuntime(ctx, o.runtime, w.id); err != nil {
			return err
		}
	}
	return o.f.actOnScope(ctx, w, o.verb, act, act)
}

// checkAll refuses --all together with a name, and --except without --all.
func (o *scopeOptions) checkAll(args []string) error {
	if !o.all {
		return fmt.Errorf("--except requires --all")
	}
	for _, name := range o.except {
		if err := checkName("an application", name); err != nil {
			return fmt.Errorf("--except: %w", err)
		}
	}
	if len(args) > 0 || o.channel != "" {
		return fmt.Errorf("--all takes no arguments and no --channel")
	}
	return nil
}

// runOnEverything pauses or resumes all services of all applications, including future ones (A16).
func (o *scopeOptions) runOnEverything(ctx context.Context) error {
	question := o.verb + " all services of all applications"
	if len(o.except) > 0 {
		question += " except " + strings.Join(o.except, ", ")
	}
	if err := o.checkExcept(ctx); err != nil {
		return err
	}
	if err := o.f.confirm(ctx, o.yes, question); err != nil {
		return err
	}
	act := o.f.newAct(o.reason)
	if o.verb == protocol.Pause {
		return o.f.actOnScope(ctx, installationScope(), o.verb, act, protocol.PauseAllRequest{RequestMeta: act, Except: o.except})
	}
	return o.f.actOnScope(ctx, installationScope(), o.verb, act, act)
}

// checkExcept checks that the applications that are excluded exist. A misspelt name would pause the application that it should exclude.
func (o *scopeOptions) checkExcept(ctx context.Context) error {
	if len(o.except) == 0 {
		return nil
	}
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	known, err := api.Applications(ctx)
	if err != nil {
		return fmt.Errorf("list applications: %w", err)
	}
	for _, name := range o.except {
		if !slices.Contains(known, name) {
			return fmt.Errorf("--except %s: no such application%s", name, suggestion(name, known))
		}
	}
	return nil
}

// ensureRuntime makes sure that a runtime that services use has its workflow.
func (f *Factory) ensureRuntime(ctx context.Context, name, id string) error {
	api, err := f.client(ctx)
	if err != nil {
		return err
	}
	var status protocol.RuntimeStatus
	if err := api.Query(ctx, id, protocol.QueryStatus, &status); !errors.Is(err, errNotFound) {
		return err
	}
	services, err := api.Services(ctx, "")
	if err != nil {
		return err
	}
	all, err := each(ctx, services, f.status)
	var used []string
	for _, s := range all {
		for _, c := range s.Channels {
			used = append(used, c.Runtime)
			for _, i := range c.Instances {
				used = append(used, i.Runtime)
			}
		}
	}
	slices.Sort(used)
	if used = slices.Compact(used); !slices.Contains(used, name) {
		return errors.Join(fmt.Errorf("no service uses runtime %s%s", name, suggestion(name, used)), err)
	}
	return api.Start(ctx, id, protocol.RuntimeWorkflow, protocol.RuntimeInput{Runtime: name, StartMode: protocol.StartMode{Adopt: true}})
}

// applicationPinOptions are the options of pin and unpin for a whole application (D15).
type applicationPinOptions struct {
	f           *Factory
	verb        string
	application string
	incarnation int64
	reason      string
	yes         bool
}

// addApplicationForm lets pin and unpin accept an application instead of a service and a channel.
func addApplicationForm(f *Factory, cmd *cobra.Command) *cobra.Command {
	o := &applicationPinOptions{f: f, verb: cmd.Name()}
	runOnService := cmd.RunE
	usage := "unpin APP"
	if o.verb == protocol.Pin {
		usage = "pin APP --incarnation N"
		cmd.Flags().Int64Var(&o.incarnation, "incarnation", 0, "pin all services of the application to this incarnation")
	}
	cmd.Use += " | " + usage
	cmd.Long = strings.TrimSpace(cmd.Long + "\n\nFor an application: pin moves all its services to an incarnation, like a change of the\nconfiguration; what is published afterwards waits until unpin.")
	cmd.Example += "\n  converge " + strings.Replace(strings.Replace(usage, "APP", "shop", 1), "N", "41", 1)
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "skip the confirmation if more than one service is affected")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 && o.incarnation != 0 {
			return fmt.Errorf("--incarnation applies to an application only: converge %s", usage)
		}
		if len(args) > 1 {
			return runOnService(cmd, args)
		}
		o.application = args[0]
		o.reason, _ = cmd.Flags().GetString("reason")
		return o.run(cmd.Context())
	}
	return cmd
}

func (o *applicationPinOptions) run(ctx context.Context) error {
	if err := checkName("an application", o.application); err != nil {
		return err
	}
	if o.verb == protocol.Pin && o.incarnation < 1 {
		return fmt.Errorf("--incarnation is required: converge pin %s --incarnation N; see: converge incarnations %s", o.application, o.application)
	}
	names, err := o.f.servicesOf(ctx, o.application)
	if err != nil {
		return err
	}
	if err := o.f.confirmAll(ctx, o.yes, o.verb, names); err != nil {
		return err
	}
	request := protocol.IncarnationPin{RequestMeta: o.f.newAct(o.reason), Incarnation: o.incarnation}
	if o.verb == protocol.Unpin {
		return o.f.actOnScope(ctx, applicationScope(o.application), o.verb, request.RequestMeta, request.RequestMeta)
	}
	return o.f.actOnScope(ctx, applicationScope(o.application), o.verb, request.RequestMeta, request)
}
