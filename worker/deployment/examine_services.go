package deployment

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file examines what services report: runtimes that they cannot read, failures, and approvals that are missing for long.

const (
	// maxQueried is how many services are queried at most.
	maxQueried = 100
	// queryTimeout is the timeout of one query: a workflow that no worker can take does not answer.
	queryTimeout = 3 * time.Second
)

// unreadableRuntime describes a runtime that services cannot read.
type unreadableRuntime struct {
	instances   int
	firstReason string // the first one, with the reason
	service     string // its service
}

// examineServices queries services: those that are unhealthy or waiting, and of the others as many as the limit allows.
func (n Namespace) examineServices(ctx context.Context, r *Report) error {
	statuses, err := n.statusesOfServices(ctx)
	if err != nil {
		return err
	}
	found := map[string]unreadableRuntime{}
	for _, s := range statuses {
		r.Findings = append(r.Findings, failingChannels(s)...)
		r.Findings = append(r.Findings, staleApprovals(s, time.Now())...)
		for _, u := range s.Undelivered {
			r.AddFinding(Undelivered, s.Application+"/"+s.Service, u.Text(), "correct the receiver, or its url in the application; the events are sent again automatically")
		}
		for runtime, of := range unreadableByRuntime(s) {
			all := found[runtime]
			if all.instances == 0 {
				all.firstReason, all.service = of.firstReason, of.service
			}
			all.instances += of.instances
			found[runtime] = all
		}
	}
	for _, runtime := range entities.SortedKeys(found) {
		if err := n.reportUnreadable(ctx, runtime, found[runtime], r); err != nil {
			return err
		}
	}
	r.AddExamined("services, at most %d, first those that are unhealthy or waiting: %d answered, and they cannot read %d runtimes", maxQueried, len(statuses), len(found))
	return nil
}

func (n Namespace) reportUnreadable(ctx context.Context, runtime string, of unreadableRuntime, r *Report) error {
	queue := protocol.RuntimeTaskQueue(runtime)
	if strings.Contains(of.firstReason, queue) {
		served, err := n.isPolled(ctx, queue)
		if err != nil {
			return err
		}
		if !served {
			r.AddFinding(QueueWithoutWorkers, queue, fmt.Sprintf("no worker polls it, and %d instances wait for it", of.instances), "start one that can reach the runtime: converge worker --runtime "+runtime)
			return nil
		}
	}
	r.AddFinding(UnreadableRuntime, "runtime "+runtime, fmt.Sprintf("%d instances cannot be read: %s", of.instances, of.firstReason),
		"fix the cause, or the connection and the permissions of the worker; it is read again automatically, and at once after: converge channel refresh "+of.service)
	return nil
}

// failingChannels are the channels of a service that failed, in which an apply fails and is repeated, or that do not stay stable.
func failingChannels(s protocol.Status) (found []Finding) {
	for _, c := range s.Channels {
		at := slices.IndexFunc(c.Reasons, func(r protocol.Reason) bool { return r.Code == "failure" || r.Code == "flapping" })
		if at < 0 || c.Unread != nil { // what cannot be read is a finding of its runtime
			continue
		}
		where := s.Application + "/" + s.Service + " " + c.Name
		found = append(found, Finding{
			FailingChannel, where, c.Status + ": " + entities.ClipMessage(strings.Join(strings.Fields(c.Reasons[at].Text), " "), maxWhy),
			cmp.Or(c.Reasons[0].Unblock, "see: converge explain "+where),
		})
	}
	return found
}

// maxWhy limits the text of a reason, in bytes.
const maxWhy = 300

// staleAfter is how long a release may wait for an approval.
const staleAfter = 24 * time.Hour

// staleApprovals are the approvals that a service has waited for longer than that, once for all channels that share one.
func staleApprovals(s protocol.Status, now time.Time) (found []Finding) {
	for _, c := range s.Channels {
		for _, k := range c.Conditions {
			if k.Code != "open" || k.Since.IsZero() || now.Sub(k.Since) < staleAfter {
				continue
			}
			f := Finding{StaleApproval, s.Application + "/" + s.Service + " " + c.Desired, fmt.Sprintf("it has waited for %s since %s", k.Subject, k.Since.UTC().Format("2006-01-02 15:04 UTC")), k.Unblock}
			if !slices.Contains(found, f) {
				found = append(found, f)
			}
		}
	}
	return found
}

