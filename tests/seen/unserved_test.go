package seen

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
	"github.com/converge-engine/converge/worker/monitor"
)

// The namespace of a worker is deleted: the SDK gives up after two minutes, and the process ends with 1 and says why.
func TestWorkerOfDeletedNamespaceEnds_F10(t *testing.T) {
	stage.Long(t, "three minutes")
	t.Parallel()
	w := shared.Unserved(t, embedded.Options{})
	_, err := w.Client.WorkflowService().RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: "doomed", WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	require.NoError(t, err)
	out := &lockedBuffer{}
	ended := make(chan error, 1)
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // the server may not know it everywhere yet
		_, err := w.Client.WorkflowService().DescribeTaskQueue(t.Context(), &workflowservice.DescribeTaskQueueRequest{Namespace: "doomed"})
		return !isNoNamespace(err), "registering"
	})
	cmd := exec.CommandContext(t.Context(), shared.Converge(t), "worker", "--address", w.Address, "--namespace", "doomed", "--store", w.Store)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	go func() { ended <- cmd.Wait() }()
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		found, looked := doctor(t, "--address", w.Address, "--namespace", "doomed")
		return len(found) == 0, looked + out.String()
	})
	_, err = w.Client.OperatorService().DeleteNamespace(t.Context(), &operatorservice.DeleteNamespaceRequest{Namespace: "doomed"})
	require.NoError(t, err)
	select {
	case err = <-ended:
	case <-time.After(2 * stage.Patience):
		require.Fail(t, "it goes on", out.String())
	}
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, out.String())
	require.Equal(t, 1, exit.ExitCode(), out.String())
	require.Contains(t, out.String(), "the worker ends, since it no longer gets work from the namespace doomed: ")
	require.Contains(t, out.String(), "the namespace was deleted, or has another name")
}

func isNoNamespace(err error) bool {
	return err != nil && bytes.Contains([]byte(err.Error()), []byte("not found"))
}

// The API key of a worker is revoked while it works: the SDK asks on for ever, and the worker ends once that has lasted.
func TestWorkerThatIsRefusedEnds_F10(t *testing.T) {
	t.Parallel()
	w := shared.Unserved(t, embedded.Options{})
	revoked := make(chan struct{})
	polls, tasks := &monitor.Polls{}, &worker.Tasks{}
	c, err := client.Dial(client.Options{HostPort: w.Address, Logger: stage.Quiet{}, ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{
		tasks.DialOption(), polls.DialOption(), grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
			select {
			case <-revoked:
				return status.Error(grpccodes.Unauthenticated, "invalid API key")
			default:
			}
			short, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() {
				select {
				case <-revoked:
					cancel()
				case <-short.Done():
				}
			}()
			return invoke(short, method, request, reply, c, o...)
		}),
	}}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	ended := make(chan error, 1)
	go func() {
		ended <- worker.Run(t.Context(), c, worker.Options{Store: w.Store, Tasks: tasks, Polls: polls, RefusedFor: 2 * time.Second})
	}()
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		found, looked := doctor(t, "--address", w.Address)
		return len(found) == 0, looked
	})
	close(revoked)
	select {
	case err = <-ended:
	case <-time.After(stage.Patience):
		require.Fail(t, "it goes on")
	}
	var lost *worker.LostError
	require.True(t, errors.As(err, &lost), "%v", err)
	require.ErrorContains(t, err, "invalid API key; check the API key or the certificate of this worker")
}
