package workflows

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// managedState is the part of an application's state about unmanaged services: it ends their workflows, and starts them again later (F1).
type managedState struct {
	// Unmanaged has at most one entry per service, and one for all services.
	Unmanaged protocol.UnmanagedServices `json:"unmanaged,omitempty"`
	// Ending is set while workflows of unmanaged services remain to be ended.
	Ending bool `json:"ending,omitempty"`
	// Unended are the services whose workflows could not be ended.
	Unended unreached `json:"unended,omitzero"`
	// PendingStarts are the services that are managed again and must still be started, with the reason.
	PendingStarts map[string]string `json:"again,omitempty"`
}

// unmanageWork is the work in progress on unmanaged services.
type unmanageWork struct {
	running  bool // services are being ended
	revision int  // how often the request changed in this run
	stop     workflow.CancelFunc
}

// unmanage stops managing a service, or all of them.
func (a *application) unmanage(r verb.Request, who entities.Who) (state.Effect, error) {
	if err := a.checkUnmanage(r); err != nil {
		return nil, err
	}
	service, name := a.managedService(r)
	return func() string {
		if a.state.Unmanaged == nil {
			a.state.Unmanaged = protocol.UnmanagedServices{}
		}
		a.state.Unmanaged[service] = protocol.Unmanaged{By: who.Name, Reason: clip(r.Reason), At: a.now()}
		if delete(a.state.PendingStarts, service); service == protocol.AllServices {
			clear(a.state.PendingStarts)
		}
		a.restartManaging()
		a.recordAuditOf(strings.TrimPrefix(service, protocol.AllServices), entities.EventManage, &who, name+" unmanaged", r.Reason)
		return fmt.Sprintf("%s is unmanaged: it is neither observed nor applied until: converge config manage %s", name, name)
	}, nil
}

// maxUnmanaged is the limit on services that are unmanaged individually.
const maxUnmanaged = 50

func (a *application) checkUnmanage(r verb.Request) error {
	most := 0
	for _, i := range a.state.Incarnations {
		most = max(most, i.Services)
	}
	service, name := a.managedService(r)
	already, all := a.state.Unmanaged[service], a.state.Unmanaged[protocol.AllServices]
	switch {
	case len(a.state.Incarnations) == 0:
		return errors.New("nothing was published yet")
	case all.By != "":
		return fmt.Errorf("all of %s is unmanaged already, by %s", a.name, all.By)
	case already.By != "":
		return fmt.Errorf("%s is unmanaged already, by %s", name, already.By)
	case r.Service != "" && len(a.state.Unmanaged) >= most:
		return fmt.Errorf("%d services are unmanaged already, which are all", len(a.state.Unmanaged))
	case r.Service != "" && len(a.state.Unmanaged) >= maxUnmanaged:
		return fmt.Errorf("%d services are unmanaged individually already, which is the limit; to unmanage all of them: converge config unmanage %s", maxUnmanaged, a.name)
	}
	return nil
}

// manage resumes managing a service, or all services that were unmanaged together.
func (a *application) manage(r verb.Request, who entities.Who) (state.Effect, error) {
	service, name := a.managedService(r)
	_, all := a.state.Unmanaged[protocol.AllServices]
	switch _, unmanaged := a.state.Unmanaged[service]; {
	case !unmanaged && all:
		return nil, fmt.Errorf("all of %s is unmanaged, not %s alone; instead: converge config manage %s", a.name, name, a.name)
	case !unmanaged && r.Service == "":
		return nil, fmt.Errorf("%s is not unmanaged%s", name, a.state.otherUnmanaged())
	case !unmanaged:
		return nil, fmt.Errorf("%s is not unmanaged", name)
	}
	return func() string {
		delete(a.state.Unmanaged, service)
		a.queueStart(service, "managed again by "+who.Name+entities.Because(clip(r.Reason)))
		a.restartManaging()
		a.recordAuditOf(strings.TrimPrefix(service, protocol.AllServices), entities.EventManage, &who, name+" managed again", r.Reason)
		return fmt.Sprintf("%s is managed again%s", name, a.state.otherUnmanaged())
	}, nil
}

// queueStart makes the next notification start a service, unless the service is unmanaged.
func (a *application) queueStart(service, why string) {
	if a.state.PendingStarts == nil {
		a.state.PendingStarts = map[string]string{}
	}
	a.state.PendingStarts[service] = why
}

