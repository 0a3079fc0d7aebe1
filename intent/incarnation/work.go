package incarnation

import (
	"slices"

	"github.com/converge-engine/converge/entities/plan"
)

// Work is what the incarnation plans in a release channel; nil where there is no such channel, nothing is written there, or nothing
// there says how services are fitted together.
func (i *Incarnation) Work(channel string) *plan.Work {
	c := i.channel(channel)
	declared := c.Plan
	if declared == nil || c.ReportOnly {
		return nil
	}
	work := *declared
	work.Application, work.Channel = i.doc.Application, channel
	work.Services = slices.Clone(work.Services)
	for n := range work.Services {
		if s, ok := i.Service(work.Services[n].Name); ok {
			work.Services[n].Key = s.Key
		}
	}
	return &work
}
