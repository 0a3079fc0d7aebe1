package ecs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/kubernetes/job/report"
)

const (
	maxLogSize      = 4 << 20 // bytes at the end of a log that are kept; a document is smaller
	maxLogPages     = 10      // the maximum; a page has up to 1 MiB (API GetLogEvents)
	logReadAttempts = 20      // while the log does not exist yet, or grows
	maxEventSize    = 262_000 // from this size in bytes the awslogs agent may have split a line
)

// result combines the state of an ended container in ECS with its log.
func (c *command) result(ctx context.Context, t *types.Task) TaskResult {
	at := slices.IndexFunc(t.Containers, func(o types.Container) bool { return text(o.Name) == c.container })
	container := t.Containers[at]
	bare := TaskResult{Merged: true, Document: report.Document{ExitCode: int(*container.ExitCode)}}
	if strings.Contains(text(container.Reason), "OutOfMemory") {
		bare.Signal = "killed (" + text(container.Reason) + ")"
	}
	if t.StartedAt != nil {
		bare.StartedAt = t.StartedAt.UTC()
		end := endOf(*t)
		if t.ExecutionStoppedAt != nil {
			end = t.ExecutionStoppedAt.UTC()
		}
		bare.Duration = report.Duration(max(0, end.Sub(bare.StartedAt)))
	}
	log, complete, err := c.completeLog(ctx, text(container.RuntimeId))
	if doc, ok := report.Find(log); ok {
		if bare.Signal != "" {
			doc.Signal = bare.Signal
		}
		return TaskResult{Document: doc}
	}
	if err != nil {
		bare.LogProblem = err.Error()
	}
	bare.Stdout = streamOf(log, complete)
	return bare
}

func streamOf(log []byte, complete bool) report.Stream {
	s := report.Stream{Data: log, Bytes: int64(len(log))}
	if !complete {
		s.Bytes++
	}
	return s
}

// completeLog reads the log of an ended container until it is complete: with a wrapper when its document is there, otherwise when two
// readings are equal. The agent's buffered output arrives within some seconds.
func (c *command) completeLog(ctx context.Context, id string) (log []byte, complete bool, err error) {
	before := []byte(nil)
	for range logReadAttempts {
		log, complete, err = c.log(ctx, id)
		var missing *missingLog
		switch _, found := report.Find(log); {
		case errors.As(err, &missing) && missing.final, err != nil && missing == nil, found:
			return log, complete, err
		case err == nil && c.Task.Wrapper == "" && len(log) > 0 && string(log) == string(before):
			return log, complete, nil
		}
		before = log
		if pause(ctx, c.cluster.timing.logPollInterval) != nil {
			break
		}
	}
	return log, complete, err
}

// missingLog is why there is no log; final: there will never be one.
type missingLog struct {
	reason string
	final  bool
}

func (m *missingLog) Error() string { return m.reason }

// log reads the end of a container's log; complete reports that it includes the beginning.
func (c *command) log(ctx context.Context, id string) (log []byte, complete bool, err error) {
	if c.logs.group == "" {
		return nil, true, &missingLog{fmt.Sprintf("container %s has no log driver awslogs with a group", c.container), true}
	}
	stream := id // Docker's id of the container, if there is no prefix (guide using_awslogs)
	if c.logs.prefix != "" {
		stream = c.logs.prefix + "/" + c.container + "/" + c.arn[strings.LastIndex(c.arn, "/")+1:]
	}
	client, err := c.cluster.account.logsClient(ctx, c.logs.region)
	if err != nil {
		return nil, true, err
	}
	in := &cloudwatchlogs.GetLogEventsInput{LogGroupName: &c.logs.group, LogStreamName: &stream}
	for range maxLogPages {
		out, err := call(ctx, c.cluster, logReads, client.GetLogEvents, in)
		switch {
		case codeOf(err) == "ResourceNotFoundException":
			return log, true, &missingLog{fmt.Sprintf("log group %s has no stream %s", c.logs.group, stream), false}
		case err != nil:
			return log, false, fmt.Errorf("log group %s cannot be read: %s", c.logs.group, shortMessage(err))
		}
		var page []byte
		for _, e := range out.Events {
			page = append(page, text(e.Message)...)
			if len(text(e.Message)) < maxEventSize {
				page = append(page, '\n')
			}
		}
		log = append(page, log...)
		if _, found := report.Find(log); found || len(log) > maxLogSize {
			return log[max(0, len(log)-maxLogSize):], false, nil
		}
		if text(out.NextBackwardToken) == text(in.NextToken) {
			return log, true, nil
		}
		in.NextToken = out.NextBackwardToken
	}
	return log, false, nil
}

// lastOutput reads the output of a task that is about to be stopped at its timeout.
func (c *command) lastOutput(ctx context.Context) TaskResult {
	res := TaskResult{Document: report.Document{ExitCode: -1}}
	if c.arn == "" || c.logs.prefix == "" || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return res
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup/6)
	defer cancel()
	log, complete, err := c.log(ctx, "")
	if err != nil || len(log) == 0 {
		return res
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	c.waitReason += "; last output: " + runtimes.Clip(lines[len(lines)-1], 256)
	res.Stdout, res.Merged, res.StartedAt = streamOf(log, complete), true, time.Now().Add(-c.Timeout)
	return res
}
