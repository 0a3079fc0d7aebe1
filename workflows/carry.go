package workflows

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Sizes of carried state, in bytes: as it is up to plainState; packed up to packedState; beyond
// that in the store, so that no payload passes 64 KiB (base64 in JSON adds a third).
const (
	plainState  = 16 << 10
	packedState = 44 << 10
)

// pack makes the next run's input from state.
func pack(ctx workflow.Context, state *entities.State) (protocol.ServiceInput, error) {
	in := protocol.ServiceInput{Application: state.Application, Service: state.Service}
	plain, err := json.Marshal(state)
	if err != nil {
		return in, fmt.Errorf("state of %s/%s: %w", state.Application, state.Service, err)
	}
	if len(plain) <= plainState {
		in.State = state
		return in, nil
	}
	if in.Packed, err = compress(plain); err != nil || len(in.Packed) <= packedState {
		return in, err
	}
	request := protocol.SpillRequest{Packed: in.Packed}
	in.Packed = nil
	return in, fromStore(ctx, protocol.ActivitySpill, request, &in.Spilled)
}

// restore takes over the state that the last run packed; a first run begins with none.
func restore(ctx workflow.Context, in protocol.ServiceInput) (*entities.State, error) {
	state := entities.NewState(in.Application, in.Service)
	packed := in.Packed
	switch {
	case in.State != nil:
		state = in.State
	case in.Spilled != "":
		var err error
		if packed, err = fetchSpilled(ctx, in.Spilled); err != nil {
			return nil, err
		}
	}
	if packed != nil {
		plain, err := decompress(packed)
		if err != nil {
			return nil, fmt.Errorf("carried state of %s/%s: %w", in.Application, in.Service, err)
		}
		if err := json.Unmarshal(plain, state); err != nil {
			return nil, fmt.Errorf("carried state of %s/%s: %w", in.Application, in.Service, err)
		}
	}
	if state.Instances == nil {
		state.Instances = map[string]*entities.Instance{}
	}
	return state, nil
}

// fetchSpilled waits for the store as long as it takes: without its state a service cannot go on,
// and giving up would lose it.
func fetchSpilled(ctx workflow.Context, digest string) ([]byte, error) {
	var packed []byte
	for {
		var answer protocol.RestoreAnswer
		err := fromStore(ctx, protocol.ActivityRestore, protocol.RestoreRequest{Digest: digest, Offset: len(packed)}, &answer)
		if isStoreError(err) {
			if err := workflow.Sleep(ctx, margin); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		packed = append(packed, answer.Part...)
		if len(packed) >= answer.Total {
			return packed, nil
		}
	}
}

func compress(plain []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func decompress(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
