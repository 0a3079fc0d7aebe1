package incarnation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
)

// Work returns the plan of the incarnation in a release channel; nil if there is no such channel, the channel is report-only, or no
// service declares plan settings. It always returns the same pointer, because each command of a plan calls it. The value must not be
// modified.
func (i *Incarnation) Work(channel string) *plan.Work {
	if known, is := i.works.Load(channel); is {
		return known.(*plan.Work)
	}
	work, _ := i.works.LoadOrStore(channel, i.work(channel))
	return work.(*plan.Work)
}

func (i *Incarnation) work(channel string) *plan.Work {
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

// planRules flattens the plan of a channel for differences.
func planRules(flat map[string]string, at string, work *plan.Work) {
	flat[at] = fmt.Sprintf("maxParallelism %d, eagerReconcile %t", work.Limit, work.Eager)
	for _, s := range work.Services {
		name := s.Name
		s.Name = ""
		flat[at+".services."+name] = jsonText(s)
	}
	for _, t := range work.Targets {
		flat[at+".targets."+t.Name] = jsonText(t)
	}
	run := func(path string, e entities.Extension) {
		e.Name, e.Key = "", ""
		flat[path] = jsonText(e)
	}
	for _, c := range work.Commands {
		run(strings.Join([]string{at, string(c.Kind), c.Service, c.Run.Name}, "."), c.Run)
	}
	for n, e := range work.Before {
		run(fmt.Sprintf("%s.before[%d].%s", at, n, e.Name), e)
	}
	for n, e := range work.After {
		run(fmt.Sprintf("%s.after[%d].%s", at, n, e.Name), e)
	}
	for n, f := range work.Fragments {
		flat[fmt.Sprintf("%s.feeds[%d].%s.%s", at, n, f.Service, f.Aggregator)] = jsonText(f.Content)
	}
}
