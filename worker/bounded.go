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

// Bounded shrinks large updates on a worker's connection, so that workflows refuse them in a few bytes. A server accepts an update of any
// size, and a worker that refuses one sends it back whole, which exceeds the server's limit for a worker's answer: the workflow task would
// fail, repeatedly, as long as such updates are sent.
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

// maxUpdate is the size in bytes up to which an update passes unchanged. The input of a verb is smaller, also when it is encrypted.
const maxUpdate = 2 * verb.MaxPayload

func bound(messages []*protocolpb.Message) {
	for _, m := range messages {
		var update updatepb.Request
		if m.GetBody().MessageIs(&update) && len(m.GetBody().GetValue()) > maxUpdate && m.GetBody().UnmarshalTo(&update) == nil {
			shrink(&update)
			_ = m.GetBody().MarshalFrom(&update) // the type was checked above
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
