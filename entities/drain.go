package entities

import "slices"

// Drain is, of a pause, that the runtime is taken out of service: what runs there is removed, service by service, those that others
// depend on last, and comes back the other way round.
type Drain struct {
	// Force: a service leaves whatever remains of it elsewhere, and comes back whatever it depends on.
	Force bool `json:"force,omitempty"`
	Up    bool `json:"up,omitempty"`   // services come back
	Done  bool `json:"done,omitempty"` // none is left to leave
	// Turns of the services that are concerned, by workflow id, sorted.
	Turns []Turn `json:"turns,omitempty"`
}

// Turn says whether it is a service's turn to leave a runtime, or to come back; if not, what it waits for.
type Turn struct {
	Service string `json:"service"` // workflow id
	Go      bool   `json:"go,omitempty"`
	Waits   string `json:"waits,omitempty"`
}

// Of is the turn of a service; without one it waits to be told.
func (d *Drain) Of(service string) Turn {
	if n := slices.IndexFunc(d.Turns, func(t Turn) bool { return t.Service == service }); n >= 0 {
		return d.Turns[n]
	}
	return Turn{Service: service}
}

// Mine is the turn of the service that was told of the drain.
func (d *Drain) Mine() Turn {
	if len(d.Turns) == 0 {
		return Turn{}
	}
	return d.Turns[0]
}

// Own is a pause with the turn of one service alone, of hundreds.
func (p *Pause) Own(service string) *Pause {
	if p == nil || p.Drain == nil {
		return p
	}
	own, drain := *p, *p.Drain
	drain.Turns, own.Drain = []Turn{drain.Of(service)}, &drain
	return &own
}

// Held says how a pause holds what it is of.
func (p *Pause) Held() string {
	if p.Drain != nil {
		return "drained"
	}
	return "paused"
}

// For is what one service is told of a pause; nil: the pause is over for it, since it may come back.
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
