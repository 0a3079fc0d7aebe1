package deployment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Finding is one problem, or one action of a person that may have been forgotten. The codes never change.
type Finding struct {
	Code string `json:"code"`
	What string `json:"what"` // a workflow, a version or a queue
	Why  string `json:"why"`
	Next string `json:"next"` // what to do about it
}

// The codes of findings.
const (
	NoConnection          = "no-connection"           // the server cannot be reached, or rejects these credentials
	NoNamespace           = "no-namespace"            // the namespace does not exist
	NoSearchAttribute     = "no-search-attribute"     // the namespace lacks a search attribute, and every workflow task fails without it
	NoWorkers             = "no-workers"              // no worker serves the task queue
	QueueWithoutWorkers   = "queue-without-workers"   // no worker serves the queue of a runtime with remote workers
	NoCurrentVersion      = "no-current-version"      // workers of a deployment serve, and no version of it is current
	VersionWithoutWorkers = "version-without-workers" // workflows are pinned to a version without workers
	PinnedByOperator      = "pinned-by-operator"      // a person pinned a workflow to a version permanently
	PausedByOperator      = "paused-by-operator"      // a person paused a workflow, or an activity of it, in Temporal
	FailingWorkflow       = "failing-workflow"        // a workflow's task fails repeatedly: no worker can complete it
	EndedWorkflow         = "ended-workflow"          // a workflow was terminated or failed, and was not started again
	RestartedWorkflow     = "restarted-workflow"      // a workflow runs that ended several times within an hour
	UnreadableRuntime     = "unreadable-runtime"      // a runtime cannot be observed
	FailingChannel        = "failing-channel"         // a channel failed, an apply there fails and is repeated, or it does not stay stable
	StaleApproval         = "stale-approval"          // a release has waited for an approval for more than a day
	Undelivered           = "undelivered-events"      // a notification takes no events
	WrongClock            = "wrong-clock"             // the clock of a worker differs from the server's
	UnreachableStore      = "unreachable-store"       // the store cannot be read from here
	UnwritableStore       = "unwritable-store"        // the store cannot be written from here
	StoreOfAnother        = "store-of-another"        // the store belongs to another namespace
	NotExamined           = "not-examined"            // something could not be examined
)

// Report lists the examined items, as text, and the findings, in order.
type Report struct {
	Examined []string  `json:"looked"`
	Findings []Finding `json:"findings"`
}

// AddExamined adds an examined item.
func (r *Report) AddExamined(format string, args ...any) {
	r.Examined = append(r.Examined, fmt.Sprintf(format, args...))
}

// AddFinding adds a finding.
func (r *Report) AddFinding(code, what, why, next string) {
	r.Findings = append(r.Findings, Finding{code, what, why, next})
}

// addFailure adds that something could not be examined, unless err is nil.
func (r *Report) addFailure(what string, err error) {
	if err != nil {
		r.AddFinding(NotExamined, what, err.Error(), "fix that, and run this again")
	}
}

// Examine examines a namespace, its workers and their versions, their workflows, and the systems that they can reach. A failed examination
// is a finding too, and does not stop the others.
func (n Namespace) Examine(ctx context.Context) Report {
	r := Report{Examined: []string{}, Findings: []Finding{}}
	if !n.examineNamespace(ctx, &r) {
		return r
	}
	serving, polled, err := n.countServing(ctx, &r)
	r.addFailure("workers of the task queue", err)
	names, err := n.Deployments(ctx)
	r.addFailure("worker deployments", err)
	for _, name := range slices.Sorted(slices.Values(names)) {
		r.addFailure("worker deployment "+name, n.examineDeployment(ctx, name, polled, &r))
	}
	r.addFailure("workflows that fail", n.examineFailing(ctx, &r))
	r.addFailure("workflows that operators paused", n.examineAltered(ctx, &r))
	r.addFailure("workflows that were ended", n.examineEnded(ctx, &r))
	if serving > 0 {
		r.addFailure("statuses of services", n.examineServices(ctx, &r))
	}
	return r
}

// examineNamespace reports whether the examination can continue.
func (n Namespace) examineNamespace(ctx context.Context, r *Report) bool {
	_, err := n.Client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: n.Name})
	switch {
	case err == nil:
	case errors.As(err, new(*serviceerror.NamespaceNotFound)):
		r.AddFinding(NoNamespace, "namespace "+n.Name, "the server has none of that name", "use another with --namespace, or: temporal operator namespace create --namespace "+n.Name)
		return false
	case errors.As(err, new(*serviceerror.Unavailable)), errors.Is(err, context.DeadlineExceeded), errors.As(err, new(*serviceerror.DeadlineExceeded)):
		r.AddFinding(NoConnection, "the Temporal server", err.Error(), "check the server, and the network between it and here")
		return false
	default: // a caller without that permission may have others
		r.AddFinding(NoConnection, "namespace "+n.Name, err.Error(), "check the API key or the certificate of this connection, and their permissions")
	}
	r.AddExamined("namespace %s", n.Name)
	r.addFailure("search attributes", n.examineAttributes(ctx, r))
	return true
}

func (n Namespace) examineAttributes(ctx context.Context, r *Report) error {
	if len(n.Attributes) == 0 {
		return nil
	}
	existing, err := n.Client.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: n.Name})
	if err != nil {
		return err
	}
	var names []string
	for name := range n.Attributes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if _, present := existing.GetCustomAttributes()[name]; !present {
			r.AddFinding(NoSearchAttribute, name, "the namespace "+n.Name+" has none of that name",
				fmt.Sprintf("a worker with that permission adds it when it starts; else: temporal operator search-attribute create --namespace %s --name %s --type %s", n.Name, name, n.Attributes[name]))
		}
	}
	r.AddExamined("search attributes: %d", len(names))
	return nil
}

