package checks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/protocol"
)

// other is another service in a channel, as it says itself at this moment (D20–D22).
type other struct {
	status  protocol.Status
	channel protocol.ChannelStatus
}

// node names a service in a channel, as seen from an application.
type node struct{ from, application, service, channel string }

// title is what the service is called there.
func (p node) title() string {
	if p.application != p.from {
		return p.application + "/" + p.service
	}
	return p.service
}

func (p node) String() string { return p.title() + " in " + p.channel }

// elsewhere tells whether the service is one of another application.
func (p node) elsewhere() bool { return p.application != p.from }

// self is the node that is asked about.
func self(a Asked) node {
	d := &a.Definition
	return node{d.Application, d.Application, d.Service, d.Channel}
}

// otherOf is the node that a check depends on.
func otherOf(a Asked) node {
	return self(a).named(a.Definition.Dependency.Service, a.Definition.Dependency.Channel)
}

// named is the node that rules of a service name: by a service, and a channel, if that is another one.
func (p node) named(service, channel string) node {
	application, service := entities.ServiceIn(p.application, service)
	return node{p.from, application, service, cmp.Or(channel, p.channel)}
}

// onOther evaluates what another service says. What has not started is waited for; what does not go to
// the channel never comes. A wait that cannot end by itself, because the other waits for this one, is a
// FAIL that names all who wait (D21).
func (p Sources) onOther(ctx context.Context, a Asked, evaluate func(other) (entities.CheckReading, error)) (entities.CheckReading, error) {
	if a.Definition.Dependency == nil || a.Definition.Dependency.Service == "" {
		return incomplete(a)
	}
	at := otherOf(a)
	o, err := p.ask(ctx, at)
	switch {
	case errors.Is(err, ErrNoApplication):
		return wait("there is no application %s; expected one that has the service %s", at.application, at.service)
	case errors.Is(err, ErrNoService) && at.elsewhere():
		return wait("application %s has no service %s that has started; expected one", at.application, at.service)
	case errors.Is(err, ErrNoService):
		return wait("%s has not started yet", at.service)
	case errors.Is(err, ErrEnded):
		return wait("nobody looks after %s now: %s (converge status %s/%s says more)", at.title(), ErrEnded, at.application, at.service)
	case errors.Is(err, errNoChannel):
		return fail("%s does not go to %s", at.title(), at.channel)
	case err != nil:
		return entities.CheckReading{}, err
	}
	r, err := evaluate(o)
	if err != nil || r.Verdict != entities.Wait && r.Verdict != entities.Fail {
		return r, err
	}
	// Of two in a circle the second finds the first BLOCKED by it already: it is reported as a circle, too.
	if circle := p.circle(ctx, a, o); circle != "" {
		return fail("deadlock: %s. %s", circle, r.Reason)
	}
	r.Reason += entities.Because(o.cause())
	return r, nil
}

var errNoChannel = errors.New("it does not go to that channel")

func (p Sources) ask(ctx context.Context, at node) (other, error) {
	if p.Services == nil {
		return other{}, errors.New("other services cannot be asked here")
	}
	status, err := p.Services.Status(ctx, at.application, at.service)
	if err != nil {
		return other{}, fmt.Errorf("service %s: %w", at.title(), err)
	}
	n := slices.IndexFunc(status.Channels, func(c protocol.ChannelStatus) bool { return c.Name == at.channel })
	switch {
	case n >= 0:
		return other{status, status.Channels[n]}, nil
	case status.Spec == "" && len(status.Channels) == 0: // it has only just begun
		return other{}, fmt.Errorf("service %s: %w", at.title(), ErrNoService)
	}
	return other{}, fmt.Errorf("service %s: %w", at.title(), errNoChannel)
}

// phase of a release in the channel.
func (o other) phase(r protocol.ReleaseStatus) maestro.Phase {
	return maestro.Phase(r.Phases[o.channel.Name])
}

// present is the version that the channel has reached: its target, or the last one that succeeded while
// it is still moving to it or failed on the way. Empty: none yet.
func (o other) present() string {
	there := base(o.channel.Target)
	for _, r := range o.status.Releases { // newest first
		if r.Aspect != "" || base(r.Version) != there || !o.phase(r).Entered() {
			continue
		}
		if p := o.phase(r); p == maestro.InProgress || p == maestro.Failed {
			return o.succeeded()
		}
		break
	}
	return o.channel.Target
}

func (o other) succeeded() string {
	for _, r := range o.status.Releases {
		if r.Aspect == "" && o.phase(r) == maestro.Succeeded && base(r.Version) != base(o.channel.Target) {
			return r.Version
		}
	}
	return ""
}

// base is a full version without the values that came to it.
func base(full string) string {
	version, _ := entities.SplitVersion(full)
	return version
}

// stuck reports whether the channel will not move on by itself.
func (o other) stuck() bool {
	return entities.Status(o.channel.Status).Stuck()
}

// cause is what holds the channel in the end, where it does not go on by itself: in words that change only with that, since
// each reading that is new is kept.
func (o other) cause() string {
	switch entities.Status(o.channel.Status) {
	case entities.StatusPaused, entities.StatusManualApproval, entities.StatusPreconditions, entities.StatusBlocked:
		return explain.Cause(o.status, o.channel, time.Time{})
	}
	return ""
}

// delayed is WAIT, or FAIL when the other will not move on by itself.
func (o other) delayed(format string, args ...any) (entities.CheckReading, error) {
	r, err := wait(format, args...)
	if o.stuck() {
		r.Verdict, r.Reason = entities.Fail, r.Reason+", and "+o.status.Service+" is "+o.channel.Status
	}
	return r, err
}
