package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

// This file coordinates joint releases (B8), one after the other, in the order in which they were accepted. The store holds proposals and
// decisions; the workflow holds only the progress.

// joint is a joint release. Services are identified by their first names.
type joint struct {
	ID        string            `json:"id"`
	Services  map[string]string `json:"services"` // version
	Who       entities.Who      `json:"who"`
	Reason    string            `json:"reason,omitempty"`
	At        time.Time         `json:"at"`
	Decided   bool              `json:"decided,omitempty"`
	Committed bool              `json:"committed,omitempty"`
	Why       string            `json:"why,omitempty"` // the reason for an abort
	// Waiting are the services that have not carried out the decision yet; the request to them is repeated.
	Waiting []string          `json:"waiting,omitempty"`
	Failed  map[string]string `json:"failed,omitempty"` // services that failed to carry it out
	Tries   int               `json:"tries,omitempty"`
	Next    time.Time         `json:"next,omitzero"`
}

// finished reports whether nothing remains to be done.
func (j *joint) finished() bool { return j.Decided && len(j.Waiting) == 0 }

// Bounds on the joint releases in the state.
const (
	maxJoints         = 50 // unfinished
	maxFinishedJoints = 20 // finished; the oldest are dropped first
)

func (s *applicationState) joint(id string) *joint {
	if n := slices.IndexFunc(s.Joints, func(j *joint) bool { return j.ID == id }); n >= 0 {
		return s.Joints[n]
	}
	return nil
}

// checkJoint refuses a joint release that cannot be proposed now.
func (a *application) checkJoint(r verb.Request) error {
	open := 0
	for _, j := range a.state.Joints {
		if !j.finished() {
			open++
		}
	}
	switch {
	case len(a.state.Incarnations) == 0:
		return errors.New("nothing was published yet")
	case open >= maxJoints:
		return fmt.Errorf("%d joint releases are in progress, which is the limit", open)
	}
	for _, name := range entities.SortedKeys(r.Joint.Services) {
		if u, down := a.state.Unmanaged.Of(a.state.Names.Key(name)); down {
			return fmt.Errorf("%s/%s is unmanaged by %s: %s", a.name, name, u.By, u.Reason)
		}
	}
	return nil
}

// propose records a joint release, to be decided. The answer has its id.
func (a *application) propose(ctx workflow.Context, r verb.Request, who entities.Who) (any, error) {
	if err := a.checkJoint(r); err != nil {
		return nil, asRefusal(err)
	}
	proposal := protocol.Joint{Application: a.name, ID: r.ID, Services: map[string]protocol.ServiceVersion{}, Who: who, At: a.now()}
	for _, name := range entities.SortedKeys(r.Joint.Services) {
		proposal.Services[a.state.Names.Key(name)] = r.Joint.Services[name]
	}
	if proposal.ID == "" {
		proposal.ID = a.jointID(r)
	}
	var answer protocol.ProposeAnswer
	request := protocol.ProposeRequest{Joint: proposal, Manifest: a.wantedNotice().Manifest}
	if err := a.callStore(ctx, protocol.ActivityPropose, request, &answer); err != nil {
		return nil, refuseIfDamaged(err)
	}
	known := a.state.joint(proposal.ID) != nil
	if !known {
		a.addJoint(answer, r.Reason)
	}
	out := protocol.JointAnswer{ID: proposal.ID, Services: map[string]string{}, Repeated: known || answer.Decision != nil}
	for _, name := range entities.SortedKeys(r.Joint.Services) {
		out.Services[name] = r.Joint.Services[name].Version
	}
	return out, nil
}

// jointID is the default id of a joint release. The same request gets the same id.
func (a *application) jointID(r verb.Request) string {
	of := []string{a.name, r.RequestID, r.RequestDigest}
	if r.RequestID == "" { // a signal
		of = append(of, entities.DigestOf(r.Joint.Services), a.now().UTC().Format(time.RFC3339Nano))
	}
	return "r-" + entities.DigestOf(of)[:12]
}

// addJoint adds a joint release to the state, to be decided or, if a decision exists already, to be carried out.
func (a *application) addJoint(p protocol.ProposeAnswer, reason string) {
	j := &joint{ID: p.Joint.ID, Services: map[string]string{}, Who: p.Joint.Who, Reason: clip(reason), At: p.Joint.At}
	for _, service := range entities.SortedKeys(p.Joint.Services) {
		j.Services[service] = p.Joint.Services[service].Version
		j.Waiting = append(j.Waiting, service)
	}
	if d := p.Decision; d != nil {
		j.Decided, j.Committed, j.Why = true, d.Committed, d.Why
		if !d.Committed {
			j.Waiting = nil
		}
	}
	finished := maxFinishedJoints
	for n := len(a.state.Joints) - 1; n >= 0; n-- {
		if a.state.Joints[n].finished() {
			if finished--; finished < 0 {
				a.state.Joints = slices.Delete(a.state.Joints, n, n+1)
			}
		}
	}
	a.state.Joints = append(a.state.Joints, j)
}

