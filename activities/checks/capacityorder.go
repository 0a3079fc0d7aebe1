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

func (c capacityOrder) Evaluate(ctx context.Context, a Asked) (entities.CheckReading, error) {
	d := a.Definition.Dependency
	if d == nil || d.Parameter == "" {
		return unevaluated("it names no parameter for the capacity")
	}
	first, err := order.FirstWhen(d.First)
	if err != nil {
		return entities.CheckReading{}, err
	}
	mine, err := c.mine(ctx, a)
	if err != nil {
		return entities.CheckReading{}, err
	}
	if mine.Direction() == order.Same {
		return pass("the capacity %s, so nothing depends on it", mine)
	}
	return c.sources.onOther(ctx, a, func(o other) (entities.CheckReading, error) {
		if why, err := c.behind(ctx, a, o); err != nil || why != "" {
			if err != nil {
				return entities.CheckReading{}, err
			}
			return wait("%s", why)
		}
		others, err := c.others(ctx, a, o)
		if err != nil {
			return entities.CheckReading{}, err
		}
		if order.Delays(mine, first, others) {
			return o.delayed("%s %s and must go first when %s; this one %s", otherOf(a), others, mine.Direction(), mine)
		}
		return pass("this one %s, %s %s: it need not wait", mine, otherOf(a), others)
	})
}

// mine returns the change of this service. Before its first version the capacity is 0.
func (c capacityOrder) mine(ctx context.Context, a Asked) (change order.Change, err error) {
	name := a.Definition.Dependency.Parameter
	if change.After, err = c.sources.parameter(ctx, a.Evaluation.Payload, name); err != nil || a.Evaluation.Present == "" {
		return change, err
	}
	change.Before, err = c.sources.parameter(ctx, a.Evaluation.Present, name)
	return change, err
}

// others returns the pending change of the other service: from the version that it has reached to the next one in its queue.
func (c capacityOrder) others(ctx context.Context, a Asked, o other) (change order.Change, err error) {
	if change.Before, err = c.of(ctx, a, o.present()); err != nil {
		return change, err
	}
	change.After, err = c.of(ctx, a, o.channel.Desired)
	return change, err
}

func (c capacityOrder) of(ctx context.Context, a Asked, version string) (float64, error) {
	if version == "" {
		return 0, nil
	}
	d, at := a.Definition.Dependency, otherOf(a)
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

// behind says which of the two services has not read the newest incarnation. Until both have, their changes belong to different
// configurations (D20). With two applications, each service must have read its own. A service is notified of an incarnation only if that
// changes its rules, so the comparison uses the rules.
func (c capacityOrder) behind(ctx context.Context, a Asked, o other) (string, error) {
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
	}{{self(a), own.Spec, own.Incarnation}, {otherOf(a), o.status.Spec, o.status.Incarnation}} {
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
