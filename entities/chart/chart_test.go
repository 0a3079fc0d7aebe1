package chart

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Date(2026, 12, 30, 9, 0, 0, 0, time.UTC)

func at(h int) time.Time { return start.Add(time.Duration(h) * time.Hour) }

// A wait is labelled with the reason that holds longest from then on, not with the first one.
func TestLabelIsTheLongestReason(t *testing.T) {
	spans := []Span{
		{Kind: Waits, From: at(0), To: at(1), Reasons: []string{"behind v1", "freeze"}},
		{Kind: Waits, From: at(1), To: at(24), Reasons: []string{"freeze"}},
		{Kind: Runs, From: at(24)},
	}
	require.Equal(t, "freeze", longestReason(spans, 0))
	require.Equal(t, "", longestReason(spans, 2))
	require.Equal(t, "a", longestReason([]Span{{Reasons: []string{"a", "b"}}}, 0), "of the same length the first")
}

func TestMomentsHaveZoneAndYear(t *testing.T) {
	require.Equal(t, "Wed 30 Dec 09:00 UTC", Moment(start, at(1), time.UTC))
	require.Equal(t, "Fri 1 Jan 2027 09:00 UTC", Moment(at(48), start, time.UTC))
	require.Equal(t, "-", Moment(time.Time{}, start, time.UTC))
}

// A short span is visible in a row, and a span that began before the row is cut off.
func TestTextRow(t *testing.T) {
	c := Chart{From: at(0), To: at(10), End: at(10)}
	spans := []Span{
		{Kind: Waits, From: at(-5), To: at(1)},
		{Kind: Deploys, From: at(1), To: at(1)},
		{Kind: Runs, From: at(1), To: at(6)},
		{Kind: Fails, From: at(6), To: at(7)},
	}
	require.Equal(t, "░▒████×···", c.TextRow(Row{Spans: spans}, 10))
}
