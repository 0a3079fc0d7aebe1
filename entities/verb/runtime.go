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
		Name: protocol.SignalLease, Description: "requests a lease: the right to one of the concurrent applies", Access: Open, unsigned: true,
		payload: payloadOf(func(r *Request, p *entities.LeaseRequest) { r.Lease = *p }), validate: checkLease,
	},
	{Name: protocol.SignalKeep, Description: "confirms that a lease is still held", Access: Open, unsigned: true, payload: leasePayload, validate: requireLease},
	{Name: protocol.SignalGive, Description: "returns a lease, or revokes it from its holder", unsigned: true, payload: leasePayload, validate: requireLease},
	{Name: protocol.Grant, Description: "grants a waiting lease now, regardless of the limit", payload: leasePayload, validate: requireLease},
	{Name: protocol.Pause, Description: "pauses everything on the runtime", payload: actPayload},
	{Name: protocol.Resume, Description: "ends the pause of the runtime", payload: actPayload},
	{Name: protocol.Drain, Description: "takes the runtime out of service: moves its services away, one by one", payload: drainPayload},
	{Name: protocol.Restore, Description: "returns the runtime to service: moves its services back, one by one", payload: drainPayload},
}

// drainPayload is the payload of drain and restore.
var drainPayload = payloadOf(func(r *Request, p *protocol.DrainRequest) { r.RequestMeta, r.Force = p.RequestMeta, p.Force })

func requireLease(r Request) error {
	if r.ID == "" {
		return errors.New(`"id" is missing; expected the id of a lease`)
	}
	return nil
}

// checkLease rejects an invalid lease request.
func checkLease(r Request) error {
	switch l := r.Lease; {
	case l.ID == "" || l.Holder == "":
		return errors.New(`"id" of the lease and "holder", the requesting workflow, are required`)
	case len(l.ID) > 2*MaxName || len(l.Holder) > MaxName:
		return fmt.Errorf(`"id" or "holder" is too long; at most %d and %d bytes`, 2*MaxName, MaxName)
	case l.Limit < 1:
		return fmt.Errorf(`"limit" is %d; expected at least 1: without a limit no lease is requested`, l.Limit)
	case l.Timeout <= 0:
		return fmt.Errorf(`"timeout" is %s; expected the maximum duration of an apply`, l.Timeout)
	}
	return nil
}
