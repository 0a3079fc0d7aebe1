package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/chart"
	"github.com/converge-engine/converge/entities/explain"
)

// This file summarizes a trail in the DORA metrics of software delivery (dora.dev): deployment frequency, lead time, failure rate and
// recovery time.

// Deployment is the outcome of a release in a channel, once it succeeded or failed there. A return to an earlier version, a pin and a
// restart do not count.
type Deployment struct {
	Release string `json:"release"` // id
	Version string `json:"version"`
	// Accepted is when the release was accepted. Started is when it became the target. Succeeded is when the objects were stable and the soak
	// time was over. Failed is the first failure, or the rollback. Restored is the next success in the channel. A zero time did not happen.
	Accepted  time.Time `json:"accepted,omitzero"`
	Started   time.Time `json:"started"`
	Succeeded time.Time `json:"succeeded,omitzero"`
	Failed    time.Time `json:"failed,omitzero"`
	Restored  time.Time `json:"restored,omitzero"`
	// RolledBackBy is who rolled it back; "" if it was not rolled back.
	RolledBackBy string `json:"rolledBackBy,omitempty"`
	Automatic    bool   `json:"automatic,omitempty"` // Converge rolled it back
}

// ended returns when it first succeeded or failed.
func (d *Deployment) ended() time.Time {
	if d.Failed.IsZero() || !d.Succeeded.IsZero() && d.Succeeded.Before(d.Failed) {
		return d.Succeeded
	}
	return d.Failed
}

// Delivery is the deployments to a channel of a service over a period, oldest first.
type Delivery struct {
	Service     string       `json:"service"`
	Channel     string       `json:"channel"`
	Releases    int          `json:"releases"` // accepted in the period for the service, deployed or not
	Deployments []Deployment `json:"deployments"`
	Numbers     Numbers      `json:"numbers"`

	spans []chart.Span
}

// Numbers summarize deployments. Times are medians in seconds, and absent without data.
type Numbers struct {
	Succeeded int `json:"succeeded"`
	// PerWeek is the deployment frequency: successful deployments.
	PerWeek float64 `json:"deploymentFrequencyPerWeek"`
	// LeadTime is the lead time for changes, from the acceptance of the release to its success.
	LeadTime *float64 `json:"leadTimeSeconds,omitempty"`
	// Failed also counts deployments that users rolled back after a success.
	Failed      int      `json:"failed"`
	FailureRate *float64 `json:"changeFailureRate,omitempty"` // of all deployments, 0 to 1
	Automatic   int      `json:"automaticRollbacks"`
	ByPeople    int      `json:"rollbacksByPeople"`
	// Recovery is the failed deployment recovery time, from the failure to the next success in the channel.
	Recovery   *float64 `json:"recoverySeconds,omitempty"`
	Unrestored int      `json:"notRestored"` // failed, and nothing has succeeded there since
}

// Report returns a Delivery for each of some channels of a service, from a time until now. The default is the last channels: the declared
// ones that no other channel waits for. A deployment belongs to the period in which it first succeeded or failed. A renamed channel keeps
// its history. known lists all channels, past and present.
func Report(in Input, from time.Time, channels ...string) (out []Delivery, known []string) {
	m := &reader{Input: in, holdsByChannel: map[string][]hold{}}
	m.read()
	if len(channels) == 0 {
		channels = m.lastChannels()
	}
	releases := 0
	for _, r := range m.releases {
		if !r.rollsBack && !r.at.Before(from) {
			releases++
		}
	}
	for _, channel := range channels {
		if !slices.Contains(m.channels, channel) {
			continue
		}
		d := Delivery{Channel: channel, Releases: releases, Deployments: []Deployment{}}
		for _, dep := range m.deployments(channel) {
			if !dep.ended().Before(from) {
				d.Deployments = append(d.Deployments, dep)
			}
		}
		d.Numbers, d.spans = Sum(d.Deployments, in.Now.Sub(from)), m.channelSpans(channel, from)
		out = append(out, d)
	}
	return out, m.channels
}

// lastChannels returns the declared channels that no other one waits for. Without declared channels it uses all known ones.
func (m *reader) lastChannels() (out []string) {
	var declared []string
	for _, c := range m.Status.Channels {
		if c.Status != string(entities.StatusOrphaned) {
			declared = append(declared, c.Name)
		}
	}
	if declared == nil {
		declared = m.channels
	}
	for _, c := range declared {
		if !slices.ContainsFunc(declared, func(other string) bool { return slices.Contains(m.Needs[other], c) }) {
			out = append(out, c)
		}
	}
	return out
}

// deployments returns those of a channel that succeeded or failed.
func (m *reader) deployments(channel string) []Deployment {
	var out []Deployment
	var seen []*release
	for _, x := range m.runs {
		if x.channel != channel || x.release == nil || x.release.rollsBack || x.isRollback {
			continue
		}
		n := slices.Index(seen, x.release)
		if n < 0 {
			n, seen = len(seen), append(seen, x.release)
			out = append(out, Deployment{Release: x.release.id, Version: x.release.version, Accepted: x.release.at, Started: x.from})
		}
		d := &out[n]
		d.Succeeded = cmp.Or(d.Succeeded, x.succeeded)
		if d.Failed.IsZero() && !x.failed.IsZero() {
			d.Failed, d.Restored = x.failed, m.restored(channel, x.failed)
		}
		if x.rolledBackBy != nil {
			d.Automatic, d.RolledBackBy = x.rolledBackBy.Who == nil, "converge"
			if x.rolledBackBy.Who != nil {
				d.RolledBackBy = x.rolledBackBy.Who.Name
			}
		}
	}
	return slices.DeleteFunc(out, func(d Deployment) bool { return d.ended().IsZero() })
}

