package state

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file renames channels. The channel keeps its identity: its state moves to the new name, and its key, by which runtimes identify
// it, is its first name. So nothing is applied because of a new name.

// key of a channel by its name.
func (s *State) key(channel string) string {
	if c := s.Channels[channel]; c != nil {
		return cmp.Or(c.Key, channel)
	}
	if spec, ok := s.Spec.Channel(channel); ok {
		return spec.Identity()
	}
	return channel
}

// Key is the id of an instance for runtimes, commands and claims.
func (s *State) Key(id entities.InstanceID) entities.InstanceID {
	return entities.InstanceID{Channel: s.key(id.Channel), Name: id.Name}
}

// Keys are the keys of renamed channels, by name.
func (s *State) Keys() map[string]string {
	var keys map[string]string
	// The order does not affect the result.
	//workflowcheck:ignore
	for name, c := range s.Channels {
		if c.Key != "" {
			if keys == nil {
				keys = map[string]string{}
			}
			keys[name] = c.Key
		}
	}
	return keys
}

// IDByKey is the current id of the instance with a key.
func (s *State) IDByKey(key entities.InstanceID) entities.InstanceID {
	if c := s.Channels[key.Channel]; c != nil && c.Key == "" {
		return key
	}
	for _, name := range entities.SortedKeys(s.Channels) {
		if s.key(name) == key.Channel {
			return entities.InstanceID{Channel: name, Name: key.Name}
		}
	}
	return key
}

// RenamedChannels returns the channels that a new spec renames: the new names by the old ones.
func (s *State) RenamedChannels(spec *entities.Spec) map[string]string {
	names := map[string]string{}
	for n := range spec.Channels {
		now := &spec.Channels[n]
		if _, declared := s.Spec.Channel(now.Name); declared || s.Channels[now.Name] != nil {
			continue
		}
		for _, old := range entities.SortedKeys(s.Channels) {
			if _, still := spec.Channel(old); !still && s.key(old) == now.Identity() {
				names[old] = now.Name
			}
		}
	}
	return names
}

// PendingIncarnation is an incarnation that is not applied yet: it renames channels with releases in progress.
type PendingIncarnation struct {
	Incarnation int64             `json:"incarnation"`
	Names       map[string]string `json:"names"`           // of channels: the new ones by the old ones
	Title       string            `json:"title,omitempty"` // new name of the service; "": unchanged
	// Publish is the signal that is processed again after all releases have arrived.
	Publish json.RawMessage `json:"publish"`
}

// NewTitle is the new name of the service in a spec; "": unchanged.
func (s *State) NewTitle(spec *entities.Spec) string {
	if s.Spec == nil || len(spec.Channels) == 0 || spec.Title() == s.Title() {
		return ""
	}
	return spec.Title()
}

// RenameBlocker names the release that blocks the rename of channels, or of the service (title); "": none.
func (s *State) RenameBlocker(names map[string]string, title string) string {
	for _, r := range s.Releases {
		for _, channel := range entities.SortedKeys(r.Phases) {
			if p := r.Phases[channel]; title != "" && !p.Phase.Over() {
				return fmt.Sprintf("%s is renamed to %s once none of its releases is in progress: %s is %s in %s", s.Title(), title, r.FullVersion, p.Phase, channel)
			}
		}
	}
	for _, old := range entities.SortedKeys(names) {
		for _, r := range s.Releases {
			if p := r.phaseState(old); p != nil && !p.Phase.Over() {
				return fmt.Sprintf("%s is renamed to %s once no release is in progress there: %s is %s", old, names[old], r.FullVersion, p.Phase)
			}
		}
	}
	return ""
}

// ApplyRules applies the rules of an incarnation that is deferred. spec is the current one under those rules. They take effect at once, also
// for the releases that it waits for.
func (s *State) ApplyRules(spec *entities.Spec, now time.Time) {
	s.keepAdopted(spec)
	if entities.DigestOf(spec) == entities.DigestOf(s.Spec) {
		return
	}
	s.Spec = spec
	s.AppendJournal(now, "", fmt.Sprintf("incarnation %d, under the rules of incarnation %d", spec.Incarnation, spec.RulesOf))
	for n := range spec.Channels {
		s.applyReportMode(&spec.Channels[n], now)
		s.backfillConvergedAt(&spec.Channels[n], now)
	}
	s.WithdrawDisallowed(now)
}

