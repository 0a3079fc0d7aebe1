package deployment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Alteration is what an operator did to a running workflow, or to one of its activities, that keeps it from doing its work: the pause of
// either, or a change of the options of an activity.
type Alteration struct {
	Workflow string    // its id
	Activity string    // the id of the activity; empty: the workflow itself is paused
	Type     string    // the type of the activity
	Changed  string    // the changed option that keeps the activity from its work; empty: it is paused
	Rule     string    // the id of the workflow rule that paused the activity; empty: a person did
	By       string    // the identity of the person, as the server has it; empty: unknown
	Reason   string    // their reason, if they gave one
	Since    time.Time // zero: unknown
}

// IsObservation reports whether it keeps an observation from reading. Readings change nothing.
func (a Alteration) IsObservation() bool { return isObservation(a.Type) }

func isObservation(activityType string) bool {
	return activityType == protocol.ActivityObserve || activityType == protocol.ActivityObserveAll
}

// maxReason is the limit on the reason of an operator in a text, in bytes.
const maxReason = 300

// Text says what was done, by whom, since when, and what that keeps from happening.
func (a Alteration) Text() string {
	what := "its workflow"
	if a.Activity != "" {
		what = fmt.Sprintf("its activity %s (%s)", a.Type, a.Activity)
	}
	switch {
	case a.Changed != "":
		what += " was changed by an operator: " + a.Changed
	case a.Rule != "":
		what += " is paused by the workflow rule " + a.Rule
	default:
		what += " is paused by an operator"
	}
	if a.By != "" {
		what += " (" + a.By + ")"
	}
	if !a.Since.IsZero() {
		what += " since " + a.Since.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	if reason := strings.Join(strings.Fields(a.Reason), " "); reason != "" {
		what += ": " + entities.Clip(reason, maxReason)
	}
	return what + "; " + a.effect()
}

// effect is what does not happen meanwhile.
func (a Alteration) effect() string {
	switch {
	case a.Activity == "":
		return "it deploys and repairs nothing, and answers nobody; its status is unknown"
	case a.IsObservation():
		return "changes and drift are not seen, so that the status may be out of date"
	case a.Type == protocol.ActivityApply:
		return "the apply waits, and so does everything after it"
	case a.Type == protocol.ActivityCheck:
		return "the conditions that it evaluates keep their last result"
	}
	return "what depends on it waits"
}

// Next is the command that undoes it.
func (a Alteration) Next() string {
	id, activity := entities.ShellWord(a.Workflow), entities.ShellWord(a.Activity)
	switch {
	case a.Activity == "":
		return "temporal workflow unpause --workflow-id " + id
	case a.Changed != "":
		return fmt.Sprintf("temporal activity update-options --workflow-id %s --activity-id %s --restore-original-options", id, activity)
	case a.Rule != "":
		return fmt.Sprintf("remove the rule %s (DeleteWorkflowRule), then: temporal activity unpause --workflow-id %s --activity-id %s", a.Rule, id, activity)
	}
	return fmt.Sprintf("temporal activity unpause --workflow-id %s --activity-id %s", id, activity)
}

// Altered describes a workflow, and returns what operators did to its newest run, in a fixed order. A workflow that has ended has nothing.
func (n Namespace) Altered(ctx context.Context, id string) ([]Alteration, error) {
	d, err := n.Client.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return nil, err
	}
	return Alterations(d), nil
}

// Alterations are what operators did to a run that the server describes, in a fixed order.
func Alterations(d *workflowservice.DescribeWorkflowExecutionResponse) (all []Alteration) {
	info := d.GetWorkflowExecutionInfo()
	if info.GetCloseTime() != nil {
		return nil
	}
	id := info.GetExecution().GetWorkflowId()
	if p := d.GetWorkflowExtendedInfo().GetPauseInfo(); p != nil {
		all = append(all, Alteration{Workflow: id, By: p.GetIdentity(), Reason: p.GetReason(), Since: p.GetPausedTime().AsTime()})
	}
	for _, activity := range d.GetPendingActivities() {
		a := Alteration{Workflow: id, Activity: activity.GetActivityId(), Type: activity.GetActivityType().GetName()}
		if activity.GetPaused() {
			all = append(all, a.pausedBy(activity.GetPauseInfo()))
		}
		if a.Changed = changedOption(activity); a.Changed != "" {
			all = append(all, a)
		}
	}
	slices.SortStableFunc(all, func(a, b Alteration) int { return strings.Compare(a.Activity, b.Activity) })
	return all
}

func (a Alteration) pausedBy(p *workflowpb.PendingActivityInfo_PauseInfo) Alteration {
	if p.GetPauseTime() != nil {
		a.Since = p.GetPauseTime().AsTime()
	}
	a.By, a.Reason = p.GetManual().GetIdentity(), p.GetManual().GetReason()
	if rule := p.GetRule(); rule != nil {
		a.Rule, a.By, a.Reason = rule.GetRuleId(), rule.GetIdentity(), rule.GetReason()
	}
	return a
}

// minReadingTimeout is below the timeout of every observation: workflows add a margin of half a minute to that of the reading.
const minReadingTimeout = 30 * time.Second

// changedOption is the changed option of an activity that keeps it from its work: a queue that only others poll, or a timeout that no
// reading can meet.
func changedOption(activity *workflowpb.PendingActivityInfo) string {
	o := activity.GetActivityOptions()
	if queue := o.GetTaskQueue().GetName(); queue != "" && !protocol.OwnTaskQueue(queue) {
		return "its task queue is " + queue + ", which no worker of Converge polls"
	}
	timeout := o.GetStartToCloseTimeout().AsDuration()
	if isObservation(activity.GetActivityType().GetName()) && timeout > 0 && timeout < minReadingTimeout {
		return "its start-to-close timeout is " + timeout.String()
	}
	return ""
}
