package embedded

import (
	"context"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// askAgainAfter is the delay between two readiness checks.
const askAgainAfter = 10 * time.Millisecond

// prepareFrontend waits until the frontend serves and adds the search attributes that the namespace lacks.
func prepareFrontend(ctx context.Context, address string, attributes map[string]enumspb.IndexedValueType, dynamic *settings) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	health := grpc_health_v1.NewHealthClient(conn)
	request := &grpc_health_v1.HealthCheckRequest{Service: workflowservice.WorkflowService_ServiceDesc.ServiceName}
	if err := until(ctx, "the frontend serves", func() error {
		response, err := health.Check(ctx, request, grpc.WaitForReady(true))
		if err == nil && response.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			err = fmt.Errorf("its health is %s", response.Status)
		}
		return err
	}); err != nil {
		return err
	}
	return ensureAttributes(ctx, operatorservice.NewOperatorServiceClient(conn), attributes, dynamic)
}

// ensureAttributes changes only a file of an older Converge. The server is then configured to read attributes from the database, so that
// they can be used at once; from the next start on its caches have them.
func ensureAttributes(ctx context.Context, operator operatorservice.OperatorServiceClient, wanted map[string]enumspb.IndexedValueType, dynamic *settings) error {
	missing, err := missingAttributes(ctx, operator, wanted)
	if err != nil || len(missing) == 0 {
		return err
	}
	dynamic.freshAttributes.Store(true)
	_, err = operator.AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
		Namespace: Namespace, SearchAttributes: missing,
	})
	if err != nil {
		return fmt.Errorf("add search attributes: %w", err)
	}
	return until(ctx, "the new search attributes are known", func() error {
		missing, err := missingAttributes(ctx, operator, wanted)
		if err == nil && len(missing) > 0 {
			err = fmt.Errorf("%d are missing", len(missing))
		}
		return err
	})
}

func missingAttributes(ctx context.Context, operator operatorservice.OperatorServiceClient, wanted map[string]enumspb.IndexedValueType) (map[string]enumspb.IndexedValueType, error) {
	response, err := operator.ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: Namespace})
	if err != nil {
		return nil, fmt.Errorf("list search attributes: %w", err)
	}
	missing := map[string]enumspb.IndexedValueType{}
	for name, kind := range wanted {
		found, ok := response.CustomAttributes[name]
		if ok && found != kind {
			return nil, fmt.Errorf("search attribute %s is a %s in this database, not a %s; choose another file with --db", name, found, kind)
		}
		if !ok {
			missing[name] = kind
		}
	}
	return missing, nil
}

// until calls ready at short intervals until it returns nil or ctx ends. In the latter case the error names the condition and
// the last result.
func until(ctx context.Context, what string, ready func() error) error {
	ticker := time.NewTicker(askAgainAfter)
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