// unreadableByRuntime lists what one service cannot read, by runtime.
func unreadableByRuntime(s protocol.Status) map[string]unreadableRuntime {
	found := map[string]unreadableRuntime{}
	add := func(runtime, where, why string) {
		of := found[runtime]
		if of.instances == 0 {
			of.firstReason, of.service = where+": "+why, s.Application+"/"+s.Service
		}
		of.instances++
		found[runtime] = of
	}
	for _, c := range s.Channels {
		where := s.Application + "/" + s.Service + " " + c.Name
		for _, i := range c.Instances {
			if i.Unread != nil {
				add(i.Runtime, where+"/"+i.Name, i.Unread.Text())
			}
		}
		if c.Unread != nil && len(c.Instances) == 0 {
			add(c.Runtime, where, c.Unread.Text())
		}
	}
	return found
}

// statusesOfServices returns the statuses of at most maxQueried services: first of those that may have an unreadable channel, and last of
// those that are fine. A service that does not answer is omitted.
func (n Namespace) statusesOfServices(ctx context.Context) (all []protocol.Status, err error) {
	var services []*workflowpb.WorkflowExecutionInfo
	likely, others, fine := statusesToQuery()
	for _, statuses := range [][]string{likely, others, fine} {
		more, err := n.runningServices(ctx, statuses, maxQueried-len(services))
		if err != nil {
			return nil, err
		}
		services = append(services, more...)
	}
	answers := make([]protocol.Status, len(services))
	slots := make(chan struct{}, 8)
	var answering sync.WaitGroup
	for i, e := range services {
		answering.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, queryTimeout)
			defer cancel()
			_ = protocol.QueryWhole(func(q protocol.PartsQuery) (raw json.RawMessage, err error) { // a missing answer is ignored
				value, err := n.Client.QueryWorkflow(ctx, e.Execution.WorkflowId, "", protocol.QueryStatus, q)
				if err == nil {
					err = value.Get(&raw)
				}
				return raw, err
			}, &answers[i])
		})
	}
	answering.Wait()
	return slices.DeleteFunc(answers, func(s protocol.Status) bool { return s.Service == "" }), nil
}

// runningServices lists services with one of these statuses, without those whose workflow tasks fail if the server knows them.
func (n Namespace) runningServices(ctx context.Context, statuses []string, limit int) (services []*workflowpb.WorkflowExecutionInfo, err error) {
	query := "WorkflowType='" + protocol.ServiceWorkflow + "' AND ExecutionStatus='Running' AND " + protocol.AttrStatus + " IN ('" + strings.Join(statuses, "','") + "')"
	for _, condition := range []string{" AND " + problemsAttribute + " IS NULL", ""} {
		services, err = nil, nil
		for e, failed := range n.list(ctx, query+condition) {
			if err = failed; err != nil || len(services) == limit {
				break
			}
			services = append(services, e)
		}
		if !hasNoProblemsAttribute(err) {
			break
		}
	}
	return services, err
}

// statusesToQuery returns the statuses of a service that may have an unreadable channel: likely are UNKNOWN and those with a higher
// severity. Others may hide one, because the status of such a channel can be another one that comes first, or is more severe. While an apply
// fails and is repeated, a service is CONVERGING. Others are fine, and are queried for their notifications.
func statusesToQuery() (likely, others, fine []string) {
	minSeverity, unknown := math.MaxInt, entities.StatusUnknown.Row().Severity
	for _, row := range entities.StatusTable() {
		if row.Status != entities.StatusDeleted && row.Status != entities.StatusOrphaned {
			minSeverity = min(minSeverity, row.Severity)
		}
		if row.Status == entities.StatusUnknown {
			break
		}
	}
	for _, row := range entities.StatusTable() {
		switch {
		case row.Severity >= unknown:
			likely = append(likely, string(row.Status))
		case row.Severity >= minSeverity, row.Status == entities.StatusConverging:
			others = append(others, string(row.Status))
		case row.Status != entities.StatusDeleted:
			fine = append(fine, string(row.Status))
		}
	}
	return likely, others, fine
}

// isPolled reports whether a worker polled a queue for activities recently.
func (n Namespace) isPolled(ctx context.Context, queue string) (bool, error) {
	d, err := n.Client.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: n.Name, TaskQueueType: enumspb.TASK_QUEUE_TYPE_ACTIVITY,
		TaskQueue: &taskqueuepb.TaskQueue{Name: queue, Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
	})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(d.GetPollers(), func(p *taskqueuepb.PollerInfo) bool {
		return time.Since(p.GetLastAccessTime().AsTime()) < n.pollTimeout()
	}), nil
}
