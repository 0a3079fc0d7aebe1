package forecast

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/chart"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/intent/store"
)

// A channel with office hours and a freeze, one that is always open, and one without allowed times.
func service(t *testing.T) (*state.State, read.Store) {
	t.Helper()
	dir := t.TempDir()
	at, err := store.Open(t.Context(), dir)
	require.NoError(t, err)
	defer at.Close()
	gate := []entities.CheckAt{{Stage: entities.PreApproval}}
	check := func(id string, kind entities.CheckKind, how entities.CheckDefinition) entities.Check {
		how.Kind = kind
		digest, err := at.PutCheck(t.Context(), how)
		require.NoError(t, err)
		return entities.Check{ID: id, Kind: kind, Definition: digest, At: gate}
	}
	office := check("office", entities.CheckAllowedTimes, entities.CheckDefinition{AllowedTimes: &entities.AllowedTimes{
		TimeZone: "Europe/Paris", Windows: []entities.TimeWindow{{Days: "Mon-Fri", Hours: "09:00-16:00"}},
	}})
	freeze := check("freeze", entities.CheckAllowedTimes, entities.CheckDefinition{AllowedTimes: &entities.AllowedTimes{
		TimeZone: "Europe/Paris", Freezes: []entities.Freeze{{From: "2026-12-01", To: "2026-12-01", Reason: "stocktaking"}},
	}})
	always := check("always", entities.CheckAllowedTimes, entities.CheckDefinition{AllowedTimes: &entities.AllowedTimes{TimeZone: "UTC"}})
	errors := entities.Check{ID: "errors", Kind: entities.CheckPrometheus, Definition: "elsewhere", At: gate}
	s := state.New("shop", "web")
	s.Store = dir
	s.Spec = &entities.Spec{Application: "shop", Service: "web", Channels: []entities.ChannelSpec{
		{Name: "production", Checks: []entities.Check{office, freeze, errors}}, {Name: "staging", Checks: []entities.Check{always}}, {Name: "dev"},
	}}
	return s, read.Store{}
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	moment, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return moment
}

// The calendar shows when a channel is closed, and why; checks of other systems are assumed to pass.
func TestCalendar(t *testing.T) {
	s, stores := service(t)
	checks, err := Read(t.Context(), stores, s)
	require.NoError(t, err)
	require.Equal(t, []string{"production/errors"}, checks.Assumed)
	from, to := at(t, "2026-11-30T10:00:00Z"), at(t, "2026-12-02T12:00:00Z") // Monday at 11:00 in Paris, to Wednesday at 13:00
	all := checks.Calendar(t.Context(), s.Spec, from, to)
	require.Len(t, all, 2)
	require.Equal(t, Closed{Channel: "staging", Until: to}, all[1])
	production := all[0]
	require.Equal(t, "production", production.Channel)
	require.Equal(t, to, production.Until)
	require.Equal(t, at(t, "2026-11-30T15:00:00Z"), production.Spans[0].From.UTC(), "office hours end")
	last := production.Spans[len(production.Spans)-1]
	require.Equal(t, at(t, "2026-12-02T08:00:00Z"), last.To.UTC(), "they begin, and the freeze is over")
	for n, span := range production.Spans {
		require.Equal(t, chart.Waits, span.Kind)
		require.NotEmpty(t, span.Reasons)
		if n > 0 {
			require.Equal(t, production.Spans[n-1].To, span.From, "it is closed without a gap")
		}
	}
	require.Contains(t, production.Spans[1].Reasons[len(production.Spans[1].Reasons)-1], "stocktaking")
	reading := checks.Judge(entities.Evaluation{Channel: "production", Kind: entities.CheckPrometheus, Definition: "elsewhere"}, from)
	require.Equal(t, entities.Pass, reading.Verdict)
	require.Equal(t, "assumed to pass", reading.Reason)
}

// Times that change all the time end the calendar early, and it says where.
func TestCalendarIsBounded(t *testing.T) {
	s, stores := service(t)
	checks, err := Read(t.Context(), stores, s)
	require.NoError(t, err)
	from := at(t, "2026-11-30T10:00:00Z")
	all := checks.Calendar(t.Context(), s.Spec, from, from.Add(20*365*24*time.Hour))
	require.True(t, all[0].Until.Before(from.Add(20*365*24*time.Hour)))
	require.LessOrEqual(t, len(all[0].Spans), maxMoments)
}

// A store of another machine is named, and not opened.
func TestCalendarOfAStoreElsewhere(t *testing.T) {
	s, stores := service(t)
	s.Store = "s3://elsewhere"
	_, err := Read(t.Context(), stores, s)
	require.ErrorContains(t, err, "confirm it with --store URL")
	checks, err := Read(t.Context(), stores, state.New("shop", "new"))
	require.NoError(t, err)
	require.Empty(t, checks.Assumed)
}

// A result of allowed times is kept until it changes, so that a simulation does not search the calendar at every moment; and a calendar ends with
// its request.
func TestCalendarIsSearchedOnceForEachChange(t *testing.T) {
	s, stores := service(t)
	checks, err := Read(t.Context(), stores, s)
	require.NoError(t, err)
	office := s.Spec.Channels[0].Checks[0]
	e := entities.Evaluation{Channel: "production", ID: office.ID, Kind: office.Kind, Definition: office.Definition}
	open := at(t, "2026-11-30T10:00:00Z")
	reading := checks.Judge(e, open)
	require.Equal(t, entities.Pass, reading.Verdict)
	again := checks.Judge(e, open.Add(4*time.Hour))
	require.Equal(t, entities.Pass, again.Verdict)
	require.Equal(t, open.Add(4*time.Hour), again.At)
	require.Equal(t, reading.Next, again.Next)
	require.Equal(t, entities.Wait, checks.Judge(e, reading.Next).Verdict, "it is closed then")
	require.Equal(t, entities.Pass, checks.Judge(e, open).Verdict, "a moment before the kept result")
	require.Zero(t, testing.AllocsPerRun(100, func() { checks.Judge(e, open.Add(time.Hour)) }), "nothing is searched")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, closed := range checks.Calendar(ended, s.Spec, open, open.Add(time.Hour)) {
		require.Equal(t, open, closed.Until)
		require.Empty(t, closed.Spans)
	}
}
