package worker

import (
	"context"

	commonpb "go.temporal.io/api/common/v1"
	protocolpb "go.temporal.io/api/protocol/v1"
	updatepb "go.temporal.io/api/update/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/converge-engine/converge/entities/verb"
)

// Bounded has a worker's connection hand large updates on to workflows as what is refused in a few bytes. A server takes an
// update of any size, and a worker that refuses one sends it back whole, which is more than the server takes from a worker:
// the workflow task would fail, and again, as long as somebody sends such updates.
func Bounded() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		err := invoke(ctx, method, request, reply, c, o...)
		switch answer := reply.(type) {
		case *workflowservice.PollWorkflowTaskQueueResponse:
			bound(answer.GetMessages())
		case *workflowservice.RespondWorkflowTaskCompletedResponse:
			bound(answer.GetWorkflowTask().GetMessages())
		}
		return err
	})
}

// maxUpdate is what goes through as it is, in bytes. What a verb takes is smaller, also when it is encrypted.
const maxUpdate = 2 * verb.MaxPayload

func bound(messages []*protocolpb.Message) {
	for _, m := range messages {
		var request updatepb.Request
		if m.GetBody().MessageIs(&request) && len(m.GetBody().GetValue()) > maxUpdate && m.GetBody().UnmarshalTo(&request) == nil {
			shrink(&request)
			_ = m.GetBody().MarshalFrom(&request) // it was one before
		}
	}
}

func shrink(r *updatepb.Request) {
	instead := &commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingJSON)},
		Data:     verb.TooLarge(proto.Size(r.GetInput())),
	}
	r.Input = &updatepb.Input{Name: verb.Clip(r.GetInput().GetName(), verb.MaxName), Args: &commonpb.Payloads{Payloads: []*commonpb.Payload{instead}}}
	r.Meta = &updatepb.Meta{UpdateId: r.GetMeta().GetUpdateId(), Identity: verb.Clip(r.GetMeta().GetIdentity(), verb.MaxName)}
}
