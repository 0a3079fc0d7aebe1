package simulate

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

const day = 24 * time.Hour

var friday = time.Date(2026, 11, 20, 17, 30, 0, 0, time.UTC)

// shop goes to staging, then to production: within office hours, approved by two, with a week of soak.
func shop() *state.State {
	s := state.New("shop", "web")
	timing := entities.RuntimeTiming{PollInterval: time.Second, ApplyTimeout: 5 * time.Minute, FetchTimeout: time.Minute, MaxAttempts: 3, GracePeriod: time.Minute}
	s.Spec = &entities.Spec{
		Application: "shop", Service: "web", Incarnation: 3, ProgressDeadline: 10 * time.Minute,
		Runtimes: map[string]*entities.RuntimeSpec{"local": {Kind: entities.RuntimeFake, Mode: entities.FetchStructured, Observable: true, Timing: timing}},
		Channels: []entities.ChannelSpec{
			{Name: "staging", Instances: []entities.InstanceSpec{{Name: entities.OnlyInstance, Runtime: "local", Template: "t"}}, Drift: entities.DriftEnforce, ProgressDeadline: 10 * time.Minute},
			{
				Name: "production", Instances: []entities.InstanceSpec{{Name: entities.OnlyInstance, Runtime: "local", Template: "t"}}, Drift: entities.DriftEnforce, ProgressDeadline: 10 * time.Minute,
				Conditions: []entities.Condition{
					{ID: "channel-stable/staging", Kind: entities.ChannelStable, Channels: []string{"staging"}},
					{ID: "approval/go-live", Kind: entities.ManualApproval, Topic: "go-live", MinApprovers: 2, Approvers: []string{"group:sre"}},
				},
				Checks: []entities.Check{
					{ID: "office-hours", Kind: entities.CheckAllowedTimes, Definition: "d1", At: []entities.CheckAt{{Stage: entities.PostApproval}}},
					{ID: "error-rate", Kind: entities.CheckPrometheus, Definition: "d2", At: []entities.CheckAt{{Stage: entities.PostDeployment, Delay: time.Hour, For: 7 * day}}},
				},
			},
		},
	}
	return s
}

// judge opens on weekdays at nine, and passes every other check.
func judge(e entities.Evaluation, at time.Time) entities.CheckReading {
	if e.ID != "office-hours" {
		return entities.CheckReading{Verdict: entities.Pass, Reason: "assumed"}
	}
	open := time.Date(at.Year(), at.Month(), at.Day(), 9, 0, 0, 0, time.UTC)
	for open.Weekday() == time.Saturday || open.Weekday() == time.Sunday || at.After(open.Add(7*time.Hour)) {
		open = open.Add(day)
	}
	if !at.Before(open) {
		return entities.CheckReading{Verdict: entities.Pass, Next: open.Add(7 * time.Hour)}
	}
	return entities.CheckReading{Verdict: entities.Wait, Reason: "opens " + open.Format("Mon 15:04"), Next: open}
}

func TestWeekOfSoakAfterAWeekend(t *testing.T) { // A8, A14, A19, A20
	s := shop()
	got, err := Run(Input{State: s, Version: "v9", At: friday, Judge: judge, Approve: true, Apply: 2 * time.Minute})
	require.NoError(t, err)
	require.Equal(t, `CHANNEL     ENTERS                DONE                  HELD BY
staging     Fri 20 Nov 17:30 UTC  Fri 20 Nov 17:32 UTC
production  Mon 23 Nov 09:00 UTC  Mon 30 Nov 10:02 UTC  v9 is being deployed to staging (until Fri 20 Nov 17:32 UTC)`,
		strings.Join(got.Table(time.UTC)[:3], "\n"))
	require.Contains(t, strings.Join(got.Table(time.UTC), "\n"), "office-hours: opens Mon 09:00 (until Mon 23 Nov 09:00 UTC)")
	require.False(t, got.CutOff)
	require.Equal(t, []Kind{Waits, Deploys, Soaks, Runs}, kinds(got.Channels[1]))
	require.Empty(t, s.Releases, "a simulation changes nothing")
}

// kinds of a channel's spans, without repetitions.
func kinds(c Channel) []Kind {
	var out []Kind
	for _, s := range c.Spans {
		if len(out) == 0 || out[len(out)-1] != s.Kind {
			out = append(out, s.Kind)
		}
	}
	return out
}

func TestEndsAtARequiredApproval(t *testing.T) { // A14
	got, err := Run(Input{State: shop(), Version: "v9", At: friday, Judge: judge})
	require.NoError(t, err)
	production := got.Channels[1]
	require.True(t, production.Entered.IsZero())
	last := production.Spans[len(production.Spans)-1]
	require.Equal(t, Waits, last.Kind)
	require.Contains(t, strings.Join(last.Reasons, "\n"), "approval/go-live: 0 of 2")
	table := got.Table(time.UTC)
	require.Contains(t, table[len(table)-1], "no automatic change after")
}

