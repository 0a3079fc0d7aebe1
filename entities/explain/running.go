package explain

import (
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
)

// Running says what workers do at this moment: since when, until when at most, where, and what was printed last. An empty
// channel is all of them. No lines: nothing.
func Running(all []protocol.Progress, channel string, now time.Time) []string {
	w := &writer{now: now}
	for _, p := range all {
		if channel != "" && p.Channel != channel {
			continue
		}
		limit, place := "", ""
		if !p.Until.IsZero() {
			limit = ", is ended by " + strings.TrimPrefix(at(p.Until, now), "at ")
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
