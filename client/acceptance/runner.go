package acceptance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// pause is the interval between two checks for remaining parts of a service.
const pause = time.Second

// runner executes trials of one service.
type runner struct {
	console Console
	service string
	timeout time.Duration
}

// hold executes trials in order, prints each, and returns how many passed.
func (r runner) hold(ctx context.Context, trials []trial) int {
	for n, t := range trials {
		began := time.Now()
		said, err := r.try(ctx, t)
		if ctx.Err() != nil {
			return n
		}
		if err != nil {
			_ = r.console.Lines(fmt.Sprintf("FAIL  %s: %v", t.what, err), "      converge "+strings.Join(t.args, " "))
			for line := range strings.Lines(said) {
				_ = r.console.Lines("      " + strings.TrimRight(line, "\n"))
			}
			return n
		}
		_ = r.console.Lines(fmt.Sprintf("ok    %s (%s)", t.what, time.Since(began).Round(100*time.Millisecond)))
	}
	return len(trials)
}

// try executes one command line, and checks its result.
func (r runner) try(ctx context.Context, t trial) (said string, err error) {
	if t.before != nil {
		if err := t.before(); err != nil {
			return "", err
		}
	}
	if t.gone {
		return r.await(ctx, t.args)
	}
	said, code := r.console.Converge(ctx, t.args...)
	if code != t.exit {
		return said, fmt.Errorf("exit status %d, expected %d", code, t.exit)
	}
	if t.then == nil {
		return said, nil
	}
	out, code := r.console.Converge(ctx, "status", r.service, "--output", "json")
	var s protocol.Status
	if err := json.Unmarshal([]byte(out), &s); code != done || err != nil || len(s.Channels) != 1 {
		return said + out, errors.New("its status cannot be read")
	}
	return said + out, t.then(s.Channels[0])
}

// await polls the status until nothing of the service is left.
func (r runner) await(ctx context.Context, args []string) (said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	for {
		said, _ = r.console.Converge(ctx, args...)
		var s protocol.Status
		if json.Unmarshal([]byte(said), &s) == nil && s.Status == string(entities.StatusDeleted) {
			return said, nil
		}
		if r.console.Sleep(ctx, pause) != nil {
			return said, fmt.Errorf("its status is %s after %s", cmp.Or(s.Status, "unknown"), r.timeout)
		}
	}
}
