package publish

import (
	"fmt"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
)

// Result is the result of a publication.
type Result struct {
	Application string   `json:"application"`
	Incarnation int64    `json:"incarnation"` // the newest now
	Hash        string   `json:"hash"`
	Unchanged   bool     `json:"unchanged,omitempty"` // it was the newest already
	DryRun      bool     `json:"dryRun,omitempty"`
	Previous    int64    `json:"previous,omitempty"` // the newest before, 0 for none
	Services    []string `json:"services"`
	// Names are the services whose name is not their first one.
	Names   protocol.ServiceNames `json:"names,omitempty"`
	Changed []string              `json:"changed,omitempty"` // services whose rules or payload differ from before
	Removed []string              `json:"removed,omitempty"` // services no longer declared: orphaned
	Started []string              `json:"started,omitempty"` // services whose workflows were gone: they are started again
	Store   string                `json:"store"`
	Pinned  int64                 `json:"pinned,omitempty"` // the application is pinned to this incarnation: the publication waits
	// SecretsInClear: there are Secrets among the objects, and the store has no encryption key.
	SecretsInClear bool `json:"secretsInClear,omitempty"`
	// Warnings are about valid configuration that is probably not as intended.
	Warnings []string `json:"warnings,omitempty"`
	Notified bool     `json:"notified"` // every service is notified; if not, they are notified later, or no worker reads the store
	// Loosened are the requirements that are dropped relative to the newest incarnation; for waiting releases too, at once.
	Loosened []Loosened `json:"loosened,omitempty"`
	// Baseline is what the installation requires in addition to the configuration.
	Baseline []BaselineGates `json:"baseline,omitempty"`
	// Runtimes describes changes of runtimes that the application defines: "changed runtime eks-eu: kubernetes.context". They are no part of
	// an incarnation.
	Runtimes []string `json:"runtimes,omitempty"`
	// Difference is set for a dry run, relative to the newest incarnation.
	Difference *incarnation.Difference `json:"difference,omitempty"`
}

// Loosened is a requirement that services drop.
type Loosened struct {
	entities.Loosening
	Services []string `json:"services"`
}

// String lists the services, or their number if there are many.
func (l Loosened) String() string {
	const limit = 3
	of := strings.Join(l.Services[:min(limit, len(l.Services))], ", ")
	if more := len(l.Services) - limit; more > 0 {
		of += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s%s: %s", of, entities.InChannel(l.Channel), l.Text)
}

// String is the last line of an apply.
func (r Result) String() string {
	if len(r.Started) > 0 && !r.DryRun {
		return r.outcome() + "; restarted: " + strings.Join(r.Started, ", ")
	}
	return r.outcome()
}

func (r Result) outcome() string {
	name := fmt.Sprintf("incarnation %d of %s", r.Incarnation, r.Application)
	switch {
	case r.DryRun && r.Unchanged:
		return "nothing would change: " + name + " has this content already"
	case r.DryRun:
		return "not published: " + r.changes() + since(r.Previous)
	case r.Unchanged:
		return "nothing changed: " + name + " stays newest"
	case r.Incarnation == r.Previous: // runtimes are published separately
		return fmt.Sprintf("runtimes changed: %s notified; %s stays newest", entities.Count(len(r.Changed), "service"), name)
	}
	text := fmt.Sprintf("%s published: %s", name, r.changes())
	if r.Pinned != 0 {
		text += fmt.Sprintf("; it waits, since %s is pinned to incarnation %d", r.Application, r.Pinned)
	}
	return text
}

func (r Result) changes() string {
	text := fmt.Sprintf("%s, %d changed", entities.Count(len(r.Services), "service"), len(r.Changed))
	if len(r.Removed) > 0 {
		text += fmt.Sprintf(", %d no longer declared", len(r.Removed))
	}
	return text
}

// Rejected means that the configuration has errors, so nothing was published.
type Rejected struct {
	Problems config.Problems
	Newest   int64 // still the newest; 0 if there is none
}

// Error lists the problems and ends with the incarnation that stays newest.
func (r *Rejected) Error() string {
	text := fmt.Sprintf("%s\n%s; nothing published", r.Problems.Error(), entities.Count(len(r.Problems), "error"))
	if r.Newest > 0 {
		text += fmt.Sprintf(", incarnation %d stays newest", r.Newest)
	}
	return text
}

// Unwrap returns the problems.
func (r *Rejected) Unwrap() error { return r.Problems }

func since(previous int64) string {
	if previous == 0 {
		return ", as the first incarnation"
	}
	return fmt.Sprintf(" since incarnation %d", previous)
}
