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

// pollInterval is the interval between two checks for remaining parts of a service.
const pollInterval = time.Second

// runner executes trials of one service.
type runner struct {
	console Console
	service string
	timeout time.Duration
}

// runAll executes trials in order, prints each, and returns how many passed.
func (r runner) runAll(ctx context.Context, trials []trial) int {
	for n, t := range trials {
		began := time.Now()
		output, err := r.runOne(ctx, t)
		if ctx.Err() != nil {
			return n
		}
		if err != nil {
			_ = r.console.Lines(fmt.Sprintf("FAIL  %s: %v", t.description, err), "      converge "+strings.Join(t.args, " "))
			for line := range strings.Lines(output) {
				_ = r.console.Lines("      " + strings.TrimRight(line, "\n"))
			}
			return n
		}
		_ = r.console.Lines(fmt.Sprintf("ok    %s (%s)", t.description, time.Since(began).Round(100*time.Millisecond)))
	}
	return len(trials)
}

// runOne executes one command line, and checks its result.
func (r runner) runOne(ctx context.Context, t trial) (output string, err error) {
	if t.setup != nil {
		if err := t.setup(); err != nil {
			return "", err
		}
	}
	if t.untilDeleted {
		return r.awaitDeleted(ctx, t.args)
	}
	output, code := r.console.Converge(ctx, t.args...)
	if code != t.wantExit {
		return output, fmt.Errorf("exit status %d, expected %d", code, t.wantExit)
	}
	if t.verify == nil {
		return output, nil
	}
	out, code := r.console.Converge(ctx, "status", r.service, "--output", "json")
	var s protocol.Status
	if err := json.Unmarshal([]byte(out), &s); code != done || err != nil || len(s.Channels) != 1 {
		return output + out, errors.New("its status cannot be read")
	}
	return output + out, t.verify(s.Channels[0])
}

// awaitDeleted polls the status until nothing of the service is left.
func (r runner) awaitDeleted(ctx context.Context, args []string) (output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	for {
		output, _ = r.console.Converge(ctx, args...)
		var s protocol.Status
		if json.Unmarshal([]byte(output), &s) == nil && s.Status == string(entities.StatusDeleted) {
			return output, nil
		}
		if r.console.Sleep(ctx, pollInterval) != nil {
			return output, fmt.Errorf("its status is %s after %s", cmp.Or(s.Status, "unknown"), r.timeout)
		}
	}
}
