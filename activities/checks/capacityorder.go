package checks

import (
	"context"
	"errors"
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/order"
)

// capacityOrder blocks a change of capacity until the other service has made its own change, if that one must go first (D20, D21). A
// change without an effect on capacity passes without a query.
type capacityOrder struct{ sources Sources }

func (c capacityOrder) Evaluate(ctx context.Context, a Request) (entities.CheckReading, error) {
	d := a.Definition.Dependency
	if d == nil || d.Parameter == "" {
		return unevaluated("it names no parameter for the capacity")
	}
	first, err := order.FirstWhen(d.First)
	if err != nil {
		return entities.CheckReading{}, err
	}
	own, err := c.ownChange(ctx, a)
	if err != nil {
		return entities.CheckReading{}, err
	}
	if own.Direction() == order.Same {
		return pass("the capacity %s, so nothing depends on it", own)
	}
	return c.sources.evaluateOther(ctx, a, func(o other) (entities.CheckReading, error) {
		if reason, err := c.outdated(ctx, a, o); err != nil || reason != "" {
			if err != nil {
				return entities.CheckReading{}, err
			}
			return wait("%s", reason)
		}
		otherChange, err := c.otherChange(ctx, a, o)
		if err != nil {
			return entities.CheckReading{}, err
		}
		if order.Delays(own, first, otherChange) {
			return o.waitOrFail("%s %s and must go first when %s; this one %s", dependencyNode(a), otherChange, own.Direction(), own)
		}
		return pass("this one %s, %s %s: it need not wait", own, dependencyNode(a), otherChange)
	})
}

// ownChange returns the change of this service. Before its first version the capacity is 0.
func (c capacityOrder) ownChange(ctx context.Context, a Request) (change order.Change, err error) {
	name := a.Definition.Dependency.Parameter
	if change.After, err = c.sources.parameter(ctx, a.Evaluation.Payload, name); err != nil || a.Evaluation.CurrentPayload == "" {
		return change, err
	}
	change.Before, err = c.sources.parameter(ctx, a.Evaluation.CurrentPayload, name)
	return change, err
}

// otherChange returns the pending change of the other service: from the version that it has reached to the next one in its queue.
func (c capacityOrder) otherChange(ctx context.Context, a Request, o other) (change order.Change, err error) {
	if change.Before, err = c.capacityOf(ctx, a, o.reachedVersion()); err != nil {
		return change, err
	}
	change.After, err = c.capacityOf(ctx, a, o.channel.Desired)
	return change, err
}

func (c capacityOrder) capacityOf(ctx context.Context, a Request, version string) (float64, error) {
	if version == "" {
		return 0, nil
	}
	d, at := a.Definition.Dependency, dependencyNode(a)
	parameters, err := c.sources.Services.Parameters(ctx, at.application, at.service, at.channel, version)
	if err != nil {
		return 0, fmt.Errorf("parameters of %s of %s: %w", version, at, err)
	}
	name := d.OtherParameter
	if name == "" {
		name = d.Parameter
	}
	n, err := numeric(name, parameters)
	if err != nil {
		return 0, fmt.Errorf("%s of %s: %w", version, at, err)
	}
	return n, nil
}

// outdated says which of the two services has not read the newest incarnation. Until both have, their changes belong to different
// configurations (D20). With two applications, each service must have read its own. A service is notified of an incarnation only if that
// changes its rules, so the comparison uses the rules.
func (c capacityOrder) outdated(ctx context.Context, a Request, o other) (string, error) {
	own, err := c.sources.Services.Status(ctx, a.Definition.Application, a.Definition.Service)
	if errors.Is(err, ErrNoService) {
		return fmt.Sprintf("%s has not started yet", a.Definition.Service), nil
	}
	if err != nil {
		return "", fmt.Errorf("service %s: %w", a.Definition.Service, err)
	}
	for _, s := range []struct {
		node
		spec string
		read int64
	}{{ownNode(a), own.Spec, own.Incarnation}, {dependencyNode(a), o.status.Spec, o.status.Incarnation}} {
		newest, specs, err := c.sources.Services.Newest(ctx, s.application)
		if err != nil {
			return "", fmt.Errorf("newest incarnation of %s: %w", s.application, err)
		}
		if s.spec != specs[s.service] {
			return fmt.Sprintf("%s has read incarnation %d, but %d is the newest; both services must have read it", s.title(), s.read, newest), nil
		}
	}
	return "", nil
}
