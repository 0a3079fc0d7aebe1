package deployment

import (
	"context"
	"fmt"
	"os"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// identityPrefix is the prefix of a worker's identity, before its version and host.
func identityPrefix() string { return "converge-worker " }

// Identity is the identity of a worker of a version on the server.
func Identity(version string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s%s %d@%s", identityPrefix(), strings.ReplaceAll(version, " ", "-"), os.Getpid(), host)
}

// Failure describes a failed workflow task of a run that no worker has completed since.
type Failure struct{ Worker, Message string }

// Text describes the failure.
func (f Failure) Text() string {
	text := "stuck by a bug in the worker " + f.Worker
	if rest, ours := strings.CutPrefix(f.Worker, identityPrefix()); ours {
		version, where, _ := strings.Cut(rest, " ")
		text = fmt.Sprintf("stuck by a bug in version %s (%s)", version, where)
	}
	if f.Message != "" {
		text += ": " + f.Message
	}
	return text
}

const (
	// lastEvents is how many events of a run are read from its end: of several failures in a row they have only the first.
	lastEvents = 50
	// maxMessageBytes is how much of a message is shown.
	maxMessageBytes = 300
)

// LastFailure is the last failure of a workflow's task if none was completed since; an empty run means the newest.
func (n Namespace) LastFailure(ctx context.Context, id, run string) (f Failure, failed bool, err error) {
	page, err := n.Client.WorkflowService().GetWorkflowExecutionHistoryReverse(ctx, &workflowservice.GetWorkflowExecutionHistoryReverseRequest{
		Namespace: n.Name, Execution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: run}, MaximumPageSize: lastEvents,
	})
	if err != nil {
		return f, false, err
	}
	for _, e := range page.GetHistory().GetEvents() {
		if e.GetWorkflowTaskCompletedEventAttributes() != nil {
			return f, false, nil
		}
		if a := e.GetWorkflowTaskFailedEventAttributes(); a != nil {
			message := strings.Join(strings.Fields(a.GetFailure().GetMessage()), " ")
			if cut := []rune(message); len(cut) > maxMessageBytes {
				message = string(cut[:maxMessageBytes]) + "…"
			}
			return Failure{a.GetIdentity(), message}, true, nil
		}
	}
	return f, false, nil
}
