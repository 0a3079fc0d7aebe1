package simulate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/simulate"
)

// A plan is simulated by its walker: independent nodes overlap, one runs at a time if a target or a limit requires it, and a failed node
// blocks those that need it.
func TestRunPlan_E8_E10_E16(t *testing.T) {
	deploy := func(service string, needs ...int) plan.Node {
		return plan.Node{Kind: plan.Deploy, Service: service, Target: "host", Needs: needs}
	}
	nodes := []plan.Node{deploy("db"), deploy("mail"), deploy("web", 0), {Kind: plan.DNS, After: []int{1, 2}}}
	for _, tt := range []struct {
		name string
		in   simulate.PlanInput
		want string
	}{
		{"concurrently", simulate.PlanInput{Plan: &plan.Plan{Nodes: nodes}}, `NODE              BEGINS    ENDS
DEPLOY db@host    0s        1m
DEPLOY mail@host  0s        1m
DEPLOY web@host   1m        2m
DNS               2m        2m10s
finished after 2m10s; the longest path takes 2m10s`},
		{"one at a time", simulate.PlanInput{Plan: &plan.Plan{Nodes: nodes, Serial: []string{"host"}}}, `NODE              BEGINS    ENDS
DEPLOY db@host    0s        1m
DEPLOY mail@host  1m        2m        waits 1m for capacity
DEPLOY web@host   2m        3m        waits 1m for capacity
DNS               3m        3m10s
finished after 3m10s; the longest path takes 2m10s`},
		{"one fails", simulate.PlanInput{Plan: &plan.Plan{Nodes: nodes}, Limit: 1, Fails: "db"}, `NODE              BEGINS    ENDS
DEPLOY db@host    0s        1m        fails
DEPLOY mail@host  1m        2m        waits 1m for capacity
DNS               2m        2m10s
DEPLOY web@host   -         -         blocked by DEPLOY db@host
finished after 2m10s; the longest path takes 1m10s`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.Deploy, tt.in.Command = time.Minute, 10*time.Second
			timeline := simulate.RunPlan(tt.in)
			require.Equal(t, tt.want, strings.Join(timeline.Table(), "\n"))
			svg := timeline.SVG(time.Unix(0, 0).UTC())
			for n := range nodes {
				require.Contains(t, svg, ">"+nodes[n].String()+"<")
			}
		})
	}
}
