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

// set sets the status of a service and the number of its journal lines. Tell says whether the list shows the change.
func (s *server) set(id string, status entities.Status, lines int64, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services[id] = &protocol.Status{
		Service: id, Status: string(status), Channels: []protocol.ChannelStatus{{Name: "prod", Status: string(status)}},
		Journal: []entities.JournalLine{{N: lines}},
	}
	if tell {
		s.listed[id] = string(status) + fmt.Sprint(lines)
	}
}

func follows(t *testing.T, n int) (*server, *Services, []string) {
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
	f.Of("shop", keys)
	for looks := 0; ; looks++ {
		require.Less(t, looks, 2+n/movingAtOnce)
		_, err := f.Look(t.Context())
		require.NoError(t, err)
		if all, known := f.All(); known {
			require.Len(t, all, n)
			break
		}
	}
	return s, f, keys
}

// Steady services cause a bounded number of requests per minute, regardless of their number, and polls become less frequent.
func TestServicesAtRestCostABoundedNumberOfRequests(t *testing.T) {
	const looks = 100
	perLook := map[int]int{}
	for _, n := range []int{10, 300} {
		s, f, _ := follows(t, n)
		s.requests()
		for range looks {
			_, err := f.Look(t.Context())
			require.NoError(t, err)
		}
		all, _ := s.requests()
		perLook[n] = all / looks
		require.Equal(t, late, f.Wait())
	}
	require.Equal(t, perLook[10], perLook[300])
	require.LessOrEqual(t, perLook[300]*int(time.Minute/late), 120, "requests a minute")
}

// A service that changed is queried at the next poll, and at each poll while it moves.
func TestWhatChangesIsAskedAtOnce(t *testing.T) {
	s, f, keys := follows(t, 300)
	for range 20 {
		_, err := f.Look(t.Context())
		require.NoError(t, err)
	}
	s.requests()
	id := protocol.ServiceID("shop", keys[123])
	s.set(id, entities.StatusConverging, 2, true)
	for range 5 {
		_, err := f.Look(t.Context())
		require.NoError(t, err)
		_, known := f.All()
		require.True(t, known)
	}
	_, of := s.requests()
	require.Equal(t, 5, of[id], "while it is not settled")
	s.set(id, entities.StatusConverged, 3, true)
	asked, err := f.Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, string(entities.StatusConverged), asked[0].Status)
	require.Equal(t, soon, f.Wait())
}

// A change that the list does not show is detected a little later: steady services are queried in turn.
func TestWhatIsNotListedIsSeenLater(t *testing.T) {
	const n = 30
	s, f, keys := follows(t, n)
	s.set(protocol.ServiceID("shop", keys[7]), entities.StatusConverged, 9, false)
	seen := false
	for range n/restingOnce + 1 {
		asked, err := f.Look(t.Context())
		require.NoError(t, err)
		for _, status := range asked {
			seen = seen || newest(status) == 9
		}
	}
	require.True(t, seen)
}
