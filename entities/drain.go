package entities

import "slices"

// Drain marks a pause of a runtime as a drain: the runtime is taken out of service. Services are removed from it one by one, dependents
// first, and return in the opposite order.
type Drain struct {
	// Force: a service leaves even if nothing of it remains elsewhere, and returns without waiting for its dependencies.
	Force bool `json:"force,omitempty"`
	Up    bool `json:"up,omitempty"`   // services return
	Done  bool `json:"done,omitempty"` // no service is left that has to leave
	// Turns of the services concerned, by workflow id, sorted.
	Turns []Turn `json:"turns,omitempty"`
}

// Turn says whether a service may leave a runtime, or return, and if not, what it waits for.
type Turn struct {
	Service string `json:"service"` // workflow id
	Go      bool   `json:"go,omitempty"`
	Waits   string `json:"waits,omitempty"`
}

// Of returns the turn of a service. A service without a turn waits.
func (d *Drain) Of(service string) Turn {
	if n := slices.IndexFunc(d.Turns, func(t Turn) bool { return t.Service == service }); n >= 0 {
		return d.Turns[n]
	}
	return Turn{Service: service}
}

// Mine returns the turn of the service that received the drain.
func (d *Drain) Mine() Turn {
	if len(d.Turns) == 0 {
		return Turn{}
	}
	return d.Turns[0]
}

// Own returns a pause with the turn of one service only, instead of hundreds.
func (p *Pause) Own(service string) *Pause {
	if p == nil || p.Drain == nil {
		return p
	}
	own, drain := *p, *p.Drain
	drain.Turns, own.Drain = []Turn{drain.Of(service)}, &drain
	return &own
}

// Held says how a pause holds its scope: drained or paused.
func (p *Pause) Held() string {
	if p.Drain != nil {
		return "drained"
	}
	return "paused"
}

// For returns the pause that one service is notified of, or nil if the pause is over for it, since it may return.
func (p *Pause) For(service string) *Pause {
	told := Pause{Scope: p.Scope, By: p.By, Reason: p.Reason, At: p.At}
	if p.Drain == nil {
		return &told
	}
	turn := p.Drain.Of(service)
	if p.Drain.Up && turn.Go {
		return nil
	}
	told.Drain = &Drain{Force: p.Drain.Force, Up: p.Drain.Up, Turns: []Turn{turn}}
	return &told
}
