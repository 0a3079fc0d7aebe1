package main

import (
	"context"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
)

// runningOutput follows the output of commands that run: of each, workers report the last 500 bytes every few seconds. More output than that
// in between is skipped; the log has it once the command has ended.
type runningOutput struct {
	shown map[string]string // by command: the reported output that has been shown
}

// lines returns what the commands have printed since the last call, after a first line that names the command. It keeps back a line that is
// not complete yet.
func (r *runningOutput) lines(all []protocol.Progress, channel string, now time.Time) (lines []string) {
	before := r.shown
	r.shown = map[string]string{}
	for _, p := range all {
		if channel != "" && p.Channel != channel {
			continue
		}
		command := p.Channel + "\n" + p.Description + "\n" + p.Since.String()
		shown, known := before[command]
		added := addedOutput(shown, p.Tail)
		complete := strings.LastIndexByte(added, '\n') + 1
		r.shown[command] = strings.TrimSuffix(p.Tail, added[complete:])
		if !known {
			p.Tail = ""
			lines = append(lines, explain.Running([]protocol.Progress{p}, "", now)...)
		}
		if complete > 0 {
			lines = append(lines, indented("  | ", added[:complete])...)
		}
	}
	return lines
}

// addedOutput returns what the end of an output has that was not shown, if an earlier end of it was.
func addedOutput(shown, tail string) string {
	for n := range len(shown) {
		if rest, ok := strings.CutPrefix(tail, shown[n:]); ok {
			return rest
		}
	}
	return tail
}

// running returns what commands print now, unless the flags ask for something else.
func (o *logsOptions) running(ctx context.Context) []protocol.Progress {
	if o.kind != "" || o.last > 0 || o.previous {
		return nil
	}
	return o.f.progress(ctx, o.service)
}
