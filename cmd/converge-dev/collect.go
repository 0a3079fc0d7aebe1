package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/collect"
	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/intent/store"
)

// The retention of a dev server's store, and the interval of the garbage collection. The first collection waits until everything has
// started.
const (
	collectGrace = time.Hour
	collectKeep  = 30 * 24 * time.Hour
	collectFirst = 5 * time.Minute
	collectEvery = time.Hour
)

// collector keeps the store of a dev server small.
type collector struct {
	client   client.Client
	payloads *codec.Codec
	store    string
	out      io.Writer
}

// run collects periodically until ctx ends, and reports an error once.
func (c *collector) run(ctx context.Context) {
	reported := ""
	for wait := collectFirst; ; wait = collectEvery {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		err := c.collect(ctx)
		if err != nil && err.Error() != reported && ctx.Err() == nil {
			reported = err.Error()
			fmt.Fprintf(c.out, "the store was not garbage-collected: %v\n", err)
		}
	}
}

func (c *collector) collect(ctx context.Context) error {
	s, err := store.Open(ctx, c.store)
	if err != nil {
		return err
	}
	defer s.Close() // all writes are complete
	_, err = collect.Collector{
		Client: c.client, Namespace: client.DefaultNamespace, Store: s, Payloads: c.payloads,
		Collection: store.Collection{By: "converge dev", Grace: collectGrace, Keep: collectKeep},
	}.Run(ctx)
	return err
}
