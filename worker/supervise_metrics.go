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
	metricPaused     = "converge_workflows_paused"
	metricUnmanaged  = "converge_services_unmanaged"
	metricServices   = "converge_services"
	metricRestarts   = "converge_workflows_started_again"
)

// countsPerCheck is how many statuses are counted per check. Each is a query to the server's list of workflows, which answers only a few a
// second. All are counted in about a minute.
const countsPerCheck = 2

// resetMetrics reports that another worker supervises.
func (s *supervisor) resetMetrics() {
	for _, metric := range [...]string{metricSupervises, metricRunning, metricMissing, metricPaused, metricUnmanaged} {
		s.metrics.Gauge(metric).Update(0)
	}
	for _, row := range entities.StatusTable() {
		s.setServices(row.Status, 0)
	}
	s.nextStatus = 0
}

func (s *supervisor) setServices(status entities.Status, count int64) {
	s.metrics.WithTags(map[string]string{"status": string(status)}).Gauge(metricServices).Update(float64(count))
}

// updateMetrics reports the results. It is best effort: a value that cannot be read now stays unchanged, and is read later.
func (s *supervisor) updateMetrics(ctx context.Context) {
	if s.metrics == client.MetricsNopHandler {
		return
	}
	s.metrics.Gauge(metricSupervises).Update(1)
	s.metrics.Gauge(metricRunning).Update(float64(s.lastCheck.running))
	s.metrics.Gauge(metricMissing).Update(float64(s.lastCheck.missing))
	s.metrics.Gauge(metricPaused).Update(float64(s.altered.listed))
	s.metrics.Gauge(metricUnmanaged).Update(float64(s.lastCheck.unmanaged))
	table := entities.StatusTable()
	several := countsPerCheck
	if s.nextStatus == 0 {
		several = len(table)
	}
	for range several {
		status := table[s.nextStatus%len(table)].Status
		count, err := s.count(ctx, protocol.RunningQuery+" AND "+protocol.AttrStatus+" = '"+string(status)+"'")
		if err != nil {
			return
		}
		s.setServices(status, count)
		s.nextStatus++
	}
}
