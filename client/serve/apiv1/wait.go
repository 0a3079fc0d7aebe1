package apiv1

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/converge-engine/converge/client/api"
	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
)

// maxWait limits how long a request waits. Proxies cut longer ones.
const maxWait = time.Minute

// The intervals at which a wait queries the service. Queries cost no history.
const (
	minWaitInterval = 250 * time.Millisecond
	maxWaitInterval = 2 * time.Second
)

type waitInput struct {
	ServicePath
	ChannelQuery
	Release string `query:"release" maxLength:"256" doc:"Id of the release to wait for; absent: the service as it is"`
	Timeout string `query:"timeout" default:"30s" doc:"Longest wait, at most 60s"`
}

func (a *operations) wait(ctx context.Context, in *waitInput) (api.Outcome, error) {
	timeout, err := parseWait("timeout", in.Timeout)
	if err != nil {
		return api.Outcome{}, err
	}
	return a.await(ctx, in.name(), outcome.Goal{Release: in.Release, Channel: in.Channel}, timeout)
}

func parseWait(name, text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > maxWait {
		return 0, api.NewProblem(api.Invalid, fmt.Errorf("query.%s: %q; expected a duration up to %s, such as 30s", name, text, maxWait))
	}
	return d, nil
}

// await queries a service until its outcome is final, the timeout has passed, or the server stops. Errors that pass are no reason to end it.
func (a *operations) await(ctx context.Context, n connection.ServiceName, g outcome.Goal, timeout time.Duration) (api.Outcome, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	last := outcome.Outcome{Why: "its status is not known yet"}
	for interval := minWaitInterval; ; interval = min(interval*5/4, maxWaitInterval) {
		s, err := read.Status(limited, a.Calls, n)
		switch {
		case err == nil:
			if err := checkGoal(s, g); err != nil {
				return api.Outcome{}, err
			}
			if last = outcome.Of(s, g); last.Final {
				a.Overview.Learn(s) // who waited sees it in lists, too
				return api.Outcome{Over: true, Exit: last.Code, Why: last.Why, Next: last.Next}, nil
			}
		case limited.Err() == nil && !connection.Transient(err):
			return api.Outcome{}, err
		}
		select {
		case <-ctx.Done():
			return api.Outcome{}, ctx.Err() // the client is gone
		case <-limited.Done():
		case <-a.Stopping:
		case <-time.After(interval):
			continue
		}
		return api.Outcome{Exit: outcome.TimedOut, Why: last.Why, Next: last.Next}, nil
	}
}

// checkGoal refuses a channel or a release that a service does not have.
func checkGoal(s protocol.Status, g outcome.Goal) error {
	if _, known := outcome.ReleaseByID(s, g.Release); g.Release != "" && !known {
		return api.NewProblem(api.NotFound, fmt.Errorf("%s/%s has no release with the id %s", s.Application, s.Service, g.Release))
	}
	return checkChannel(s, g.Channel)
}

// withOutcome waits for a release that was just accepted, and adds the outcome to the answer.
func (a *operations) withOutcome(ctx context.Context, n connection.ServiceName, answer json.RawMessage, timeout time.Duration) (json.RawMessage, error) {
	var released protocol.ReleaseAnswer
	if err := json.Unmarshal(answer, &released); err != nil {
		return nil, err
	}
	ended, err := a.await(ctx, n, outcome.Goal{Release: released.ID}, timeout)
	if err != nil { // the release was accepted: that is the answer
		ended = api.Outcome{Exit: outcome.Error, Why: "the outcome is unknown: " + err.Error()}
	}
	return json.Marshal(api.ReleaseAnswer{ReleaseAnswer: released, Outcome: &ended})
}
