package activities

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities"
)

// countingHandler adds up counters, by metric and outcome.
type countingHandler struct {
	client.MetricsHandler
	outcome string
	all     *sync.Map
}

func (c countingHandler) WithTags(tags map[string]string) client.MetricsHandler {
	c.outcome = tags["outcome"]
	return c
}

func (c countingHandler) Counter(name string) client.MetricsCounter { return counter{c, name} }

type counter struct {
	of   countingHandler
	name string
}

// Inc implements client.MetricsCounter.
func (c counter) Inc(n int64) {
	before, _ := c.of.all.LoadOrStore(c.name+" "+c.of.outcome, int64(0))
	c.of.all.Store(c.name+" "+c.of.outcome, before.(int64)+n)
}

// Each followed hint is counted by its outcome.
func TestHintsAreCounted_F10(t *testing.T) {
	p := newFixture(t)
	c := countingHandler{MetricsHandler: client.MetricsNopHandler, all: &sync.Map{}}
	p.onOutcome = (&Activities{Metrics: c}).recordHint
	counted := func(outcome string) {
		t.Helper()
		require.Eventually(t, func() bool { n, _ := c.all.Load(metricHints + " " + outcome); return n != nil }, hintPatience, time.Millisecond)
	}
	p.observeUnchanged(staging)
	p.hint(staging, "eu")
	counted(hintSame)
	p.setVersion("v1", &entities.ReadingError{Code: "unreachable"})
	p.hint(staging, "eu")
	counted(hintFailed)
	p.setVersion("v2", nil)
	require.Equal(t, staging, receive(t, p.woken))
	counted(hintWoke)
}
