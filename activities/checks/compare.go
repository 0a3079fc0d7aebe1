package checks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/stats"
)

// compare passes once the release is no worse than a control group (D26). It evaluates the samples of a declared period at a declared
// time, so a later evaluation has the same result. It evaluates a second time only if the first had too few samples. That decision does
// not depend on the values of the samples.
type compare struct{ sources Sources }

func (c compare) Evaluate(ctx context.Context, a Request) (entities.CheckReading, error) {
	d := a.Definition.Compare
	if d == nil {
		return incomplete(a)
	}
	since, err := c.sources.stableSince(ctx, a)
	if err != nil {
		return entities.CheckReading{}, err
	}
	earlier, firstErr := "", error(nil)
	for _, after := range []time.Duration{d.For, d.Deadline} {
		end := since.Add(after)
		if a.Now.Before(end) {
			r, err := wait("%sevaluation at %s UTC, since %s", earlier, timeOfDay(end, a.Now), timeOfDay(since, a.Now))
			r.Next = end
			return r, err
		}
		r, inconclusive, err := c.judge(ctx, d, since, end)
		if firstErr == nil && err != nil && after < d.Deadline && !a.Now.Before(since.Add(d.Deadline)) {
			firstErr = err // it continues, because the first period does not change
			continue
		}
		if err != nil {
			return entities.CheckReading{}, cmp.Or(firstErr, err)
		}
		if inconclusive == "" {
			return r, nil
		}
		earlier = "INCONCLUSIVE: " + inconclusive + "; "
	}
	if d.InconclusivePasses {
		return pass("%swhich is declared to pass", earlier)
	}
	return fail("%swhich is declared to fail", earlier)
}

// judge evaluates one period. inconclusive is the reason why there is no result.
func (c compare) judge(ctx context.Context, d *entities.CompareCheck, from, to time.Time) (r entities.CheckReading, inconclusive string, err error) {
	partial := ""
	e, err := c.measure(ctx, d, from, to, &partial)
	switch reason := evidenceText(d, e, from, to); {
	case d.EmptyPasses && partial == "" && (errors.Is(err, stats.ErrNoSamples) || errors.Is(err, errNoSample)):
		r, err = pass("%s, which is declared to pass", err)
	case err != nil:
	case partial != "":
		inconclusive = partial
	case e.Outcome == stats.Worse:
		r, err = fail("%s", reason)
	case e.Outcome == stats.Same:
		r, err = pass("%s", reason)
	default:
		inconclusive = reason
	}
	return r, inconclusive, err
}

// stableSince returns since when the objects of the release under evaluation are stable. A pause does not move this time, because that
// would change the period.
func (p Sources) stableSince(ctx context.Context, a Request) (time.Time, error) {
	status, err := p.ownStatus(ctx)
	if err != nil {
		return time.Time{}, err
	}
	n := slices.IndexFunc(status.Channels, func(c protocol.ChannelStatus) bool { return c.Name == a.Definition.Channel })
	inChannel := n >= 0 && (status.Channels[n].Target == a.Evaluation.FullVersion || slices.ContainsFunc(status.Releases, func(r protocol.ReleaseStatus) bool {
		// In a fleet, the target may belong to another instance.
		return r.ID == a.Evaluation.Release && r.Phases[a.Definition.Channel] == string(maestro.InProgress)
	}))
	if !inChannel || status.Channels[n].StableSince.IsZero() {
		return time.Time{}, fmt.Errorf("the objects of %s are not stable in %s", a.Evaluation.FullVersion, a.Definition.Channel)
	}
	if from := status.Channels[n].StableFrom; !from.IsZero() { // from a service whose worker reports it
		return from, nil
	}
	return status.Channels[n].StableSince, nil
}

// measure compares the data between two times. It sets partial if the data is incomplete.
func (c compare) measure(ctx context.Context, d *entities.CompareCheck, from, to time.Time, partial *string) (stats.Evidence, error) {
	plan := stats.Plan{
		Direction: stats.Direction(d.Direction), Alpha: d.Alpha, Comparisons: d.Comparisons, Tolerance: d.Tolerance, MinSamples: d.MinSamples, Drop: d.DropNaN,
	}
	control, controlTotal := d.Control, d.ControlTotal
	if d.Offset > 0 {
		control, controlTotal = d.Query, d.Total
	}
	server := promServer{sources: c.sources, url: d.URL, token: d.Token, partial: partial}
	if d.Total != "" {
		released, err := server.count(ctx, "released", d.Query, d.Total, from, to)
		if err != nil {
			return stats.Evidence{}, err
		}
		before, err := server.count(ctx, "control group", control, controlTotal, from.Add(-d.Offset), to.Add(-d.Offset))
		if err != nil {
			return stats.Evidence{}, err
		}
		return stats.Counts(plan, released, before)
	}
	released, err := server.between(ctx, d.Query, from, to, d.Step)
	if err != nil {
		return stats.Evidence{}, fmt.Errorf("released: %w", err)
	}
	before, err := server.between(ctx, control, from.Add(-d.Offset), to.Add(-d.Offset), d.Step)
	if err != nil {
		return stats.Evidence{}, fmt.Errorf("control group: %w", err)
	}
	return stats.Samples(plan, released, before)
}

// count queries a part and its total. Prometheus extrapolates an increase, so the values may not be whole numbers.
func (p promServer) count(ctx context.Context, what, of, total string, from, to time.Time) (stats.Count, error) {
	p.at = to
	counts := [2]int{}
	for i, query := range []string{of, total} {
		v, err := p.single(ctx, what, strings.ReplaceAll(query, "$__range", fmt.Sprintf("%dms", to.Sub(from).Milliseconds())))
		switch {
		case err != nil:
			return stats.Count{}, err
		case v < 0 || v > 1e9:
			return stats.Count{}, fmt.Errorf("%s: %s is not a count of at most a billion", what, number(v))
		}
		counts[i] = int(math.Round(v))
	}
	if excess := counts[0] - counts[1]; excess > 0 && excess <= 1+counts[1]/10 {
		counts[0] = counts[1] // extrapolation made the part larger than the total
	}
	return stats.Count{Of: counts[0], Total: counts[1]}, nil
}

// evidenceText describes the complete basis of a result, so that it can be understood much later.
func evidenceText(d *entities.CompareCheck, e stats.Evidence, from, to time.Time) string {
	text := fmt.Sprintf("%s, from %s to %s UTC", e, from.UTC().Format(day), timeOfDay(to, from))
	if d.Offset > 0 {
		text += fmt.Sprintf(", against %s before (weaker than a control group at the same time)", entities.Length(d.Offset))
	}
	return text
}

const day = "2006-01-02 15:04:05"

// timeOfDay formats a time of day, with the date if it differs from that of a known time.
func timeOfDay(t, known time.Time) string {
	if t, known = t.UTC(), known.UTC(); t.YearDay() == known.YearDay() && t.Year() == known.Year() {
		return t.Format(time.TimeOnly)
	}
	return t.Format(day)
}
