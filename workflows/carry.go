package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// continueAsNew hands the state to the next run, signals that have arrived meanwhile included. It
// returns nil when this run has to go on for now: the store does not take the state, without which
// the service would be lost, or an update came while it did.
func (s *service) continueAsNew() error {
	s.collect()
	s.storeTrail()         // what it does not take now is carried along
	s.answers(storeSilent) // else the next run would begin with a trouble that is over; one that is not comes back
	in, err := s.packAll()
	if isStoreError(err) {
		s.state.Problem = errorText(err)
		return workflow.Sleep(s.ctx, margin)
	}
	if err != nil || !s.atRest() {
		return err
	}
	in.Runs = s.runs + 1
	return workflow.NewContinueAsNewError(s.ctx, protocol.ServiceWorkflow, in)
}

// packAll packs until nothing has come while packing, which may wait for the store. Updates wait for
// the lock, so that none changes what was packed.
func (s *service) packAll() (protocol.ServiceInput, error) {
	if err := s.lock.Lock(s.ctx); err != nil {
		return protocol.ServiceInput{}, err
	}
	defer s.lock.Unlock()
	for {
		s.woken = false
		in, err := pack(s.ctx, s.state)
		s.collect()
		if err != nil || !s.woken || in.State != nil {
			return in, err
		}
	}
}

// packedLimit is the size in bytes of packed state up to which it is carried from run to run; beyond
// that it goes to the store, so that no payload passes 64 KiB (base64 in JSON adds a third).
const packedLimit = 44 << 10

// pack makes the next run's input from state.
func pack(ctx workflow.Context, state *entities.State) (protocol.ServiceInput, error) {
	in := protocol.ServiceInput{Application: state.Application, Service: state.Service}
	if !protocol.Large(state) {
		in.State = state
		return in, nil
	}
	packed, err := protocol.Pack(state)
	if err != nil {
		return in, fmt.Errorf("state of %s/%s: %w", state.Application, state.Service, err)
	}
	if len(packed) <= packedLimit {
		in.Packed = packed
		return in, nil
	}
	return in, fromStore(ctx, protocol.ActivitySpill, protocol.SpillRequest{Packed: packed}, &in.Spilled)
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
		if err := packed.Unpack(state); err != nil {
			return nil, fmt.Errorf("carried state of %s/%s: %w", in.Application, in.Service, err)
		}
	}
	if state.Instances == nil {
		state.Instances = map[string]*entities.Instance{}
	}
	return state, nil
}

// partsAtOnce is how many parts of spilled state one workflow task reads: what it writes into history
// must stay far below what the server accepts at once (4 MiB).
const partsAtOnce = 16

// fetchSpilled waits for the store as long as it takes: without its state a service cannot go on,
// and giving up would lose it.
func fetchSpilled(ctx workflow.Context, digest string) (protocol.Packed, error) {
	var packed protocol.Packed
	for part := 1; ; part++ {
		if part%partsAtOnce == 0 {
			if err := workflow.Sleep(ctx, time.Millisecond); err != nil { // ends the task
				return nil, err
			}
		}
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
