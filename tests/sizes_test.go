package tests

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/proxy"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker/embedded"
)

// scales notes how large the payloads are that go between a worker and its server, by the call.
type scales struct {
	mu      sync.Mutex
	largest map[string]int
}

func (s *scales) weigh(ctx context.Context, method string, request, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	s.take(ctx, method, request)
	err := invoke(ctx, method, request, reply, c, o...)
	s.take(ctx, method+" answer", reply)
	return err
}

func (s *scales) take(ctx context.Context, what string, message any) {
	m, is := message.(proto.Message)
	if !is {
		return
	}
	_ = proxy.VisitPayloads(ctx, m, proxy.VisitPayloadsOptions{ // the visitor fails at nothing
		Visitor: func(_ *proxy.VisitPayloadsContext, payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, p := range payloads {
				s.largest[what] = max(s.largest[what], proto.Size(p))
			}
			return payloads, nil
		},
	})
}

// A service in 150 channels with 20 objects each, whose status is more than a megabyte, goes through a real server in payloads of 64 KiB: all of
// its calls, both ways. Its status is whole for who asks in parts, and cut short for who does not. Alone, since it computes more than it waits.
func TestPayloadsOfLargeServiceFit_F8(t *testing.T) {
	if testing.Short() {
		t.Skip("150 channels take a while; not with -short")
	}
	const channels = 150
	w := &world{shared.Unserved(t, embedded.Options{})}
	s := &scales{largest: map[string]int{}}
	w.StartWorkerOver(s.weigh)
	var yaml strings.Builder
	yaml.WriteString("apiVersion: converge/v1\nkind: Application\nname: APP\nreleaseChannels:\n")
	name := func(n int) string { return fmt.Sprintf("c%d-%s", n, entities.DigestOf(n)[:40]) }
	for n := range channels {
		fmt.Fprintf(&yaml, "- {name: %s, runtimes: [{name: APP-rt}]}\n", name(n))
		w.Fake.At(w.App, "web", name(n)).SetObjects(20, strings.Repeat("words of a kubelet ", 20))
	}
	yaml.WriteString("---\napiVersion: converge/v1\nkind: Runtime\nname: APP-rt\nfake: {pollInterval: 1s, steadyPollInterval: 1h}\n" + stage.Web)
	w.Write(yaml.String())
	w.Publish()
	version := "v" + strings.Repeat("1", 100)
	w.Release("web", version)
	var status protocol.Status
	temporaltest.WaitFor(t, 2*stage.Patience, func() (bool, string) { // it costs more to ask for a status than to change it
		d, err := w.Client.DescribeWorkflowExecution(t.Context(), w.ID("web"), "")
		shown := d.GetWorkflowExecutionInfo().GetSearchAttributes().GetIndexedFields()
		said := string(shown[protocol.AttrStatus].GetData()) + string(shown[protocol.AttrVersion].GetData())
		return err == nil && said == fmt.Sprintf("%q%q", entities.StatusConverged, version), fmt.Sprint(said, err)
	})
	require.NoError(t, w.Query(w.ID("web"), protocol.QueryStatus, &status))
	for _, c := range status.Channels {
		require.Equal(t, version, c.Current, c.Name)
	}
	require.Len(t, status.Channels, channels)
	require.Len(t, status.Channels[channels-1].Objects, 20)
	var explained protocol.Explanation
	require.NoError(t, w.Query(w.ID("web"), protocol.QueryExplain, &explained))
	require.Len(t, explained.Status.Channels, channels)
	value, err := temporaltest.Query(t.Context(), w.Client, w.ID("web"), protocol.QueryStatus) // as the Temporal UI asks
	require.NoError(t, err)
	var cut protocol.Status
	require.NoError(t, value.Get(&cut))
	require.Equal(t, channels, len(cut.Channels)+cut.MoreChannels)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(s.largest)) {
		t.Logf("%6d %s", s.largest[what], what)
		require.LessOrEqual(t, s.largest[what], 64<<10+200, what) // what is around the data of a payload takes some
	}
	require.Greater(t, s.largest["/temporal.api.workflowservice.v1.WorkflowService/RespondQueryTaskCompleted"], 30<<10)
}