// managedService returns the key of the service that a request names, or the key for all services, and the display name.
func (a *application) managedService(r verb.Request) (service, name string) {
	if r.Service == "" {
		return protocol.AllServices, a.name
	}
	service = a.state.Names.Key(r.Service)
	return service, a.name + "/" + a.state.Names.Title(service)
}

// restartManaging restarts the work in progress, because it may end or start the wrong services.
func (a *application) restartManaging() {
	a.unmanaging.revision++
	if a.notifying {
		a.stopNotifying()
	}
	if a.unmanaging.running {
		a.unmanaging.stop()
	}
	a.state.Ending = len(a.state.Unmanaged) > 0
}

// problemUnmanage is the kind of the problem that services cannot be ended.
const problemUnmanage = "unmanaging"

// endUnmanaged ends the workflows of unmanaged services. Nothing is started until it is done.
func (a *application) endUnmanaged() {
	if a.unmanaging.running || !a.state.Ending && !a.state.Unended.due(a.now()) {
		return
	}
	ctx, stop := workflow.WithCancel(a.workCtx)
	ctx = withLongActivity(ctx, "end unmanaged services")
	a.unmanaging.running, a.unmanaging.stop = true, stop
	revision := a.unmanaging.revision
	future := workflow.ExecuteActivity(ctx, protocol.ActivityUnmanage, protocol.UnmanageRequest{
		Application: a.name, Manifest: a.wantedNotice().Manifest, Services: a.state.reasons(),
	})
	a.trackOperation(func(ctx workflow.Context) {
		var answer protocol.UnmanageAnswer
		err := future.Get(ctx, &answer)
		a.unmanaging.running = false
		switch {
		case temporal.IsCanceledError(err) || revision != a.unmanaging.revision: // the next reconciliation starts it again if it is still due
		case err != nil: // its worker was gone for over an hour: start again
			a.setProblem(problemUnmanage, "services are not ended yet: "+rootCause(err))
		default:
			a.recordEnded(answer)
		}
	})
}

// recordEnded records that all services were ended except those listed in the answer. A service that is not declared is removed from
// Unmanaged.
func (a *application) recordEnded(answer protocol.UnmanageAnswer) {
	for _, service := range answer.Undeclared {
		delete(a.state.Unmanaged, service)
		a.recordRefusal(protocol.Unmanage, nil, fmt.Sprintf("%s declares no service %q", a.name, service), a.now())
	}
	a.state.Ending = false
	a.state.Unended = a.state.Unended.after(answer.Unreached, a.now())
	if len(answer.Services) > 0 {
		a.setProblem(problemUnmanage, a.state.Unended.text("not ended"))
	} else {
		a.clearProblem(problemUnmanage)
	}
}

// nextEndAttempt is the time of the next attempt to end the services that could not be ended; zero while an attempt runs.
func (a *application) nextEndAttempt() time.Time {
	if a.unmanaging.running {
		return time.Time{}
	}
	return a.state.Unended.Next
}

// removeStarted removes the services that were started again.
func (m *managedState) removeStarted(started map[string]string) {
	for service, why := range started {
		if m.PendingStarts[service] == why {
			delete(m.PendingStarts, service)
		}
	}
}

// reasons maps the services that are ended to the reason.
func (m *managedState) reasons() map[string]string {
	if len(m.Unmanaged) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, service := range entities.SortedKeys(m.Unmanaged) {
		out[service] = m.Unmanaged[service].Text()
	}
	return out
}

// otherUnmanaged lists the individually unmanaged services, for display.
func (m *applicationState) otherUnmanaged() string {
	if names := m.unmanagedNames(); names != "" {
		return "; unmanaged individually: " + names
	}
	return ""
}

// unmanagedNames lists the first few individually unmanaged services.
func (m *applicationState) unmanagedNames() string {
	const shown = 5
	var names []string
	for _, service := range entities.SortedKeys(m.Unmanaged) {
		if service != protocol.AllServices {
			names = append(names, m.Names.Title(service))
		}
	}
	text := strings.Join(names[:min(len(names), shown)], ", ")
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// unmanagedText describes the unmanaged services for the Temporal UI.
func (m *applicationState) unmanagedText() (text string) {
	if all, ok := m.Unmanaged[protocol.AllServices]; ok {
		text = fmt.Sprintf("\n\n**unmanaged by %s** since %s%s", explain.Plain(all.By), all.At.UTC().Format(dateTime), reasonText(all.Reason))
	}
	if names := m.unmanagedNames(); names != "" {
		text += "\n\n**unmanaged**: " + explain.Plain(names)
	}
	return text
}
