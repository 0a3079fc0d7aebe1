package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/chaos/record"
)

// A service is judged once more cannot come: not in the middle of a change, before it is told of something, or from one reading.
func TestRestIsSure(t *testing.T) {
	there := func(line int64, status, target, site string) snapshot {
		return snapshot{line: line, rest: []record.Rest{{Channel: record.Production, Status: status, Target: target, Current: site, Site: site}}}
	}
	converged, paused := there(7, "CONVERGED", "v2", "v2"), there(5, "PAUSED", "v2", "v1")
	late := there(6, "CONVERGED", "v2", "v2")
	late.rest[0].Site = "v1" // the status is of another moment than the site
	held := there(7, "CONVERGED", "v2", "v2")
	held.status.Pauses = []entities.Pause{{Scope: entities.ScopeApplication}}
	failed := there(8, "FAILED", "v3", "v2")
	for name, tt := range map[string]struct {
		moves func(snapshot) string
		seen  []snapshot
		rests bool
		want  snapshot
	}{
		"one that rests":                   {snapshot.unsure, []snapshot{converged, converged, converged}, true, converged},
		"too few looks":                    {snapshot.unsure, []snapshot{converged, converged}, false, converged},
		"a change in between":              {snapshot.unsure, []snapshot{converged, converged, there(8, "CONVERGED", "v2", "v2"), converged}, false, converged},
		"paused, and then resumed":         {snapshot.unsure, []snapshot{paused, paused, paused, paused, there(6, "CONVERGING", "v2", "v1"), converged, converged, converged}, true, converged},
		"paused for ever":                  {snapshot.unsure, []snapshot{paused, paused, paused, paused}, false, paused},
		"a pause that nothing is held by":  {snapshot.unsure, []snapshot{held, held, held, held}, false, held},
		"people do not wait for a pause":   {snapshot.restless, []snapshot{paused, paused, paused}, true, paused},
		"a status older than the site":     {snapshot.unsure, []snapshot{late, late, late, converged, converged, converged}, true, converged},
		"what failed is at its end":        {snapshot.unsure, []snapshot{failed, failed, failed}, true, failed},
		"an answer without any channel":    {snapshot.unsure, []snapshot{{}, {}, {}, {}}, false, snapshot{}},
		"not all is ready":                 {snapshot.unsure, []snapshot{there(7, "PROGRESSING", "v2", "v2"), there(7, "PROGRESSING", "v2", "v2"), there(7, "PROGRESSING", "v2", "v2")}, false, there(7, "PROGRESSING", "v2", "v2")},
		"people wait for the first status": {snapshot.restless, []snapshot{there(1, "UNKNOWN", "", ""), there(1, "UNKNOWN", "", ""), there(1, "UNKNOWN", "", "")}, false, there(1, "UNKNOWN", "", "")},
	} {
		t.Run(name, func(t *testing.T) {
			r := resting{moves: tt.moves}
			rests := false
			for n, s := range tt.seen {
				require.False(t, rests, "it rested before reading %d", n+1)
				rests = r.see(s, nil)
			}
			require.Equal(t, tt.rests, rests)
			require.Equal(t, tt.want, r.last)
			if !rests && len(tt.seen) >= looks && tt.want.rest != nil && name != "a change in between" {
				require.NotEmpty(t, r.why)
			}
		})
	}
}

// Readings count only in a row.
func TestRestIsSureInARow(t *testing.T) {
	s := snapshot{line: 1, rest: []record.Rest{{Channel: record.Staging, Status: "CONVERGED", Target: "v1", Current: "v1", Site: "v1"}}}
	for _, err := range []error{errMoved, errors.New("no answer")} {
		r := resting{moves: snapshot.unsure}
		require.False(t, r.see(s, nil))
		require.False(t, r.see(s, nil))
		require.False(t, r.see(s, err))
		require.Equal(t, err.Error(), r.why)
		require.False(t, r.see(s, nil))
		require.False(t, r.see(s, nil))
		require.True(t, r.see(s, nil))
		require.Empty(t, r.why)
	}
}

// Services are judged once they are told of all that was published, paused and resumed.
func TestRestFollowsAnnouncements(t *testing.T) {
	pause := &entities.Pause{}
	for want, tt := range map[string]struct {
		a protocol.ApplicationStatus
		r protocol.RuntimeStatus
	}{
		"":                                      {protocol.ApplicationStatus{Newest: 3, Notified: 3}, protocol.RuntimeStatus{}},
		"incarnation 3 is known up to 2":        {protocol.ApplicationStatus{Newest: 3, Notified: 2}, protocol.RuntimeStatus{}},
		"a pause or its end is being announced": {protocol.ApplicationStatus{Newest: 3, Notified: 3}, protocol.RuntimeStatus{Announcing: true}},
		"a pause is in force":                   {protocol.ApplicationStatus{Newest: 3, Notified: 3, Pause: pause}, protocol.RuntimeStatus{}},
	} {
		require.Equal(t, want, untold(tt.a, tt.r))
	}
}
