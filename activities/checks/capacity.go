package checks

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/converge-engine/converge/entities"
)

const (
	defaultUsePeriod = 24 * time.Hour
	minStep          = time.Second     // minimum distance of the points for the maximum
	maxStep          = 5 * time.Minute // maximum distance; a peak between two points is missed
	maxSteps         = 1440
)

// capacity waits while the new capacity is less than the recent maximum use (D19); equality passes.
type capacity struct{ sources Sources }

func (c capacity) Evaluate(ctx context.Context, a Request) (entities.CheckReading, error) {
	d := a.Definition.Capacity
	switch {
	case d == nil:
		return incomplete(a)
	case !d.HasOneSource():
		return unevaluated("expected exactly one of a query, a parameter and an object for the new capacity")
	case d.Use == "":
		return unevaluated("it has no query for the current use")
	}
	server := promServer{sources: c.sources, url: d.URL, token: d.Token}
	period := d.Over
	if period <= 0 {
		period = defaultUsePeriod
	}
	use, err := server.single(ctx, "use", recentMaximum(d.Use, period))
	if err != nil {
		return entities.CheckReading{}, err
	}
	newCapacity, err := c.newCapacity(ctx, server, a)
	if err != nil {
		return entities.CheckReading{}, err
	}
	if e := a.Evaluation; e.Total > 0 { // all instances are assumed to have the same capacity
		newCapacity *= float64(e.Remaining) / float64(e.Total)
	}
	if newCapacity < use {
		return wait("capacity would be %s, less than the maximum use of %s in the last %s", number(newCapacity), number(use), period)
	}
	return pass("capacity would be %s; the maximum use in the last %s was %s", number(newCapacity), period, number(use))
}

// recentMaximum returns the query of the maximum of a query over a time until now.
func recentMaximum(query string, period time.Duration) string {
	step := min(max((period/maxSteps).Round(time.Second), minStep), maxStep)
	return fmt.Sprintf("max_over_time((%s)[%dms:%dms])", query, period.Milliseconds(), step.Milliseconds())
}

// single returns the single value of a query. Several values are an error, because the definition does not say how to match them.
func (p promServer) single(ctx context.Context, what, query string) (float64, error) {
	samples, err := p.query(ctx, query)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s: %w", what, err)
	case len(samples) == 0:
		return 0, fmt.Errorf("%s: %w", what, errNoSample)
	case len(samples) > 1:
		return 0, fmt.Errorf("%s: %w", what, severalSeriesError(len(samples)))
	}
	if err := samples[0].finite(); err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	return samples[0].value, nil
}

// newCapacity returns the new capacity: from a query, from a parameter of the version under evaluation, or from a running object.
func (c capacity) newCapacity(ctx context.Context, server promServer, a Request) (float64, error) {
	d := a.Definition.Capacity
	if d.Capacity != "" {
		return server.single(ctx, "capacity", d.Capacity)
	}
	units, err := c.units(ctx, a)
	if err != nil {
		return 0, err
	}
	if d.Per == 0 {
		return units, nil
	}
	return units * d.Per, nil
}

func (c capacity) units(ctx context.Context, a Request) (float64, error) {
	if d := a.Definition.Capacity; d.Object == "" {
		return c.sources.parameter(ctx, a.Evaluation.Payload, d.Parameter)
	}
	return c.sources.available(ctx, a)
}

// available returns the number of available replicas of an object in the channel. It is 0 before the first release there.
func (p Sources) available(ctx context.Context, a Request) (float64, error) {
	name, at := a.Definition.Capacity.Object, ownNode(a)
	o, err := p.query(ctx, at)
	if err != nil {
		return 0, err
	}
	replicas, found := 0, false
	var known []string
	for _, object := range o.channel.Objects {
		if object.Name != name {
			known = append(known, object.Name)
			continue
		}
		found = true
		for _, v := range object.Versions {
			replicas += v.AvailableReplicas
		}
	}
	switch {
	case o.channel.Target == "":
		return 0, nil
	case o.channel.Status == string(entities.StatusUnknown):
		return 0, fmt.Errorf("the state of %s is unknown", at)
	case o.channel.Omitted > 0:
		return 0, fmt.Errorf("%s has %d objects more than its status lists; expected a query instead", at, o.channel.Omitted)
	case !found:
		return 0, fmt.Errorf("%s has no object %s%s", at, name, entities.Expected(known))
	}
	return float64(replicas), nil
}

// parameter reads a number from a payload.
func (p Sources) parameter(ctx context.Context, digest, name string) (float64, error) {
	switch {
	case p.Payloads == nil:
		return 0, fmt.Errorf("parameter %s is not available here", name)
	case digest == "":
		return 0, fmt.Errorf("parameter %s is unknown: there is no payload yet", name)
	}
	payload, err := p.Payloads.Payload(ctx, digest)
	if err != nil {
		return 0, fmt.Errorf("parameter %s: %w", name, err)
	}
	return numeric(name, payload.Parameters)
}

// numeric converts a decoded parameter to a number.
func numeric(name string, parameters map[string]any) (float64, error) {
	v, ok := parameters[name]
	if !ok {
		return 0, fmt.Errorf("there is no parameter %s", name)
	}
	var n float64
	var err error
	switch v := v.(type) {
	case float64:
		n = v
	case int:
		n = float64(v)
	case int64:
		n = float64(v)
	case json.Number:
		n, err = v.Float64()
	case string:
		n, err = strconv.ParseFloat(v, 64)
	default:
		err = fmt.Errorf("it is a %T", v)
	}
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return 0, fmt.Errorf("parameter %s is not a number", name)
	}
	return n, nil
}
