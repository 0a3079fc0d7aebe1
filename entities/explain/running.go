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
		limit, place := "", ""
		if !p.Until.IsZero() {
			limit = ", times out by " + strings.TrimPrefix(at(p.Until, now), "at ")
		}
		if p.Place != "" {
			place = ", as " + p.Place
		}
		w.line("running in %s: %s, %s%s%s", p.Channel, p.What, since(p.Since, now), limit, place)
		for _, printed := range strings.Split(p.Tail, "\n") {
			if printed = strings.TrimSpace(printed); printed != "" {
				w.line("  | %s", printed)
			}
		}
	}
	return w.lines
}