// DeferIncarnation keeps an incarnation until the releases that it would cut off from their channels have arrived there.
func (s *State) DeferIncarnation(a PendingIncarnation, now time.Time) {
	if s.PendingIncarnation == nil || s.PendingIncarnation.Incarnation != a.Incarnation {
		s.AppendJournal(now, "", fmt.Sprintf("incarnation %d waits: %s", a.Incarnation, s.RenameBlocker(a.Names, a.Title)))
	}
	s.PendingIncarnation = &a
}

// TakeDeferred is the awaited signal, once no release is in progress any more.
func (s *State) TakeDeferred() (json.RawMessage, bool) {
	if s.PendingIncarnation == nil || s.RenameBlocker(s.PendingIncarnation.Names, s.PendingIncarnation.Title) != "" {
		return nil, false
	}
	raw := s.PendingIncarnation.Publish
	s.PendingIncarnation = nil
	return raw, true
}

// PendingIncarnationText states what blocks the newest incarnation, or "".
func (s *State) PendingIncarnationText() string {
	if s.PendingIncarnation == nil {
		return ""
	}
	return fmt.Sprintf("incarnation %d waits: %s", s.PendingIncarnation.Incarnation, s.RenameBlocker(s.PendingIncarnation.Names, s.PendingIncarnation.Title))
}

// CheckChannelKeys returns an error for a spec in which two channels would have the same key: one has the first name of another, or a name
// that remaining objects still use.
func (s *State) CheckChannelKeys(spec *entities.Spec) error {
	by := map[string]string{}
	for n := range spec.Channels {
		name := spec.Channels[n].Name
		key := spec.Channels[n].Identity()
		if s.Channels[name] != nil {
			key = s.key(name)
		}
		if other, taken := by[key]; taken {
			return fmt.Errorf("release channels %s and %s have the same identity: %s is the first name of %s; choose another name", other, name, key, other)
		}
		by[key] = name
	}
	return s.checkNamesFree(spec)
}

// checkNamesFree returns an error for a rename to the name of another channel with remaining objects.
func (s *State) checkNamesFree(spec *entities.Spec) error {
	for n := range spec.Channels {
		c := &spec.Channels[n]
		if s.Channels[c.Name] == nil || s.key(c.Name) == c.Identity() {
			continue
		}
		for _, old := range entities.SortedKeys(s.Channels) {
			if _, still := spec.Channel(old); !still && c.Key != "" && s.key(old) == c.Key {
				return fmt.Errorf("%s cannot be renamed to %s: an earlier release channel with that name still has objects; choose another name", old, c.Name)
			}
		}
	}
	return nil
}

// ApplyNames renames channels to their names in a new spec, and records a new name of the service. Call it before ApplySpec, which treats a
// channel with a new name as a new one.
func (s *State) ApplyNames(spec *entities.Spec, who entities.Who, now time.Time) {
	if title := s.NewTitle(spec); title != "" {
		text := entities.RenameText(s.Title(), title, spec.Incarnation)
		s.AppendJournal(now, "", text)
		s.recordAudit(entities.AuditEntry{At: now, Kind: entities.EventPublish, Who: &who, Text: text})
	}
	names := s.RenamedChannels(spec)
	for _, old := range entities.SortedKeys(names) {
		s.renameChannel(old, names[old])
		for _, r := range s.Releases {
			r.rename(old, names[old], spec)
		}
		text := entities.RenameText(old, names[old], spec.Incarnation)
		s.AppendJournal(now, names[old], text)
		s.recordAudit(entities.AuditEntry{At: now, Kind: entities.EventPublish, Who: &who, Channel: names[old], Text: text})
	}
	s.Spec = s.Spec.WithChannelNames(names)
}

// renameChannel renames a channel in its own state. Its checks are evaluated again.
func (s *State) renameChannel(old, name string) {
	c := s.Channels[old]
	c.Key = s.key(old)
	if c.Key == name {
		c.Key = ""
	}
	c.clearReadings()
	delete(s.Channels, old)
	s.Channels[name] = c
	for _, id := range entities.SortedIDs(s.Instances) {
		if i := s.Instances[id]; id.Channel == old {
			delete(s.Instances, id)
			i.ID.Channel = name
			s.Instances[i.ID] = i
			i.renameTopic(old, name)
		}
	}
	for n := range s.Pins {
		if s.Pins[n].Channel == old {
			s.Pins[n].Channel = name
		}
	}
	for n := range s.Pauses {
		if p := &s.Pauses[n]; p.Channel == old && p.Scope == "" {
			p.Channel = name
		}
	}
	if s.Deletion != nil {
		for n := range s.Deletion.Removed {
			if s.Deletion.Removed[n].Channel == old {
				s.Deletion.Removed[n].Channel = name
			}
		}
	}
}