// awaitDecision waits for the decision on a joint release. An aborted joint release is refused as a whole.
func (a *application) awaitDecision(ctx workflow.Context, out json.RawMessage) (json.RawMessage, error) {
	var answer protocol.JointAnswer
	if err := json.Unmarshal(out, &answer); err != nil {
		return nil, fmt.Errorf("answer to release: %w", err)
	}
	known := func() bool { j := a.state.joint(answer.ID); return j == nil || j.Decided }
	if err := workflow.Await(ctx, known); err != nil {
		return nil, err
	}
	if j := a.state.joint(answer.ID); j != nil && !j.Committed {
		return nil, asRefusal(fmt.Errorf("joint release %s is refused: %s", j.ID, j.Why))
	}
	return out, nil
}

// nextJoint is the first joint release that is due for work.
func (a *application) nextJoint() *joint {
	for _, j := range a.state.Joints {
		if !j.finished() && !a.now().Before(j.Next) {
			return j
		}
	}
	return nil
}

// startDecision starts the activity for the next joint release: its services promise their parts, then carry out the decision.
func (a *application) startDecision() {
	j := a.nextJoint()
	if j == nil || a.deciding || j.Decided && a.blocksNewWork() { // a caller may wait for the decision, and no run ends before it
		return
	}
	a.deciding = true
	ctx := workflow.WithActivityOptions(a.workCtx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, HeartbeatTimeout: heartbeat,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 15 * time.Second},
		Summary:     summary("release " + j.ID + ": " + a.state.versions(j)),
	})
	future := workflow.ExecuteActivity(ctx, protocol.ActivityDecide, protocol.DecideRequest{Application: a.name, ID: j.ID, Services: j.Waiting})
	a.trackOperation(func(ctx workflow.Context) {
		var answer protocol.DecideAnswer
		err := future.Get(ctx, &answer)
		switch {
		case temporal.IsCanceledError(err):
			return // the work in progress was dropped
		case err != nil: // its worker was gone for over an hour, or a record is damaged: retry
			a.setProblem(problemRelease, "release "+j.ID+" is not decided: "+rootCause(err))
			j.Tries++
			j.Next = workflow.Now(ctx).Add(maxNotifyDelay)
		default:
			a.recordDecision(j, answer)
		}
		a.deciding = false
	})
}

// problemRelease is the kind of the problem that a joint release is not carried out everywhere.
const problemRelease = "release"

// recordDecision records the decision, and the services that have not carried it out yet.
func (a *application) recordDecision(j *joint, answer protocol.DecideAnswer) {
	if !j.Decided {
		j.Decided, j.Committed, j.Why = true, answer.Decision.Committed, answer.Decision.Why
		text := "release " + j.ID + " of " + a.state.versions(j)
		if !j.Committed {
			text += " refused: " + j.Why
		}
		a.recordAudit(entities.EventRelease, &j.Who, text, j.Reason)
	}
	j.Waiting = answer.Services
	for _, service := range entities.SortedKeys(answer.Failed) {
		if j.Failed == nil {
			j.Failed = map[string]string{}
		}
		j.Failed[service] = clip(answer.Failed[service])
	}
	a.clearProblem(problemRelease)
	if len(j.Waiting) == 0 {
		return
	}
	j.Next = a.now().Add(min(time.Second<<min(j.Tries, 10), maxNotifyDelay))
	j.Tries++
	a.setProblem(problemRelease, clip(fmt.Sprintf("release %s is not carried out by %s yet; the request is repeated (%s)", j.ID, strings.Join(j.Waiting, ", "), answer.Why)))
}

// nextJointAttempt is the time of the next retry for services that have not carried out a joint release; zero while one is being decided.
func (a *application) nextJointAttempt() time.Time {
	var next time.Time
	if a.deciding || a.blocksNewWork() {
		return next
	}
	for _, j := range a.state.Joints {
		if !j.finished() {
			next = earliest(next, j.Next)
		}
	}
	return next
}

// versions lists the versions of a joint release for display: "api v2, web v3".
func (s *applicationState) versions(j *joint) string {
	var parts []string
	for _, service := range entities.SortedKeys(j.Services) {
		parts = append(parts, s.Names.Title(service)+" "+j.Services[service])
	}
	return strings.Join(parts, ", ")
}

// joints lists the joint releases for the status.
func (s *applicationState) joints() []protocol.JointStatus {
	var out []protocol.JointStatus
	for _, j := range s.Joints {
		shown := protocol.JointStatus{
			ID: j.ID, Services: map[string]string{}, By: j.Who.Name, At: j.At, Phase: protocol.JointDeciding, Why: j.Why, Failed: j.Failed,
		}
		switch {
		case j.Committed:
			shown.Phase = protocol.JointCommitted
		case j.Decided:
			shown.Phase = protocol.JointAborted
		}
		for _, service := range entities.SortedKeys(j.Services) {
			shown.Services[s.Names.Title(service)] = j.Services[service]
		}
		if j.Decided {
			for _, service := range j.Waiting {
				shown.Waiting = append(shown.Waiting, s.Names.Title(service))
			}
		}
		out = append(out, shown)
	}
	return out
}
