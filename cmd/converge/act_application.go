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

// whole is a workflow for many services: the workflow of an application, of a runtime or of the installation. Absent says why it may
// not exist.
type whole struct{ name, id, absent string }

func wholeApplication(name string) whole {
	return whole{name, protocol.ApplicationID(name), "not found"}
}

func wholeRuntime(name string) whole {
	return whole{"runtime/" + name, protocol.RuntimeID(name), "not found"}
}

func wholeInstallation() whole {
	return whole{"everything", protocol.InstallationID(), "no worker has served this namespace yet"}
}

// actOnWhole sends an act to an application or a runtime and prints its answer.
func (f *Factory) actOnWhole(ctx context.Context, w whole, verb string, act protocol.Act, request any) error {
	var answer protocol.Answer
	err := f.send(ctx, w.id, verb, act.RequestID, request, &answer)
	switch {
	case errors.Is(err, errNotFound):
		return fmt.Errorf("%s %s: %s", verb, w.name, w.absent)
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

// application pauses or resumes all services of an application at once, including future ones (A16).
func (o *scopeOptions) application(ctx context.Context) error {
	names, err := o.f.servicesOf(ctx, o.target.application)
	if err != nil {
		return err
	}
	if err := o.f.confirmAll(ctx, o.yes, o.verb, names); err != nil {
		return err
	}
	act := o.f.newAct(o.reason)
	return o.f.actOnWhole(ctx, wholeApplication(o.target.application), o.verb, act, act)
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

// onRuntime pauses or resumes a runtime: while it is paused, nothing is applied there for any service (A16). A runtime without a limit
// on its applies has no workflow until its first pause. The workflow is started only if some service uses the runtime.
func (o *scopeOptions) onRuntime(ctx context.Context) error {
	if o.channel != "" {
		return fmt.Errorf("--channel: a runtime can only be paused as a whole; name a service to pause one channel")
	}
	if err := o.f.confirm(ctx, o.yes, fmt.Sprintf("%s everything on runtime %s", o.verb, o.runtime)); err != nil {
		return err
	}
	act, w := o.f.newAct(o.reason), wholeRuntime(o.runtime)
	if o.verb == protocol.Pause {
		if err := o.f.runtimeThere(ctx, o.runtime, w.id); err != nil {
			return err
		}
	}
	return o.f.actOnWhole(ctx, w, o.verb, act, act)
}

// alone refuses --all together with a name, and --except without --all.
func (o *scopeOptions) alone(args []string) error {
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

// everything pauses or resumes all services of all applications, including future ones (A16).
func (o *scopeOptions) everything(ctx context.Context) error {
	question := o.verb + " all services of all applications"
	if len(o.except) > 0 {
		question += " except " + strings.Join(o.except, ", ")
	}
	if err := o.spared(ctx); err != nil {
		return err
	}
	if err := o.f.confirm(ctx, o.yes, question); err != nil {
		return err
	}
	act := o.f.newAct(o.reason)
	if o.verb == protocol.Pause {
		return o.f.actOnWhole(ctx, wholeInstallation(), o.verb, act, protocol.PauseAllRequest{Act: act, Except: o.except})
	}
	return o.f.actOnWhole(ctx, wholeInstallation(), o.verb, act, act)
}

// spared checks that the applications that are excluded exist. A misspelt name would pause the application that it should exclude.
func (o *scopeOptions) spared(ctx context.Context) error {
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

// runtimeThere makes sure that a runtime that services use has its workflow.
func (f *Factory) runtimeThere(ctx context.Context, name, id string) error {
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
	return api.Start(ctx, id, protocol.RuntimeWorkflow, protocol.RuntimeInput{Runtime: name, Beginning: protocol.Beginning{Adopt: true}})
}

// incarnationOptions are the options of pin and unpin for a whole application (D15).
type incarnationOptions struct {
	f           *Factory
	verb        string
	application string
	incarnation int64
	reason      string
	yes         bool
}

// orApplication lets pin and unpin accept an application instead of a service and a channel.
func orApplication(f *Factory, cmd *cobra.Command) *cobra.Command {
	o := &incarnationOptions{f: f, verb: cmd.Name()}
	service := cmd.RunE
	short := "unpin APP"
	if o.verb == protocol.Pin {
		short = "pin APP --incarnation N"
		cmd.Flags().Int64Var(&o.incarnation, "incarnation", 0, "pin all services of the application to this incarnation")
	}
	cmd.Use += " | " + short
	cmd.Long = strings.TrimSpace(cmd.Long + "\n\nFor an application: pin moves all its services to an incarnation, like a change of the\nconfiguration; what is published afterwards waits until unpin.")
	cmd.Example += "\n  converge " + strings.Replace(strings.Replace(short, "APP", "shop", 1), "N", "41", 1)
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "skip the confirmation if more than one service is affected")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if len(given) > 1 && o.incarnation != 0 {
			return fmt.Errorf("--incarnation applies to an application only: converge %s", short)
		}
		if len(given) > 1 {
			return service(cmd, given)
		}
		o.application = given[0]
		o.reason, _ = cmd.Flags().GetString("reason")
		return o.run(cmd.Context())
	}
	return cmd
}

func (o *incarnationOptions) run(ctx context.Context) error {
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
	request := protocol.IncarnationPin{Act: o.f.newAct(o.reason), Incarnation: o.incarnation}
	if o.verb == protocol.Unpin {
		return o.f.actOnWhole(ctx, wholeApplication(o.application), o.verb, request.Act, request.Act)
	}
	return o.f.actOnWhole(ctx, wholeApplication(o.application), o.verb, request.Act, request)
}
