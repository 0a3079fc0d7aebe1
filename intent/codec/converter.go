package codec

import (
	"context"
	"encoding/json"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
)

// Converters returns the converters for a Temporal client (client.Options): of payloads, and of failures, whose messages and stack
// traces are encrypted, too.
func (c *Codec) Converters() (converter.DataConverter, converter.FailureConverter) {
	data := dataConverter{converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), c), c}
	return data, temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{
		DataConverter: data, EncodeCommonAttributes: c.Encrypts() != "",
	})
}

// dataConverter converts with a codec. In workflows it uses inWorkflow.
type dataConverter struct {
	converter.DataConverter
	codec *Codec
}

// WithWorkflowContext implements converter.ContextAware.
func (d dataConverter) WithWorkflowContext(converter.WorkflowContext) converter.DataConverter {
	return inWorkflow(d)
}

// WithContext implements converter.ContextAware.
func (d dataConverter) WithContext(context.Context) converter.DataConverter { return d }

// inWorkflow converts in workflow code. If a key of the installation is missing, it panics with a message. The workflow task fails and
// is retried, here or on another worker. An error would instead end the workflow or lose a signal. A payload with an unknown key id is
// not a valid message: it decodes to a text that reports this, which is rejected with a trace.
type inWorkflow dataConverter

func (d inWorkflow) FromPayload(payload *commonpb.Payload, into any) error {
	return d.FromPayloads(&commonpb.Payloads{Payloads: []*commonpb.Payload{payload}}, into)
}

func (d inWorkflow) FromPayloads(payloads *commonpb.Payloads, into ...any) error {
	err := d.DataConverter.FromPayloads(payloads, into...)
	if err == nil || payloads == nil {
		return err
	}
	if d.codec.missing(payloads.GetPayloads()) {
		panic(err)
	}
	if !isEncryptedMessage(payloads, into) {
		return err
	}
	replacement, encodeErr := converter.GetDefaultDataConverter().ToPayload(err.Error())
	if encodeErr != nil {
		return encodeErr
	}
	switch to := into[0].(type) {
	case *json.RawMessage:
		*to, err = replacement.GetData(), nil
	case *converter.RawValue:
		*to, err = converter.NewRawValue(replacement), nil
	}
	return err
}

// isEncryptedMessage reports whether payloads are an encrypted message: an encrypted payload that decodes to one value.
func isEncryptedMessage(payloads *commonpb.Payloads, into []any) bool {
	return len(into) == 1 && len(payloads.GetPayloads()) > 0 && Is(payloads.GetPayloads()[0])
}
