package explain

import (
	"fmt"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
)

// Plan describes the progress of a plan in a line (E16): "plan i12 of home in production: 12 of 30 done, 2 running, 1 failed".
func Plan(s protocol.PlanStatus) string {
	of := map[string]int{}
	for _, n := range s.Nodes {
		of[n.State]++
	}
	parts := []string{fmt.Sprintf("%d of %d done", of["done"], len(s.Nodes))}
	for _, state := range []string{"running", "held", "failed", "blocked", "superseded"} {
		if of[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", of[state], state))
		}
	}
	text := fmt.Sprintf("plan %s of %s in %s: %s", s.Name, s.Application, s.Channel, strings.Join(parts, ", "))
	for _, why := range []string{s.Ended, strings.TrimSpace(s.StepError)} {
		if why != "" {
			text += "; " + why
		}
	}
	return text
}

// maxHeldShown limits how many held nodes are named.
const maxHeldShown = 5

// PlanProblems lists the failed nodes of a plan and some of the held ones, with reasons.
func PlanProblems(s protocol.PlanStatus) (lines []string) {
	var held []string
	for _, n := range s.Nodes {
		switch n.State {
		case "failed":
			lines = append(lines, n.Node+" failed: "+n.Text)
		case "held":
			held = append(held, n.Node+" held"+prefixed(": ", n.Text))
		}
	}
	return append(lines, held[:min(len(held), maxHeldShown)]...)
}