// countServing is how many versions of workers serve the common queue.
func (n Namespace) countServing(ctx context.Context, r *Report) (serving int, polled map[Version]time.Time, err error) {
	polled, err = n.Polled(ctx)
	if err != nil {
		return 0, nil, err
	}
	for _, at := range polled {
		if time.Since(at) < n.pollTimeout() {
			serving++
		}
	}
	r.AddExamined("versions of workers at the task queue: %d", serving)
	backlog, oldest, err := n.backlog(ctx)
	if err != nil {
		return serving, polled, err
	}
	text := fmt.Sprintf("tasks that wait at the task queue: %d", backlog)
	if backlog > 0 {
		text += fmt.Sprintf(", the oldest for %s", oldest.Round(time.Second))
	}
	r.AddExamined("%s", text)
	if serving == 0 {
		r.AddFinding(NoWorkers, "namespace "+n.Name, "no worker has polled for "+n.pollTimeout().String(), "start one: converge worker")
	}
	return serving, polled, nil
}

// backlog is how many tasks wait at the common queue, as far as the server knows, and for how long the oldest.
func (n Namespace) backlog(ctx context.Context) (tasks int64, oldest time.Duration, err error) {
	for _, kind := range queueKinds {
		queue, err := n.Client.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
			Namespace: n.Name, TaskQueueType: kind, ReportStats: true,
			TaskQueue: &taskqueuepb.TaskQueue{Name: protocol.TaskQueue, Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
		})
		if err != nil {
			return 0, 0, fmt.Errorf("describe the task queue %s: %w", protocol.TaskQueue, err)
		}
		tasks += queue.GetStats().GetApproximateBacklogCount()
		oldest = max(oldest, queue.GetStats().GetApproximateBacklogAge().AsDuration())
	}
	return tasks, oldest, nil
}

func (n Namespace) examineDeployment(ctx context.Context, name string, polled map[Version]time.Time, r *Report) error {
	info, exists, err := n.Deployment(ctx, name)
	if err != nil || !exists {
		return err
	}
	current := info.RoutingConfig.CurrentVersion
	for _, summary := range info.VersionSummaries {
		v := summary.Version
		served := time.Since(polled[v]) < n.pollTimeout()
		if current == nil && served {
			r.AddFinding(NoCurrentVersion, Text(v), "its workers get no new workflows", setCurrentCommand(v))
		}
		if current != nil && v == *current && served {
			continue
		}
		if err := n.examinePinned(ctx, v, served, r); err != nil {
			return err
		}
	}
	return nil
}

func setCurrentCommand(v Version) string {
	return fmt.Sprintf("temporal worker deployment set-current-version --deployment-name %s --build-id %s", v.DeploymentName, v.BuildID)
}

// examinePinned examines the workflows of a version that is not current, or has no workers.
func (n Namespace) examinePinned(ctx context.Context, v Version, served bool, r *Report) error {
	pinned := 0
	for e, err := range n.Pinned(ctx, v) {
		if err != nil {
			return err
		}
		pinned++
		info, err := n.versioning(ctx, e)
		if err != nil {
			return err
		}
		if to := OverriddenTo(info); to != (Version{}) {
			r.AddFinding(PinnedByOperator, e.Execution.WorkflowId, "pinned to "+Text(to)+", independent of the current version",
				"temporal workflow update-options --workflow-id "+entities.ShellWord(e.Execution.WorkflowId)+" --versioning-override-behavior unspecified")
		}
	}
	r.AddExamined("%s: %d workflows", Text(v), pinned)
	if pinned > 0 && !served {
		r.AddFinding(VersionWithoutWorkers, Text(v), fmt.Sprintf("%d workflows are pinned to it, and no worker serves it", pinned),
			"start its workers, or those of another version with --set-current, which take over within two minutes all that are not pinned by a person")
	}
	return nil
}

// maxNamed is the limit on named workflows per kind.
const maxNamed = 20

// problemsAttribute is the search attribute by which servers report workflows whose tasks fail. Older servers do not have it.
const problemsAttribute = "TemporalReportedProblems"

// hasNoProblemsAttribute reports whether a server refused a query because it does not have problemsAttribute.
func hasNoProblemsAttribute(err error) bool {
	var invalid *serviceerror.InvalidArgument
	return errors.As(err, &invalid) && strings.Contains(invalid.Message, problemsAttribute)
}

func (n Namespace) examineFailing(ctx context.Context, r *Report) error {
	failing := 0
	for e, err := range n.list(ctx, longLived+" AND "+problemsAttribute+" IS NOT NULL") {
		if hasNoProblemsAttribute(err) {
			r.AddExamined("workflows that fail repeatedly: not known, because this server does not list them (it has no search attribute %s)", problemsAttribute)
			return nil
		}
		if err != nil {
			return err
		}
		if failing++; failing <= maxNamed {
			why := "its workflow task fails repeatedly"
			if f, failed, err := n.LastFailure(ctx, e.Execution.WorkflowId, e.Execution.RunId); err == nil && failed {
				why += ", " + f.Text()
			}
			r.AddFinding(FailingWorkflow, e.Execution.WorkflowId, why, "read the worker's log; it continues where it was once a worker of another version can complete the task")
		}
	}
	r.AddExamined("workflows that fail repeatedly: %d", failing)
	return nil
}
