package embedded

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// readinessInterval is the delay between two readiness checks.
const readinessInterval = 10 * time.Millisecond

// awaitFrontend waits until the frontend serves.
func awaitFrontend(ctx context.Context, address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	health := grpc_health_v1.NewHealthClient(conn)
	request := &grpc_health_v1.HealthCheckRequest{Service: workflowservice.WorkflowService_ServiceDesc.ServiceName}
	return waitUntil(ctx, "the frontend serves", func() error {
		response, err := health.Check(ctx, request, grpc.WaitForReady(true))
		if err == nil && response.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			err = fmt.Errorf("its health is %s", response.Status)
		}
		return err
	})
}

// waitUntil calls ready at short intervals until it returns nil or ctx ends. In the latter case the error names the condition and
// the last result.
func waitUntil(ctx context.Context, what string, ready func() error) error {
	ticker := time.NewTicker(readinessInterval)
	defer ticker.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w; last: %w", what, context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}
