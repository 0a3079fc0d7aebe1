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
	// Again are the services that are managed again and must still be started, with the reason.
	Again map[string]string `json:"again,omitempty"`
}

// managing is the work in progress on unmanaged services.
type managing struct {
	running bool // services are being ended
	asked   int  // how often the request changed in this run
	stop    workflow.CancelFunc
}

// unmanage stops managing a service, or all of them.
func (a *application) unmanage(r verb.Request, who entities.Who) (state.Effect, error) {
	if err := a.unmanageable(r); err != nil {
		return nil, err
	}
	service, name := a.concerned(r)
	return func() string {
		if a.state.Unmanaged == nil {
			a.state.Unmanaged = protocol.UnmanagedServices{}
		}
		a.state.Unmanaged[service] = protocol.Unmanaged{By: who.Name, Reason: clip(r.Reason), At: a.now()}
		if delete(a.state.Again, service); service == protocol.AllServices {
			clear(a.state.Again)
		}
		a.remanage()
		a.note(entities.EventManage, &who, name+" unmanaged", r.Reason)
		return fmt.Sprintf("%s is unmanaged: it is neither observed nor applied until: converge manage %s", name, name)
	}, nil
}

// maxUnmanaged is the limit on services that are unmanaged individually.
const maxUnmanaged = 50

func (a *application) unmanageable(r verb.Request) error {
	most := 0
	for _, i := range a.state.Incarnations {
		most = max(most, i.Services)
	}
	service, name := a.concerned(r)
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
		return fmt.Errorf("%d services are unmanaged individually already, which is the limit; to unmanage all of them: converge unmanage %s", maxUnmanaged, a.name)
	}
	return nil
}

// manage resumes managing a service, or all services that were unmanaged together.
func (a *application) manage(r verb.Request, who entities.Who) (state.Effect, error) {
	service, name := a.concerned(r)
	_, all := a.state.Unmanaged[protocol.AllServices]
	switch _, unmanaged := a.state.Unmanaged[service]; {
	case !unmanaged && all:
		return nil, fmt.Errorf("all of %s is unmanaged, not %s alone; instead: converge manage %s", a.name, name, a.name)
	case !unmanaged && r.Service == "":
		return nil, fmt.Errorf("%s is not unmanaged%s", name, a.state.others())
	case !unmanaged:
		return nil, fmt.Errorf("%s is not unmanaged", name)
	}
	return func() string {
		delete(a.state.Unmanaged, service)
		a.startAgain(service, "managed again by "+who.Name+entities.Because(clip(r.Reason)))
		a.remanage()
		a.note(entities.EventManage, &who, name+" managed again", r.Reason)
		return fmt.Sprintf("%s is managed again%s", name, a.state.others())
	}, nil
}

// startAgain makes the next notification start a service, unless the service is unmanaged.
func (a *application) startAgain(service, why string) {
	if a.state.Again == nil {
		a.state.Again = map[string]string{}
	}
	a.state.Again[service] = why
}

// concerned returns the key of the service that a request names, or the key for all services, and the display name.
func (a *application) concerned(r verb.Request) (service, name string) {
	if r.Service == "" {
		return protocol.AllServices, a.name
	}
	service = a.state.Names.Key(r.Service)
	return service, a.name + "/" + a.state.Names.Title(service)
}

// remanage restarts the work in progress, because it may end or start the wrong services.
func (a *application) remanage() {
	a.down.asked++
	if a.notifying {
		a.stop()
	}
	if a.down.running {
		a.down.stop()
	}
	a.state.Ending = len(a.state.Unmanaged) > 0
}

// ends is the kind of trouble in which services cannot be ended.
const ends = "unmanaging"

// end ends the workflows of unmanaged services. Nothing is started until it is done.
func (a *application) end() {
	if a.down.running || !a.state.Ending && !a.state.Unended.due(a.now()) {
		return
	}
	ctx, stop := workflow.WithCancel(a.work)
	ctx = enduring(ctx, "end unmanaged services")
	a.down.running, a.down.stop = true, stop
	asked := a.down.asked
	future := workflow.ExecuteActivity(ctx, protocol.ActivityUnmanage, protocol.UnmanageRequest{
		Application: a.name, Manifest: a.wanted().Manifest, Services: a.state.reasons(),
	})
	a.await(func(ctx workflow.Context) {
		var answer protocol.UnmanageAnswer
		err := future.Get(ctx, &answer)
		a.down.running = false
		switch {
		case temporal.IsCanceledError(err) || asked != a.down.asked: // the next turn starts it again if it is still due
		case err != nil: // its worker was gone for over an hour: start again
			a.trouble(ends, "services are not ended yet: "+rootCause(err))
		default:
			a.ended(answer)
		}
	})
}

// ended records that all services were ended except those listed in the answer. A service that is not declared is removed from Unmanaged.
func (a *application) ended(answer protocol.UnmanageAnswer) {
	for _, service := range answer.Undeclared {
		delete(a.state.Unmanaged, service)
		a.refuse(protocol.Unmanage, nil, fmt.Sprintf("%s declares no service %q", a.name, service), a.now())
	}
	a.state.Ending = false
	a.state.Unended = a.state.Unended.after(answer.Unreached, a.now())
	if len(answer.Services) > 0 {
		a.trouble(ends, a.state.Unended.text("not ended"))
	} else {
		a.clear(ends)
	}
}

// endsAgain is the time of the next attempt to end the services that could not be ended; zero while an attempt runs.
func (a *application) endsAgain() time.Time {
	if a.down.running {
		return time.Time{}
	}
	return a.state.Unended.Next
}

// begun removes the services that were started again.
func (m *managedState) begun(again map[string]string) {
	for service, why := range again {
		if m.Again[service] == why {
			delete(m.Again, service)
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

// others lists the individually unmanaged services, for display.
func (m *applicationState) others() string {
	if names := m.named(); names != "" {
		return "; unmanaged individually: " + names
	}
	return ""
}

// named lists the first few individually unmanaged services.
func (m *applicationState) named() string {
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
		text = fmt.Sprintf("\n\n**unmanaged by %s** since %s%s", explain.Plain(all.By), all.At.UTC().Format(dateTime), because(all.Reason))
	}
	if names := m.named(); names != "" {
		text += "\n\n**unmanaged**: " + explain.Plain(names)
	}
	return text
}
