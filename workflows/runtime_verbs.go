package workflows

import (
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/lease"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// auditLease is the kind of line about what became of a lease other than by its holder.
const auditLease = "lease"

func (r *runtime) judge(row *verb.Row, q verb.Request, who entities.Who) (state.Effect, error) {
	switch row.Name {
	case protocol.SignalLease:
		return r.request(lease.Request(q.Lease))
	case protocol.SignalKeep:
		return func() string {
			r.state.Keep(q.ID, r.now())
			return "noted"
		}, nil
	case protocol.SignalGive:
		return r.give(q, who)
	case protocol.Grant:
		return r.grant(q, who)
	case protocol.Pause:
		return r.pauseLeases(r.pause(q, who))
	case protocol.Resume:
		return r.pauseLeases(r.resume(q, who))
	}
	return nil, fmt.Errorf("no such verb %q", row.Name)
}

// pauseLeases has the ledger follow the pause.
func (r *runtime) pauseLeases(effect state.Effect, err error) (state.Effect, error) {
	if err != nil {
		return nil, err
	}
	return func() string {
		text := effect()
		r.state.Paused = r.state.Pause != nil
		return text
	}, nil
}

func (r *runtime) request(q lease.Request) (state.Effect, error) {
	q.What = verb.Clip(q.What, verb.MaxName)
	if err := r.state.Check(q); err != nil {
		return nil, err
	}
	return func() string {
		if held := r.state.Request(q, r.now()); held != nil { // its holder may not have heard
			r.signal(*held, protocol.SignalGranted)
			return "held already"
		}
		return fmt.Sprintf("%d of %d places are taken, %d wait", len(r.state.Held), r.state.Limit, len(r.state.Waiting))
	}, nil
}

// give ends a lease. Giving back what is not held is no error: it is done. A person takes one back from its holder.
func (r *runtime) give(q verb.Request, who entities.Who) (state.Effect, error) {
	if q.By != "" && lease.Find(r.state.Held, q.ID) < 0 && lease.Find(r.state.Waiting, q.ID) < 0 {
		return nil, fmt.Errorf("no lease %q; held are %s", q.ID, lease.IDs(r.state.Held))
	}
	return func() string {
		was, _ := r.state.Give(q.ID)
		if q.By == "" {
			return "given back"
		}
		text := "lease of " + was.Name() + " taken back"
		r.note(auditLease, &who, text, q.Reason)
		return text
	}, nil
}

// grant lets one that waits go now, whatever the limit.
func (r *runtime) grant(q verb.Request, who entities.Who) (state.Effect, error) {
	place := lease.Find(r.state.Waiting, q.ID)
	switch {
	case lease.Find(r.state.Held, q.ID) >= 0:
		return nil, fmt.Errorf("lease %q is granted already", q.ID)
	case place < 0:
		return nil, fmt.Errorf("no lease %q waits; waiting are %s", q.ID, lease.IDs(r.state.Waiting))
	case r.state.Pause != nil:
		return nil, fmt.Errorf("%s is paused by %s; nothing is granted until it is resumed", r.name, r.state.Pause.By)
	}
	return func() string {
		h := r.state.Admit(place, r.now())
		r.signal(h, protocol.SignalGranted)
		text := h.Name() + " goes out of turn"
		r.note(auditLease, &who, text, q.Reason)
		return text
	}, nil
}