// restored returns the first success in a channel after a failure; zero if there is none.
func (m *reader) restored(channel string, failed time.Time) time.Time {
	for _, x := range m.runs {
		if x.channel == channel && x.succeeded.After(failed) {
			return x.succeeded
		}
	}
	return time.Time{}
}

// channelSpans returns the spans of a channel from a time on, each with its version. With two aspects the later run counts.
func (m *reader) channelSpans(channel string, from time.Time) []chart.Span {
	var out []chart.Span
	for _, x := range m.runs {
		if x.channel != channel {
			continue
		}
		if n := len(out) - 1; n >= 0 && (out[n].To.IsZero() || out[n].To.After(x.from)) {
			out[n].To = x.from
		}
		for _, s := range m.runSpans(x) {
			s.Reasons = []string{x.version}
			out = append(out, s)
		}
	}
	out = slices.DeleteFunc(out, func(s chart.Span) bool { return !s.To.IsZero() && !s.To.After(from) })
	for n := range out {
		out[n].From = later(out[n].From, from)
	}
	return out
}

// Sum summarizes the deployments of a period.
func Sum(deployments []Deployment, period time.Duration) Numbers {
	n := Numbers{}
	var leads, recoveries []time.Duration
	for _, d := range deployments {
		if !d.Succeeded.IsZero() {
			n.Succeeded++
			leads = append(leads, d.Succeeded.Sub(d.Accepted))
		}
		switch {
		case d.Failed.IsZero():
			continue
		case d.Restored.IsZero():
			n.Unrestored++
		default:
			recoveries = append(recoveries, d.Restored.Sub(d.Failed))
		}
		n.Failed++
		if d.Automatic {
			n.Automatic++
		} else if d.RolledBackBy != "" {
			n.ByPeople++
		}
	}
	n.PerWeek = float64(n.Succeeded) / (period.Hours() / (7 * 24))
	n.LeadTime, n.Recovery = median(leads), median(recoveries)
	if len(deployments) > 0 {
		rate := float64(n.Failed) / float64(len(deployments))
		n.FailureRate = &rate
	}
	return n
}

// median returns the median in seconds, or nil without data.
func median(all []time.Duration) *float64 {
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	middle := ((all[(len(all)-1)/2] + all[len(all)/2]) / 2).Seconds()
	return &middle
}

// Total combines the deployments of several deliveries over a period. The releases of a service with several channels count once.
func Total(all []Delivery, period time.Duration) Delivery {
	total := Delivery{Deployments: []Deployment{}}
	var seen []string
	for _, d := range all {
		if !slices.Contains(seen, d.Service) {
			seen = append(seen, d.Service)
			total.Releases += d.Releases
		}
		total.Deployments = append(total.Deployments, d.Deployments...)
	}
	total.Numbers = Sum(total.Deployments, period)
	return total
}

// ReportHeader is the header for the Cells of deliveries.
var ReportHeader = []string{
	"SERVICE", "CHANNEL", "RELEASES", "DEPLOYED", "PER WEEK", "LEAD TIME", "FAILED", "FAILURE RATE", "ROLLED BACK", "RECOVERED IN",
}

// Cells formats the numbers of a delivery for people.
func (d *Delivery) Cells() []string {
	n := d.Numbers
	rate, rollbacks, recovered := "-", fmt.Sprint(n.Automatic), durationText(n.Recovery)
	if n.FailureRate != nil {
		rate = fmt.Sprintf("%.0f%%", *n.FailureRate*100)
	}
	if n.ByPeople > 0 {
		rollbacks += fmt.Sprintf(" and %d by people", n.ByPeople)
	}
	if n.Unrestored > 0 {
		recovered += fmt.Sprintf(", %d not yet", n.Unrestored)
	}
	return []string{
		d.Service, d.Channel, fmt.Sprint(d.Releases), fmt.Sprint(n.Succeeded), fmt.Sprintf("%.1f", n.PerWeek), durationText(n.LeadTime),
		fmt.Sprint(n.Failed), rate, rollbacks, recovered,
	}
}

func durationText(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return explain.Duration(time.Duration(*seconds * float64(time.Second)))
}

// ReportChart draws the history of each channel, with its numbers below.
func ReportChart(title string, all []Delivery, from, now time.Time) chart.Chart {
	c := chart.Chart{Title: title, From: from, To: now, End: now}
	for _, d := range all {
		row := chart.Row{Name: d.Service + " " + d.Channel, Spans: d.spans}
		cells := d.Cells()
		row.Note = fmt.Sprintf("%s deployed (%s a week), lead time %s; %s failed (%s), recovered in %s; rolled back: %s",
			cells[3], cells[4], cells[5], cells[6], cells[7], cells[9], cells[8])
		c.Rows = append(c.Rows, row)
	}
	return c
}
