package activities

import (
	"context"
	"hash/fnv"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
)

// Observe observes instances of one service, each on its own and with its own deadline, so that a
// hung one is reported alone and delays no other (A7). It completes when something is not as
// known; else it asks the server for another attempt after the interval, which writes no history.
func (a *Activities) Observe(ctx context.Context, r protocol.ObserveRequest) (protocol.ObserveAnswer, error) {
	watched := a.watch(ctx, r)
	news := observeAll(ctx, r, watched.observe)
	bound(news, entities.SortedIDs(news))
	if ctx.Err() != nil { // the worker is stopping: what it read half way counts for nothing
		watched.end(false)
		return protocol.ObserveAnswer{}, ctx.Err()
	}
	wait := watched.pace(news)
	if len(news) > 0 || r.Interval == 0 {
		watched.notified(news)
		watched.end(false)
		return protocol.ObserveAnswer{Readings: news}, nil
	}
	watched.end(true)
	if wait == 0 {
		info := activity.GetInfo(ctx)
		wait = spread(watched.interval(info.Attempt), info.WorkflowExecution.ID)
	}
	return protocol.ObserveAnswer{}, temporal.NewApplicationErrorWithOptions("as known", protocol.ErrUnchanged,
		temporal.ApplicationErrorOptions{
			NextRetryDelay: wait,
			Category:       temporal.ApplicationErrorCategoryBenign,
		})
}

func (a *Activities) observeOne(ctx context.Context, r protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
	line, err := a.connect(ctx, r.Runtime, r.RuntimeDigest)
	if err != nil {
		return unready(err)
	}
	in, err := a.instance(ctx, runtimes.Instance{
		Owner: ownerOf(r, ref.ID), ServiceID: r.ServiceID, FullVersion: ref.FullVersion,
	}, ref.Payload)
	if err != nil {
		return unready(err)
	}
	reading, output := line.observe(ctx, in, r.Timeout)
	if reading.Digest() != ref.Known && ctx.Err() == nil {
		a.logFetch(ctx, in, output, reading)
	}
	return reading
}

// unready is the reading when the worker could not even begin to observe.
func unready(err error) entities.Reading {
	return entities.Reading{At: time.Now().UTC(), Err: &entities.ReadingError{Code: "not-ready", Message: runtimes.Clip(err.Error(), 1000)}}
}

// spread moves an interval by up to a tenth either way, the same for one service always, so that
// services that began together do not observe together for ever.
func spread(interval time.Duration, key string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	return interval + interval*time.Duration(int64(h.Sum32()%201)-100)/1000
}
