package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
)

// A wait for many services follows all of them at once. None waits for another to end, which may take long.
func TestWaitFollowsAllServicesAtOnce_B8(t *testing.T) {
	const services = 3 * read.MaxParallel
	answer := protocol.JointAnswer{ID: "autumn", Services: map[string]string{}}
	for n := range services {
		answer.Services[fmt.Sprintf("web-%02d", n)] = "v9"
	}
	seen := map[string]bool{} // every service has converged once all were queried
	api := &fakeAPI{answer: answer, statuses: jointStatuses("staging CONVERGED v8 v8 pending", "staging CONVERGED w1 w1 pending"), computed: func(id string) any {
		seen[id] = true
		s := webStatus("staging CONVERGING v8 v9 in progress")
		if len(seen) == services {
			s = webStatus("staging CONVERGED v9 v9 succeeded")
		}
		s.Service, s.Releases[0].ID = strings.TrimPrefix(id, "service/shop/"), "autumn"
		return s
	}}
	var words []string
	for service, version := range answer.Services {
		words = append(words, service+"="+version)
	}
	code, text := newConsole(t, api).run(t, "release shop "+strings.Join(words, " ")+" --id autumn --wait --timeout 60s")
	require.Equal(t, outcome.Done, code, text)
	require.Equal(t, services, strings.Count(text, " v9 converged in staging."))
}

// While a rollout is under way, its end is noticed within a second, however long it takes. What waits for something else is queried less often.
func TestWaitPollsEachSecondDuringARollout(t *testing.T) {
	for status, want := range map[string]time.Duration{
		"CONVERGING v8 v9 in progress": time.Second, "ROLLING_BACK v9 v8 failed": time.Second, "WAITING_MANUAL_APPROVAL v8 v9 pending": 5 * time.Second,
	} {
		p, last := pollPace{}, time.Duration(0)
		for range 100 {
			last = p.next(webStatus("staging " + status))
		}
		require.Equal(t, want, last, status)
	}
}