// A periodic extension of one channel is not simulated while another channel waits: it moves nothing.
func TestPeriodicExtensionsAreNotSimulated(t *testing.T) {
	s := shop()
	s.Spec.Channels[0].Extensions = []entities.Extension{
		{Name: "smoke", Stage: entities.PostDeployment, Key: "staging", Every: time.Minute, Timeout: time.Minute, MaxAttempts: 1},
	}
	got, err := Run(Input{State: s, Version: "v9", At: friday, Judge: judge})
	require.NoError(t, err)
	table := got.Table(time.UTC)
	require.Contains(t, table[len(table)-1], "no automatic change after")
	require.Equal(t, time.Minute, s.Spec.Channels[0].Extensions[0].Every)
}

func TestCutOff(t *testing.T) {
	never := func(e entities.Evaluation, at time.Time) entities.CheckReading {
		return entities.CheckReading{Verdict: entities.Wait, Reason: "later", Next: at.Add(time.Hour)}
	}
	got, err := Run(Input{State: shop(), Version: "v9", At: friday, Judge: never, Approve: true, Until: 3 * day})
	require.NoError(t, err)
	require.True(t, got.CutOff)
	require.Equal(t, friday.Add(3*day), got.To)
}

func TestRejectsAnInvalidRelease(t *testing.T) {
	_, err := Run(Input{State: shop(), Version: "", At: friday, Judge: judge})
	require.EqualError(t, err, "no version given")
}

// The same input draws the same picture, which is well-formed and has a bar for every span.
func TestSVG(t *testing.T) {
	draw := func() string {
		got, err := Run(Input{State: shop(), Version: "v9", At: friday, Judge: judge, Approve: true})
		require.NoError(t, err)
		return got.SVG(time.UTC)
	}
	svg := draw()
	require.Equal(t, svg, draw())
	require.Less(t, strings.Index(svg, "<title>runs from Fri"), strings.Index(svg, "<title>deploys from Fri"), "short spans are drawn over long ones")
	require.Contains(t, svg, ">Sat 21 Nov<", "marks are at midnight of the reader's time zone")
	require.Contains(t, svg, "<title>soaks from Mon 23 Nov 09:01 UTC to Mon 30 Nov 10:01 UTC: soaks: error-rate")
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
}

// Values of an aspect are simulated next to a waiting version, and name what they wait for (B5).
func TestValuesOfAnAspect_B5(t *testing.T) {
	s := shop()
	s.Spec.Parameters = []entities.ParamSpec{{Name: "flagSet", Type: entities.ParamString}}
	s.Spec.Aspects = []entities.Aspect{{Name: "flags", Parameters: []string{"flagSet"}}}
	none, err := Run(Input{State: s, Aspect: "flags", At: friday, Judge: judge})
	require.NoError(t, err)
	require.Contains(t, strings.Join(none.Table(time.UTC), "\n"), "no version is deployed here yet that flags could change")

	s.Spec.Channels[0].Checks, s.Spec.Channels[1].Checks, s.Spec.Channels[1].Conditions = nil, nil, s.Spec.Channels[1].Conditions[:1]
	for _, c := range s.Spec.Channels {
		i := s.Instance(c.ID(c.Instances[0]))
		t1 := entities.Target{FullVersion: "v1", Payload: "p"}
		i.Runtime, i.Delivery.Target, i.Delivery.LastGood, i.Delivery.Converged = "local", &t1, &t1, true
		s.RecordReading(i.ID, "v1", entities.Reading{At: friday, Objects: []entities.Object{{Name: "web", Type: "fake", Status: entities.ObjectSucceeded, Versions: []entities.ObjectVersion{{Version: "v1", Active: true}}}}}, true, friday)
	}
	got, err := Run(Input{State: s, Aspect: "flags", At: friday, Judge: judge, Apply: 2 * time.Minute})
	require.NoError(t, err)
	require.Equal(t, "flags", got.Version)
	require.Equal(t, `CHANNEL     ENTERS                DONE                  HELD BY
staging     Fri 20 Nov 17:30 UTC  Fri 20 Nov 17:32 UTC
production  Fri 20 Nov 17:32 UTC  Fri 20 Nov 17:34 UTC  flags is being deployed to staging (until Fri 20 Nov 17:32 UTC)
flags is in every channel at Fri 20 Nov 17:34 UTC, after 4m`, strings.Join(got.Table(time.UTC), "\n"))

	_, err = Run(Input{State: s, Aspect: "size", At: friday, Judge: judge})
	require.ErrorContains(t, err, `has no aspect "size"; expected one of flags`)
}

// A simulation that takes too long is ended where it is, and says that it is not finished.
func TestSimulationIsStopped(t *testing.T) {
	asked := 0
	timeline, err := Run(Input{State: shop(), Version: "v2", At: friday, Judge: judge, Stop: func() bool {
		asked++
		return asked > 1
	}})
	require.NoError(t, err)
	require.True(t, timeline.CutOff)
	require.Contains(t, strings.Join(timeline.Table(time.UTC), "\n"), "not finished by Fri 20 Nov 17:3")
}