// renameTopic renames the topic of the approval of the next apply, which contains the channel.
func (i *Instance) renameTopic(old, name string) {
	renamed := func(a *entities.Approval) *entities.Approval {
		if a == nil || a.Topic != ApplyTopic+old {
			return a
		}
		given := *a // the approval may be shared
		given.Topic = ApplyTopic + name
		return &given
	}
	i.Approval.Given, i.Approval.Others = renamed(i.Approval.Given), slices.Clone(i.Approval.Others)
	for n, also := range i.Approval.Others {
		i.Approval.Others[n] = renamed(also)
	}
}

// rename renames a channel in a release. An approval with the name of the channel as its topic stays valid if the new name is the topic
// from now on.
func (r *Release) rename(old, name string, spec *entities.Spec) {
	renameIn(r.Payloads, old, name)
	renameIn(r.Templates, old, name)
	renameIn(r.Runtimes, old, name)
	renameIn(r.Present, old, name)
	renameIn(r.MergedTargets, old, name)
	renameIn(r.RollbackTargets, old, name)
	names := map[string]string{old: name}
	if p := r.Phases[old]; p != nil {
		delete(r.Phases, old)
		r.Phases[name] = p
		if p.Aside != nil {
			renameIn(p.Aside.ConvergedAt, old, name)
		}
	}
	if r.KeepsVersionIn[old] {
		delete(r.KeepsVersionIn, old)
		r.KeepsVersionIn[name] = true
	}
	topic := !requiresTopic(spec, old)
	for n := range r.Approvals {
		a := &r.Approvals[n]
		if topic && a.Topic == old {
			a.Topic = name
		}
		if why, withdrawn := a.Withdrawn[old]; withdrawn {
			all := map[string]string{name: why}
			for _, c := range entities.SortedKeys(a.Withdrawn) {
				if c != old {
					all[c] = a.Withdrawn[c]
				}
			}
			a.Withdrawn = all
		}
	}
	for n := range r.Bypasses {
		b := &r.Bypasses[n]
		b.Condition = entities.ConditionIn(names, b.Channel, b.Condition)
		b.Channel = entities.NameIn(names, b.Channel)
	}
	for _, key := range entities.SortedKeys(r.Extensions) {
		e := r.Extensions[key]
		e.Channel = entities.NameIn(names, e.Channel)
	}
}

// RenameRuns moves the results of extensions in renamed channels to the new names, so nothing runs again because of a name. Call it after
// ApplyNames. A running extension keeps its name, under which its result arrives, and so does one that the configuration names.
func (s *State) RenameRuns(names map[string]string, spec *entities.Spec) {
	for _, r := range s.Releases {
		for _, key := range entities.SortedKeys(r.Extensions) {
			e := r.Extensions[key]
			run, channel := key[:strings.LastIndexByte(key, '@')+1], key[strings.LastIndexByte(key, '@')+1:]
			name, renamed := names[channel]
			if !renamed || e.Channel != name || e.Running || hasExtension(spec, name, key) {
				continue
			}
			delete(r.Extensions, key)
			r.Extensions[run+name] = e
		}
	}
}

// hasExtension reports whether a spec has an extension with a run key in a channel.
func hasExtension(spec *entities.Spec, channel, key string) bool {
	c, _ := spec.Channel(channel)
	return slices.ContainsFunc(c.Extensions, func(e entities.Extension) bool { return e.RunKey() == key || e.Repeating().RunKey() == key })
}

// renameIn moves the entries of a channel's instances to its new name.
func renameIn[T any](all map[entities.InstanceID]T, old, name string) {
	for _, id := range entities.SortedIDs(all) {
		if id.Channel == old {
			all[entities.InstanceID{Channel: name, Name: id.Name}] = all[id]
			delete(all, id)
		}
	}
}

// requiresTopic reports whether a spec requires the approval of a topic.
func requiresTopic(spec *entities.Spec, topic string) bool {
	return slices.ContainsFunc(spec.Channels, func(c entities.ChannelSpec) bool {
		return slices.ContainsFunc(c.Conditions, func(cond entities.Condition) bool { return cond.Topic == topic })
	})
}
