package worker

import (
	"context"

	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Metrics of the supervising worker. All other workers report 0, so that the sum over workers is the total.
const (
	metricSupervises = "converge_supervises"
	metricRunning    = "converge_workflows_running"
	metricMissing    = "converge_workflows_missing"
	metricUnmanaged  = "converge_services_unmanaged"
	metricServices   = "converge_services"
	metricRestarts   = "converge_workflows_started_again"
)

// countAtOnce is how many statuses are counted per check. Each is a query to the server's list of workflows, which answers only a few a
// second. All are counted in about a minute.
const countAtOnce = 2

// unsupervised reports that another worker supervises.
func (s *supervisor) unsupervised() {
	for _, metric := range [...]string{metricSupervises, metricRunning, metricMissing, metricUnmanaged} {
		s.metrics.Gauge(metric).Update(0)
	}
	for _, row := range entities.StatusTable() {
		s.services(row.Status, 0)
	}
	s.status = 0
}

func (s *supervisor) services(status entities.Status, count int64) {
	s.metrics.WithTags(map[string]string{"status": string(status)}).Gauge(metricServices).Update(float64(count))
}

// measure reports the results. It is best effort: a value that cannot be read now stays unchanged, and is read later.
func (s *supervisor) measure(ctx context.Context) {
	if s.metrics == client.MetricsNopHandler {
		return
	}
	s.metrics.Gauge(metricSupervises).Update(1)
	s.metrics.Gauge(metricRunning).Update(float64(s.seen.running))
	s.metrics.Gauge(metricMissing).Update(float64(s.seen.missing))
	s.metrics.Gauge(metricUnmanaged).Update(float64(s.seen.down))
	table := entities.StatusTable()
	several := countAtOnce
	if s.status == 0 {
		several = len(table)
	}
	for range several {
		status := table[s.status%len(table)].Status
		count, err := s.count(ctx, protocol.Living+" AND "+protocol.AttrStatus+" = '"+string(status)+"'")
		if err != nil {
			return
		}
		s.services(status, count)
		s.status++
	}
}
