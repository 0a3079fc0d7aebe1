package entities

import "slices"

// Drain marks a pause of a runtime as a drain: the runtime is taken out of service. Services are removed from it one by one, dependents
// first, and return in the opposite order.
type Drain struct {
	// Force: a service leaves even if nothing of it remains elsewhere, and returns without waiting for its dependencies.
	Force     bool `json:"force,omitempty"`
	Restoring bool `json:"up,omitempty"`   // services return
	Done      bool `json:"done,omitempty"` // no service is left that has to leave
	// Permits of the services concerned, by workflow id, sorted.
	Permits []DrainPermit `json:"turns,omitempty"`
}

// DrainPermit says whether a service may leave a runtime, or return, and if not, what it waits for.
type DrainPermit struct {
	Service  string `json:"service"` // workflow id
	Allowed  bool   `json:"go,omitempty"`
	WaitsFor string `json:"waits,omitempty"`
}

// PermitOf returns the permit of a service. A service without a permit waits.
func (d *Drain) PermitOf(service string) DrainPermit {
	if n := slices.IndexFunc(d.Permits, func(t DrainPermit) bool { return t.Service == service }); n >= 0 {
		return d.Permits[n]
	}
	return DrainPermit{Service: service}
}

// OwnPermit returns the permit of the service that received the drain.
func (d *Drain) OwnPermit() DrainPermit {
	if len(d.Permits) == 0 {
		return DrainPermit{}
	}
	return d.Permits[0]
}

// WithOwnPermit returns a pause with the permit of one service only, instead of hundreds.
func (p *Pause) WithOwnPermit(service string) *Pause {
	if p == nil || p.Drain == nil {
		return p
	}
	own, drain := *p, *p.Drain
	drain.Permits, own.Drain = []DrainPermit{drain.PermitOf(service)}, &drain
	return &own
}

// StateText says how a pause holds its scope: drained or paused.
func (p *Pause) StateText() string {
	if p.Drain != nil {
		return "drained"
	}
	return "paused"
}

// ForService returns the pause that one service is notified of, or nil if the pause is over for it, since it may return.
func (p *Pause) ForService(service string) *Pause {
	out := Pause{Scope: p.Scope, By: p.By, Reason: p.Reason, At: p.At}
	if p.Drain == nil {
		return &out
	}
	permit := p.Drain.PermitOf(service)
	if p.Drain.Restoring && permit.Allowed {
		return nil
	}
	out.Drain = &Drain{Force: p.Drain.Force, Restoring: p.Drain.Restoring, Permits: []DrainPermit{permit}}
	return &out
}
