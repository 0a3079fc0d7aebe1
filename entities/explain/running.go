package explain

import (
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
)

// Running lists the activities that run on workers: since when, their deadline, where, and their last output. An empty channel means all
// channels. Without running activities it returns no lines.
func Running(all []protocol.Progress, channel string, now time.Time) []string {
	w := &writer{now: now}
	for _, p := range all {
		if channel != "" && p.Channel != channel {
			continue
		}
		if p.IsPutOff() {
			w.printf("put off in %s: %s, %s: workers begin no more changes than the Temporal server keeps up with", p.Channel, p.Description, since(p.Since, now))
			continue
		}
		deadline, place := "", ""
		if !p.Until.IsZero() {
			deadline = ", times out by " + strings.TrimPrefix(at(p.Until, now), "at ")
		}
		if p.Place != "" {
			place = ", as " + p.Place
		}
		w.printf("running in %s: %s, %s%s%s", p.Channel, p.Description, since(p.Since, now), deadline, place)
		for _, output := range strings.Split(p.Tail, "\n") {
			if output = strings.TrimSpace(output); output != "" {
				w.printf("  | %s", output)
			}
		}
	}
	return w.lines
}
