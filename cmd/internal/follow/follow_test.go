package follow

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// server simulates the service queries of a Temporal server, and counts its requests.
type server struct {
	workflowservice.UnimplementedWorkflowServiceServer

	mu       sync.Mutex
	services map[string]*protocol.Status // by workflow id
	listed   map[string]string           // status, by workflow id
	lists    int
	queries  map[string]int
}

func (s *server) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{}, nil
}

func (s *server) ListWorkflowExecutions(context.Context, *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	out := &workflowservice.ListWorkflowExecutionsResponse{}
	for id := range s.services {
		value, err := converter.GetDefaultDataConverter().ToPayload(s.listed[id])
		if err != nil {
			return nil, err
		}
		out.Executions = append(out.Executions, &workflowpb.WorkflowExecutionInfo{
			Execution:        &commonpb.WorkflowExecution{WorkflowId: id, RunId: "r"},
			SearchAttributes: &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{protocol.AttrStatus: value}},
		})
	}
	return out, nil
}

func (s *server) QueryWorkflow(_ context.Context, r *workflowservice.QueryWorkflowRequest) (*workflowservice.QueryWorkflowResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.GetExecution().GetWorkflowId()
	s.queries[id]++
	answer, err := converter.GetDefaultDataConverter().ToPayloads(s.services[id])
	return &workflowservice.QueryWorkflowResponse{QueryResult: answer}, err
}

// requests returns the number of requests since the last call, in total and by service.
func (s *server) requests() (all int, of map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, of = s.lists, s.queries
	for _, n := range s.queries {
		all += n
	}
	s.lists, s.queries = 0, map[string]int{}
	return all, of
}

// set sets the status of a service and the number of its journal lines. list says whether the list of workflows shows the change.
func (s *server) set(id string, status entities.Status, lines int64, list bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services[id] = &protocol.Status{
		Service: id, Status: string(status), Channels: []protocol.ChannelStatus{{Name: "prod", Status: string(status)}},
		Journal: []entities.JournalEntry{{N: lines}},
	}
	if list {
		s.listed[id] = string(status) + fmt.Sprint(lines)
	}
}

func startPoller(t *testing.T, n int) (*server, *Poller, []string) {
	t.Helper()
	s := &server{services: map[string]*protocol.Status{}, listed: map[string]string{}, queries: map[string]int{}}
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("s%03d", i)
		s.set(protocol.ServiceID("shop", keys[i]), entities.StatusConverged, 1, true)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(g, s)
	go func() { _ = g.Serve(listener) }()
	t.Cleanup(g.Stop)
	c, err := client.Dial(client.Options{HostPort: listener.Addr().String()})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	f := New(c)
	f.SetServices("shop", keys)
	for polls := 0; ; polls++ {
		require.Less(t, polls, 2+n/maxUnsettledPerPoll)
		_, err := f.Poll(t.Context())
		require.NoError(t, err)
		if all, known := f.Statuses(); known {
			require.Len(t, all, n)
			break
		}
	}
	return s, f, keys
}

// Steady services cause a bounded number of requests per minute, regardless of their number, and polls become less frequent.
func TestSettledServicesCostABoundedNumberOfRequests(t *testing.T) {
	const polls = 100
	perPoll := map[int]int{}
	for _, n := range []int{10, 300} {
		s, f, _ := startPoller(t, n)
		s.requests()
		for range polls {
			_, err := f.Poll(t.Context())
			require.NoError(t, err)
		}
		all, _ := s.requests()
		perPoll[n] = all / polls
		require.Equal(t, maxInterval, f.Interval())
	}
	require.Equal(t, perPoll[10], perPoll[300])
	require.LessOrEqual(t, perPoll[300]*int(time.Minute/maxInterval), 120, "requests a minute")
}

// A service that changed is queried at the next poll, and at each poll while it moves.
func TestChangedServicesAreQueriedAtOnce(t *testing.T) {
	s, f, keys := startPoller(t, 300)
	for range 20 {
		_, err := f.Poll(t.Context())
		require.NoError(t, err)
	}
	s.requests()
	id := protocol.ServiceID("shop", keys[123])
	s.set(id, entities.StatusConverging, 2, true)
	for range 5 {
		_, err := f.Poll(t.Context())
		require.NoError(t, err)
		_, known := f.Statuses()
		require.True(t, known)
	}
	_, of := s.requests()
	require.Equal(t, 5, of[id], "while it is not settled")
	s.set(id, entities.StatusConverged, 3, true)
	polled, err := f.Poll(t.Context())
	require.NoError(t, err)
	require.Equal(t, string(entities.StatusConverged), polled[0].Status)
	require.Equal(t, minInterval, f.Interval())
}

// A change that the list does not show is detected a little later: steady services are queried in turn.
func TestUnlistedChangesAreFoundLater(t *testing.T) {
	const n = 30
	s, f, keys := startPoller(t, n)
	s.set(protocol.ServiceID("shop", keys[7]), entities.StatusConverged, 9, false)
	found := false
	for range n/settledPerPoll + 1 {
		polled, err := f.Poll(t.Context())
		require.NoError(t, err)
		for _, status := range polled {
			found = found || newest(status) == 9
		}
	}
	require.True(t, found)
}
