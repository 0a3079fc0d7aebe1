package verb

import (
	"errors"
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file holds the verbs of a runtime.

var runtime = [...]Row{
	{
		Name: protocol.SignalLease, Description: "asks for a lease: a place among the applies that run at once", Guard: Open, unsigned: true,
		payload: of(func(r *Request, p *entities.LeaseRequest) { r.Lease = *p }), complete: checkLease,
	},
	{Name: protocol.SignalKeep, Description: "says that a lease is still held", Guard: Open, unsigned: true, payload: ofLease, complete: needsLease},
	{Name: protocol.SignalGive, Description: "gives a lease back, or takes it back from its holder", unsigned: true, payload: ofLease, complete: needsLease},
	{Name: protocol.Grant, Description: "lets a lease that waits go now, whatever the limit", payload: ofLease, complete: needsLease},
	{Name: protocol.Pause, Description: "pauses everything that lives on the runtime", payload: justAct},
	{Name: protocol.Resume, Description: "ends the pause of the runtime", payload: justAct},
	{Name: protocol.Drain, Description: "takes the runtime out of service: what runs there leaves, service by service", payload: ofDrain},
	{Name: protocol.TurnUp, Description: "brings the runtime back: what had left comes back, service by service", payload: ofDrain},
}

// ofDrain is the payload of drain and turnup.
var ofDrain = of(func(r *Request, p *protocol.DrainRequest) { r.Act, r.Force = p.Act, p.Force })

func needsLease(r Request) error {
	if r.ID == "" {
		return errors.New(`"id" is missing; expected that of a lease`)
	}
	return nil
}

// checkLease rejects an invalid lease request.
func checkLease(r Request) error {
	switch l := r.Lease; {
	case l.ID == "" || l.Holder == "":
		return errors.New(`"id" and "holder" are needed: of the lease, and of the workflow that asks for it`)
	case len(l.ID) > 2*MaxName || len(l.Holder) > MaxName:
		return fmt.Errorf(`"id" or "holder" is too long; at most %d and %d bytes`, 2*MaxName, MaxName)
	case l.Limit < 1:
		return fmt.Errorf(`"limit" is %d; expected at least 1: where nothing is bounded no lease is asked for`, l.Limit)
	case l.Timeout <= 0:
		return fmt.Errorf(`"timeout" is %s; expected how long an apply may take`, l.Timeout)
	}
	return nil
}
