package ecsfake

import (
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logs "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// Of Amazon CloudWatch Logs, only the operation that reads the output of a container is modelled (CloudWatch Logs API GetLogEvents).
const logsTarget = "Logs_20140328."

// pageOfLogs is the maximum number of events in an answer.
const pageOfLogs = 10_000

// stream is the output of one container.
type stream struct{ group, name string }

// print writes the output of a one-off task into the stream of its first container: prefix/container/task, or the container's id if
// there is no prefix (guide using_awslogs).
func (t *task) print() {
	c := t.definition.view.ContainerDefinitions[0]
	if c.LogConfiguration == nil || c.LogConfiguration.LogDriver != types.LogDriverAwslogs || t.service != nil {
		return
	}
	options := c.LogConfiguration.Options
	id := strings.Repeat(t.id, 2)
	t.contain(func(o *types.Container) { o.RuntimeId = &id })
	to := stream{options["awslogs-group"], id}
	if prefix := options["awslogs-stream-prefix"]; prefix != "" {
		to.name = prefix + "/" + text(c.Name) + "/" + t.id
	}
	t.server.after(t.server.options.Timing.Log, func() {
		for _, line := range t.run.Log {
			t.server.logs[to] = append(t.server.logs[to], logs.OutputLogEvent{Message: &line, Timestamp: aws.Int64(t.server.clock.now.UnixMilli())})
		}
	})
}

// getLogEvents reads backwards from the end. At the beginning it returns the token of the request.
func (s *Server) getLogEvents(in *cloudwatchlogs.GetLogEventsInput) (*cloudwatchlogs.GetLogEventsOutput, error) {
	events, known := s.logs[stream{text(in.LogGroupName), text(in.LogStreamName)}]
	if !known {
		return nil, refuse("ResourceNotFoundException", "The specified log stream does not exist.")
	}
	end := len(events)
	if in.NextToken != nil {
		at, err := strconv.Atoi(strings.TrimPrefix(*in.NextToken, "b/"))
		if err != nil || at < 0 || at > end {
			return nil, invalid("The specified nextToken is invalid.")
		}
		end = at
	}
	size := pageOfLogs
	if in.Limit != nil {
		size = int(*in.Limit)
	}
	start := max(0, end-size)
	return &cloudwatchlogs.GetLogEventsOutput{
		Events: slices.Clone(events[start:end]), NextBackwardToken: aws.String("b/" + strconv.Itoa(start)), NextForwardToken: aws.String("f/" + strconv.Itoa(end)),
	}, nil
}
