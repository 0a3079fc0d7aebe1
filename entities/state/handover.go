package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file hands a service over from the tool that deploys it to Converge, and back (A25), in channels that are declared report-only.

// Adoption is who let Converge apply in a report-only channel, when, and why.
type Adoption struct {
	Who    entities.Who `json:"who"`
	At     time.Time    `json:"at"`
	Reason string       `json:"reason,omitempty"`
}

// SteerReturn is the request to give up what Converge has written on the objects of an instance.
const SteerReturn = "return"

// Adopt lets Converge apply in a report-only channel, or in all of them if channel is empty. The gates of what was only reported are
// evaluated again, as when the channel is declared enforced.
func (s *State) Adopt(channel string, who entities.Who, reason string, now time.Time) (Effect, error) {
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	var adopted []*entities.ChannelSpec
	for n := range s.Spec.Channels {
		c := &s.Spec.Channels[n]
		if channel != "" && c.Name != channel || c.Report == "" {
			continue
		}
		if runtime := readOnlyRuntime(s.Spec, c); runtime != "" {
			return nil, fmt.Errorf("runtime %s of %s has access: read; give its workers credentials that may write, and publish it without access: read and with enforcement: report in its channels", runtime, c.Name)
		}
		for _, i := range s.InstancesIn(c.Name) {
			if i.Steer != nil && i.Steer.Action == SteerReturn {
				return nil, fmt.Errorf("%s is being returned, by %s: the history shows when its objects are given up", s.DisplayName(i.ID), i.Steer.Who.Name)
			}
		}
		adopted = append(adopted, c)
	}
	if len(adopted) == 0 {
		return nil, fmt.Errorf("%s is not report-only: Converge applies there already", s.scopeName(channel))
	}
	return func() string {
		var names []string
		for _, c := range adopted {
			s.Channel(c.Name).Adopted = &Adoption{Who: who, At: now, Reason: reason}
			for _, i := range s.InstancesIn(c.Name) {
				i.Returning = false
			}
			c.Enforce()
			s.applyReportMode(c, now)
			names = append(names, c.Name)
			s.recordHandover(c.Name, "adopted: Converge applies here from now on", who, reason, now)
		}
		return fmt.Sprintf("%s/%s is adopted in %s: Converge applies there once the gates pass", s.Application, s.Title(), strings.Join(names, ", "))
	}, nil
}

// readOnlyRuntime is a runtime of a channel where nothing may be written, or "".
func readOnlyRuntime(spec *entities.Spec, c *entities.ChannelSpec) string {
	for _, i := range c.Instances {
		if rt := spec.Runtimes[i.Runtime]; rt != nil && rt.ReadOnly {
			return i.Runtime
		}
	}
	return ""
}

// Return makes a channel report-only again in which the service was adopted, or all of them if channel is empty. What Converge has written
// on the objects besides their declared fields is then given up. Where that failed, it can be repeated.
func (s *State) Return(channel string, who entities.Who, reason string, now time.Time) (Effect, error) {
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	var returned []*entities.ChannelSpec
	for n := range s.Spec.Channels {
		if c := &s.Spec.Channels[n]; (channel == "" || c.Name == channel) && (s.Channel(c.Name).Adopted != nil || s.isReturning(c.Name)) {
			returned = append(returned, c)
		}
	}
	if len(returned) == 0 {
		return nil, fmt.Errorf("%s was not adopted: to stop applying there, declare enforcement: report", s.scopeName(channel))
	}
	return func() string {
		var names []string
		for _, c := range returned {
			if s.Channel(c.Name).Adopted != nil {
				c.SetReportOnly()
				s.applyReportMode(c, now)
			}
			s.Channel(c.Name).Adopted = nil
			for _, i := range s.InstancesIn(c.Name) {
				if i.Delivery.Target != nil {
					i.Returning = true
					i.Steer = &Steer{Action: SteerReturn, FullVersion: i.currentVersion(), Who: who, Reason: reason, RequestedAt: now}
				}
			}
			names = append(names, c.Name)
			s.recordHandover(c.Name, "returned: Converge only reports here from now on", who, reason, now)
		}
		return fmt.Sprintf("%s/%s is returned in %s: Converge only reports there; the history shows when its objects are given up", s.Application, s.Title(), strings.Join(names, ", "))
	}, nil
}

func (s *State) recordHandover(channel, text string, who entities.Who, reason string, now time.Time) {
	s.AppendJournal(now, channel, text+", by "+who.Name+entities.Because(reason))
	s.recordAudit(entities.AuditEntry{At: now, Kind: entities.EventManage, Who: &who, Channel: channel, Text: text, Reason: reason})
}

// keepAdopted enforces the channels of a newly published spec in which the service was adopted. An adoption ends with the declaration that
// made the channel report-only, and where nothing may be written.
func (s *State) keepAdopted(spec *entities.Spec) {
	for n := range spec.Channels {
		c := &spec.Channels[n]
		known := s.Channels[c.Name]
		if known == nil || known.Adopted == nil {
			continue
		}
		if c.Report == "" || readOnlyRuntime(spec, c) != "" {
			known.Adopted = nil
			continue
		}
		c.Enforce()
	}
}

func (s *State) isReturning(channel string) bool {
	return slices.ContainsFunc(s.InstancesIn(channel), func(i *Instance) bool { return i.Returning })
}

// recordReturn records whether the objects of an instance were given up. It returns what to do if they were not.
func (s *State) recordReturn(i *Instance, err string) (hint string) {
	if i.Returning = err != ""; i.Returning {
		return fmt.Sprintf("; to try again: converge return %s/%s %s", s.Application, s.Title(), i.ID.Channel)
	}
	return ""
}
