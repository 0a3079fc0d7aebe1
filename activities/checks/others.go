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

// other is another service in a channel, with its current status (D20–D22).
type other struct {
	status  protocol.Status
	channel protocol.ChannelStatus
}

// node identifies a service in a channel, as seen from an application.
type node struct{ from, application, service, channel string }

// title returns the name of the service as seen from there.
func (p node) title() string {
	if p.application != p.from {
		return p.application + "/" + p.service
	}
	return p.service
}

func (p node) String() string { return p.title() + " in " + p.channel }

// isExternal reports whether the service belongs to another application.
func (p node) isExternal() bool { return p.application != p.from }

// ownNode returns the node under evaluation.
func ownNode(a Request) node {
	d := &a.Definition
	return node{d.Application, d.Application, d.Service, d.Channel}
}

// dependencyNode returns the node that a check depends on.
func dependencyNode(a Request) node {
	return ownNode(a).resolve(a.Definition.Dependency.Service, a.Definition.Dependency.Channel)
}

// resolve returns the node that a rule of a service refers to: a service, and a channel if it is another one.
func (p node) resolve(service, channel string) node {
	application, service := entities.ResolveService(p.application, service)
	return node{p.from, application, service, cmp.Or(channel, p.channel)}
}

// evaluateOther evaluates the status of another service. If that service has not started, it waits; if it does not deploy to the channel,
// it fails. If the other service waits for this one, the wait cannot end, and it FAILs with the whole cycle (D21).
func (p Sources) evaluateOther(ctx context.Context, a Request, evaluate func(other) (entities.CheckReading, error)) (entities.CheckReading, error) {
	if a.Definition.Dependency == nil || a.Definition.Dependency.Service == "" {
		return incomplete(a)
	}
	at := dependencyNode(a)
	o, err := p.query(ctx, at)
	switch {
	case errors.Is(err, ErrNoApplication):
		return wait("application %s does not exist; expected one with the service %s", at.application, at.service)
	case errors.Is(err, ErrNoService) && at.isExternal():
		return wait("application %s has no started service %s", at.application, at.service)
	case errors.Is(err, ErrNoService):
		return wait("%s has not started yet", at.service)
	case errors.Is(err, ErrEnded):
		return wait("%s is not managed: %s (for details: converge status %s/%s)", at.title(), ErrEnded, at.application, at.service)
	case errors.Is(err, errNoChannel):
		return fail("%s does not deploy to %s", at.title(), at.channel)
	case err != nil:
		return entities.CheckReading{}, err
	}
	r, err := evaluate(o)
	if err != nil || r.Verdict != entities.Wait && r.Verdict != entities.Fail {
		return r, err
	}
	// The second service of a cycle finds the first one BLOCKED. It reports the cycle, too.
	if cycle := p.findCycle(ctx, a, o); cycle != "" {
		return fail("deadlock: %s. %s", cycle, r.Reason)
	}
	r.Reason += entities.Because(o.cause())
	return r, nil
}

var errNoChannel = errors.New("it does not deploy to that channel")

func (p Sources) query(ctx context.Context, at node) (other, error) {
	if p.Services == nil {
		return other{}, errors.New("other services are not available here")
	}
	status, err := p.Services.Status(ctx, at.application, at.service)
	if err != nil {
		return other{}, fmt.Errorf("service %s: %w", at.title(), err)
	}
	n := slices.IndexFunc(status.Channels, func(c protocol.ChannelStatus) bool { return c.Name == at.channel })
	switch {
	case n >= 0:
		return other{status, status.Channels[n]}, nil
	case status.Spec == "" && len(status.Channels) == 0: // it has just started
		return other{}, fmt.Errorf("service %s: %w", at.title(), ErrNoService)
	}
	return other{}, fmt.Errorf("service %s: %w", at.title(), errNoChannel)
}

// phase returns the phase of a release in the channel.
func (o other) phase(r protocol.ReleaseStatus) maestro.Phase {
	return maestro.Phase(r.Phases[o.channel.Name])
}

// reachedVersion returns the version that the channel has reached: its target, or the last successful one if the target is still in
// progress or has failed. Empty: none yet.
func (o other) reachedVersion() string {
	target := base(o.channel.Target)
	for _, r := range o.status.Releases { // newest first
		if r.Aspect != "" || base(r.Version) != target || !o.phase(r).Entered() {
			continue
		}
		if p := o.phase(r); p == maestro.InProgress || p == maestro.Failed {
			return o.lastSucceeded()
		}
		break
	}
	return o.channel.Target
}

func (o other) lastSucceeded() string {
	for _, r := range o.status.Releases {
		if r.Aspect == "" && o.phase(r) == maestro.Succeeded && base(r.Version) != base(o.channel.Target) {
			return r.Version
		}
	}
	return ""
}

// base returns a full version without the values that were added to it.
func base(full string) string {
	version, _ := entities.SplitVersion(full)
	return version
}

// isStuck reports whether the channel needs intervention to continue.
func (o other) isStuck() bool {
	return entities.Status(o.channel.Status).Stuck()
}

// cause returns why the channel is stuck. The text changes only with the cause, because each new reading is stored.
func (o other) cause() string {
	switch entities.Status(o.channel.Status) {
	case entities.StatusPaused, entities.StatusManualApproval, entities.StatusPreconditions, entities.StatusBlocked:
		return explain.RootCause(o.status, o.channel, time.Time{})
	}
	return ""
}

// waitOrFail returns WAIT, or FAIL if the other service is stuck.
func (o other) waitOrFail(format string, args ...any) (entities.CheckReading, error) {
	r, err := wait(format, args...)
	if o.isStuck() {
		r.Verdict, r.Reason = entities.Fail, r.Reason+", and "+o.status.Service+" is "+o.channel.Status
	}
	return r, err
}
