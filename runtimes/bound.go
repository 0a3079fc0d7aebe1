package runtimes

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/converge-engine/converge/entities"
)

// The limits of one reading, so that thousands of them fit into workflow state and history (no payload exceeds 64 KiB). Lengths are
// bytes of UTF-8.
const (
	MaxReading  = 16 << 10 // all objects of a reading as JSON
	MaxObjects  = 20
	MaxVersions = 10 // of one object
	MaxEvents   = 10 // of one object, the newest
	MaxLinks    = 10 // of one object
	MaxForeign  = 5  // of one object

	maxName    = 253
	maxType    = 63
	maxMessage = 512
	maxEvent   = 256
	maxURL     = 1024 // a shortened link is broken, so a longer one is dropped

	// The kept parts of an object when the reading is full.
	leanVersions = 3
	leanMessage  = 128
)

// Bound returns the objects that a reading keeps, and how many it omits. The input is not changed.
//
// The omitted objects never change the verdict on the kept ones (C5). Objects that are not stable come first (failed, pending,
// drifted, several active versions), then those that show that the versions differ, then those that are not ready but as declared (H8).
// Then comes one object for every different active version, then the objects that are no longer declared, then the rest, each group in
// the given order. So if the kept objects are stable at a version, or as declared, all of them were.
//
// As many objects as possible are kept, and the first of them with all their parts.
func Bound(objects []entities.Object) (kept []entities.Object, omitted int) {
	size := len("[]")
	var whole []entities.Object
	for _, o := range ByUrgency(objects) {
		full := trim(o)
		o = lean(full)
		n := jsonSize(o)
		if size+n > MaxReading || len(kept) == MaxObjects {
			break // not "continue": a smaller one further down is less urgent
		}
		kept, whole, size = append(kept, o), append(whole, full), size+n
	}
	for i, full := range whole {
		if more := jsonSize(full) - jsonSize(kept[i]); size+more <= MaxReading {
			kept[i], size = full, size+more
		}
	}
	return kept, len(objects) - len(kept)
}

func jsonSize(o entities.Object) int {
	b, err := json.Marshal(o)
	if err != nil {
		return MaxReading // JSON cannot encode one of its times; the object is kept without events, or not at all
	}
	return len(b) + len(",")
}

// ByUrgency returns a sorted copy: failed and moving objects come first, in the same order within a group. It is for callers that
// have to omit some objects.
func ByUrgency(objects []entities.Object) []entities.Object {
	var groups [healthy + 1][]entities.Object
	for _, o := range objects {
		rank := urgency(o)
		groups[rank] = append(groups[rank], o)
	}
	v := versions{seen: map[string]bool{}}
	for _, rank := range []int{failing, underway, healthy} {
		group := groups[rank]
		groups[rank] = nil
		for _, o := range group {
			r := v.rank(o, rank)
			groups[r] = append(groups[r], o)
		}
	}
	return slices.Concat(groups[:]...)
}

// versions finds the objects that show which versions there are.
type versions struct {
	common []string // those that every object so far has
	begun  bool
	seen   map[string]bool // the active ones of healthy objects
}

// rank returns the rank of an object that is healthy or as declared, from the given one.
func (v *versions) rank(o entities.Object, rank int) int {
	has := activeVersions(o)
	if rank != healthy {
		has = nil
		for _, version := range o.Versions {
			has = append(has, version.Version)
		}
	}
	lacks := func(version string) bool { return !slices.Contains(has, version) }
	switch {
	case !v.begun:
		v.begun, v.common = true, has
		return witness
	case slices.ContainsFunc(v.common, lacks):
		v.common = slices.DeleteFunc(slices.Clone(v.common), lacks)
		return witness
	case rank == healthy && !v.seen[has[0]]:
		v.seen[has[0]] = true
		return representative
	}
	return rank
}

const (
	failed = iota
	pending
	ambiguous // succeeded, but not at one version
	witness   // lacks a version that all before it have
	failing   // failing, but as declared
	underway  // not ready yet, but as declared
	representative
	orphaned
	healthy
)

func urgency(o entities.Object) int {
	switch {
	case o.Orphaned:
		return orphaned
	case o.AsDeclared && o.Status == entities.ObjectFailed:
		return failing
	case o.AsDeclared && o.Status != entities.ObjectSucceeded:
		return underway
	case o.Status == entities.ObjectFailed:
		return failed
	case o.Status != entities.ObjectSucceeded:
		return pending
	case len(activeVersions(o)) != 1 || drifted(o):
		return ambiguous
	}
	return healthy
}

func activeVersions(o entities.Object) (active []string) {
	for _, v := range o.Versions {
		if v.Active {
			active = append(active, v.Version)
		}
	}
	return active
}

func drifted(o entities.Object) bool {
	return slices.ContainsFunc(o.Versions, func(v entities.ObjectVersion) bool { return v.Drifted })
}

// trim limits one object. It keeps active versions before others, then drifted ones.
func trim(o entities.Object) entities.Object {
	o.Name, o.Type, o.Message = Clip(o.Name, maxName), Clip(o.Type, maxType), ClipMessage(o.Message, maxMessage)

	o.Versions = slices.Clone(o.Versions)
	slices.SortStableFunc(o.Versions, func(a, b entities.ObjectVersion) int { return versionRank(a) - versionRank(b) })
	o.Versions = o.Versions[:min(len(o.Versions), MaxVersions)]
	for i := range o.Versions {
		o.Versions[i].Version = Clip(o.Versions[i].Version, maxName)
	}

	foreign := o.Foreign
	o.Foreign = nil
	for _, field := range foreign[:min(len(foreign), MaxForeign)] {
		o.Foreign = append(o.Foreign, Clip(field, maxEvent))
	}

	links := o.Links
	o.Links = nil
	for _, l := range links {
		if len(l.URL) <= maxURL && len(o.Links) < MaxLinks {
			o.Links = append(o.Links, entities.Link{Type: Clip(l.Type, maxType), URL: clean(l.URL), Name: Clip(l.Name, maxName)})
		}
	}

	events := slices.Clone(o.Events)
	slices.SortStableFunc(events, func(a, b entities.Event) int { return a.Timestamp.Compare(b.Timestamp) })
	o.Events = events[max(0, len(events)-MaxEvents):]
	for i := range o.Events {
		o.Events[i].Message = ClipMessage(o.Events[i].Message, maxEvent)
	}
	return o
}

func versionRank(v entities.ObjectVersion) int {
	switch {
	case v.Active && v.Drifted:
		return 0
	case v.Active:
		return 1
	case v.Drifted:
		return 2
	}
	return 3
}

// lean keeps the fields of a trimmed object that the decision reads, and a short message.
func lean(o entities.Object) entities.Object {
	o.Links, o.Events, o.Foreign = nil, nil, nil
	o.Message = ClipMessage(o.Message, leanMessage)
	o.Versions = o.Versions[:min(len(o.Versions), leanVersions)]
	return o
}

// Clip shortens s to at most limit bytes, including the ellipsis, without splitting a character. Invalid UTF-8 becomes U+FFFD, and
// control characters, which would affect a terminal, become a space.
func Clip(s string, limit int) string {
	s = clean(s)
	if len(s) <= limit {
		return s
	}
	const ellipsis = "…"
	cut := max(0, limit-len(ellipsis))
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + ellipsis
}

// ClipMessage is Clip for a message: it drops the middle, and so keeps the cause and the remedy at its end. Of several messages, one on each
// line, each is shortened.
func ClipMessage(s string, limit int) string { return entities.ClipMessages(clean(s), limit) }

func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
