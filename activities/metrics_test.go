package activities

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities"
)

// counting counts what is counted, by metric and outcome.
type counting struct {
	client.MetricsHandler
	outcome string
	all     *sync.Map
}

func (c counting) WithTags(tags map[string]string) client.MetricsHandler {
	c.outcome = tags["outcome"]
	return c
}

func (c counting) Counter(name string) client.MetricsCounter { return counter{c, name} }

type counter struct {
	of   counting
	name string
}

// Inc implements client.MetricsCounter.
func (c counter) Inc(n int64) {
	before, _ := c.of.all.LoadOrStore(c.name+" "+c.of.outcome, int64(0))
	c.of.all.Store(c.name+" "+c.of.outcome, before.(int64)+n)
}

// Each hint that was followed is counted by what came of it.
func TestHintsAreCounted_F10(t *testing.T) {
	p := newFixture(t)
	c := counting{MetricsHandler: client.MetricsNopHandler, all: &sync.Map{}}
	p.came = (&Activities{Metrics: c}).hinted
	counted := func(outcome string) {
		t.Helper()
		require.Eventually(t, func() bool { n, _ := c.all.Load(metricHints + " " + outcome); return n != nil }, hintPatience, time.Millisecond)
	}
	p.settled(staging)
	p.hint(staging, "eu")
	counted(hintSame)
	p.run("v1", &entities.ReadingError{Code: "unreachable"})
	p.hint(staging, "eu")
	counted(hintFailed)
	p.run("v2", nil)
	require.Equal(t, staging, next(t, p.woken))
	counted(hintWoke)
}
