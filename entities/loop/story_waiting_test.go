package loop_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// waitingCommands are the commands for stories in which many releases wait.
var waitingCommands = map[string]command{
	"releases": func(s *story, arg []string) string { // releases N: v1, v2 and so on, each run until it waits
		n, _ := strconv.Atoi(arg[0])
		for range n {
			if _, err := s.release(fmt.Sprint("v", s.s.LastRelease+1), ""); err != nil {
				return answerText("", err)
			}
			s.applyAll()
		}
		return ""
	},
	"tally": func(s *story, _ []string) string { return s.tally() },
	"clear": func(s *story, arg []string) string { // clear older-than|except VERSION [CHANNEL]
		c := state.BulkCancellation{Cancellation: state.Cancellation{Channel: wordAt(arg, 2), Who: bob}}
		if arg[0] == "except" {
			c.Except = arg[1]
		} else {
			c.OlderThan = arg[1]
		}
		return answerText(perform(s.s.CancelWaiting(c, s.now)))
	},
}

// tally counts the releases by phase, a line for each channel, and the targets that were set there; then the releases that only the store
// has.
func (s *story) tally() string {
	var b strings.Builder
	for _, c := range s.s.Spec.ChannelNames() {
		phases := map[string]int{}
		for _, r := range s.s.Releases {
			phases[string(r.Phases[c].Phase)]++
		}
		var parts []string
		for _, p := range entities.SortedKeys(phases) {
			parts = append(parts, fmt.Sprint(phases[p], " ", p))
		}
		targets := 0
		for _, l := range s.s.Audit {
			if l.Kind == entities.EventTarget && l.Channel == c {
				targets++
			}
		}
		fmt.Fprintf(&b, "%s: %s; %d targets set\n", c, strings.Join(parts, ", "), targets)
	}
	offloaded := len(slices.DeleteFunc(slices.Clone(s.s.Releases), func(r *state.Release) bool { return !r.Offloaded() }))
	fmt.Fprintf(&b, "%d in the store\n", offloaded)
	return b.String()
}
