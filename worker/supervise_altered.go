package worker

import (
	"context"
	"errors"
	"slices"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/worker/deployment"
)

// This file finds what operators did to activities and workflows in Temporal. A paused observation would go unnoticed: its service reports
// nothing new, as if nothing had changed. Readings change nothing, so a paused or changed observation is resumed. Everything else that is
// paused stays so, since the pause may be meant to stop a change; `converge status` and `converge admin doctor` name it.
//
// The cost does not grow with the services: per check one list of what is paused, and the description of a few workflows in turn, because
// the server does not list changed options.

const (
	// maxResumed is how many workflows are examined per check because an observation of theirs is listed as paused.
	maxResumed = 100
	// describedPerCheck is how many other workflows are described per check, in turn: 100 in less than three minutes.
	describedPerCheck = 5
)

// alterations is what the supervisor knows of the alterations by operators.
type alterations struct {
	paused   map[string]bool // the paused workflows, as of the last check
	listed   int             // the open workflows with something paused, as of the last check
	running  []string        // the workflows to describe in turn, as of the last check by name
	next     int             // the first of them to describe in the next check
	reported map[deployment.Alteration]bool
}

// takeTurn returns the workflows to describe in this check.
func (a *alterations) takeTurn() (ids []string) {
	for range min(describedPerCheck, len(a.running)) {
		ids = append(ids, a.running[a.next%len(a.running)])
		a.next = (a.next + 1) % len(a.running)
	}
	return ids
}

// checkAltered resumes paused and changed observations, and logs everything else that operators altered.
func (s *supervisor) checkAltered(ctx context.Context) error {
	n := deployment.Namespace{Client: s.client, Name: s.namespace}
	paused, listed, ids := map[string]bool{}, 0, s.altered.takeTurn()
	for e, err := range n.Paused(ctx) {
		if err != nil {
			return err
		}
		listed++
		id := e.GetExecution().GetWorkflowId()
		isPaused := e.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED
		if isPaused {
			paused[id] = true
		}
		if len(ids) < maxResumed && !slices.Contains(ids, id) && (isPaused && !s.altered.paused[id] || deployment.PausesObservation(e)) {
			ids = append(ids, id)
		}
	}
	s.altered.paused, s.altered.listed = paused, listed
	var problems []error
	for _, id := range ids {
		problems = append(problems, s.resumeObservations(ctx, n, id))
	}
	return errors.Join(problems...)
}

// resumeObservations resumes the observations of a workflow, and logs what else was altered. A workflow that has just ended has none.
func (s *supervisor) resumeObservations(ctx context.Context, n deployment.Namespace, id string) error {
	all, err := n.Altered(ctx, id)
	for _, a := range all {
		if a.IsObservation() && a.Rule == "" { // a rule would pause it again
			err = errors.Join(err, s.resume(ctx, a))
		} else {
			s.reportAltered(a)
		}
	}
	if errors.As(err, new(*serviceerror.NotFound)) {
		return nil
	}
	return err
}

// resume undoes the alteration of an observation.
func (s *supervisor) resume(ctx context.Context, a deployment.Alteration) (err error) {
	execution := &commonpb.WorkflowExecution{WorkflowId: a.Workflow}
	if a.Changed != "" {
		_, err = s.client.WorkflowService().UpdateActivityOptions(ctx, &workflowservice.UpdateActivityOptionsRequest{
			Namespace: s.namespace, Execution: execution, Identity: s.holder, RestoreOriginal: true,
			Activity: &workflowservice.UpdateActivityOptionsRequest_Id{Id: a.Activity},
		})
	} else {
		_, err = s.client.WorkflowService().UnpauseActivity(ctx, &workflowservice.UnpauseActivityRequest{
			Namespace: s.namespace, Execution: execution, Identity: s.holder,
			Activity: &workflowservice.UnpauseActivityRequest_Id{Id: a.Activity},
		})
	}
	if err == nil {
		s.log.Warn("an observation was resumed; to stop deployments use converge pause, to stop readings too converge config unmanage", "workflow", a.Workflow, "why", a.Text())
	}
	return err
}

// reportAltered logs an alteration once.
func (s *supervisor) reportAltered(a deployment.Alteration) {
	if s.altered.reported[a] {
		return
	}
	if s.altered.reported == nil || len(s.altered.reported) > maxResumed {
		s.altered.reported = map[deployment.Alteration]bool{}
	}
	s.altered.reported[a] = true
	s.log.Warn("an operator stopped work in Temporal", "workflow", a.Workflow, "why", a.Text(), "next", a.Next())
}
