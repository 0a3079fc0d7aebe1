package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
)

// Between two looks while waiting. Looks are queries: they cost no history.
const (
	pollSoon = 250 * time.Millisecond
	pollSlow = time.Second
)

// follower looks at a service until what it waits for is decided.
type follower struct {
	f       *Factory
	api     API
	name    serviceName
	goal    goal
	timeout time.Duration // 0: none
	// saw is told every status, newest last.
	saw func(protocol.Status) error
}

// follow polls until exitFor says that it is over. It outlives lost connections and workers that
// are away; the timeout and Ctrl-C end watching only, never what is watched.
func (w *follower) follow(ctx context.Context) (protocol.Status, outcome, error) {
	parent := ctx
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	var last outcome
	p := pace{}
	for lost := false; ; {
		var s protocol.Status
		err := w.api.Query(ctx, w.name.id(), protocol.QueryStatus, &s)
		switch {
		case ctx.Err() != nil:
			return s, last, w.ended(parent, last)
		case err != nil && !transient(err):
			return s, last, err
		case err != nil:
			if !lost {
				w.f.note("%v; trying again", err)
			}
			lost = true
		default:
			if lost {
				w.f.note("connected again")
			}
			lost = false
			if err := w.saw(s); err != nil {
				return s, last, err
			}
			if last = exitFor(s, w.goal); last.over {
				return s, last, nil
			}
		}
		if w.f.Sleep(ctx, p.next(s)) != nil {
			return s, last, w.ended(parent, last)
		}
	}
}

// ended tells a timeout from Ctrl-C.
func (w *follower) ended(parent context.Context, last outcome) error {
	if errors.Is(context.Cause(parent), errInterrupted) {
		w.f.note("stopped watching; %s goes on. See: converge status %s", w.name.service, w.name)
		return exit(exitInterrupted)
	}
	if parent.Err() != nil {
		return parent.Err()
	}
	text := fmt.Errorf("timed out after %s", w.timeout)
	if last.why != "" {
		text = fmt.Errorf("timed out after %s: %s", w.timeout, last.why)
	}
	return &exitErr{exitTimeout, text}
}

// pace looks often while things happen and once a second when they do not.
type pace struct {
	wait time.Duration
	line int64
}

func (p *pace) next(s protocol.Status) time.Duration {
	newest := p.line
	if n := len(s.Journal); n > 0 {
		newest = s.Journal[n-1].N
	}
	if newest != p.line || p.wait == 0 {
		p.line, p.wait = newest, pollSoon
		return p.wait
	}
	p.wait = min(p.wait*5/4, pollSlow)
	return p.wait
}
