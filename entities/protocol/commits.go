package protocol

import (
	"fmt"
	"time"
)

// MaxCommits is the maximum number of commits kept per incarnation.
const MaxCommits = 1000

// Commit is a commit of the repository of a configuration.
type Commit struct {
	SHA     string    `json:"sha"` // full, in hex
	Author  string    `json:"author"`
	At      time.Time `json:"at"` // commit time
	Subject string    `json:"subject"`
	// OutsideDir: it changes nothing in the directory of the configuration.
	OutsideDir bool `json:"elsewhere,omitempty"`
}

// String formats the commit in one line.
func (c Commit) String() string {
	return fmt.Sprintf("%s %s: %s", c.SHA[:min(12, len(c.SHA))], c.Author, c.Subject)
}

// Commits are the commits of an incarnation that the previously published one does not contain.
type Commits struct {
	Commit string `json:"commit"` // of the incarnation
	// Since is the commit of the previous incarnation. "": there is none, or the repository no longer has it, and All is the history of
	// Commit.
	Since     string   `json:"since,omitempty"`
	All       []Commit `json:"all"`           // newest first, at most MaxCommits
	Truncated string   `json:"cut,omitempty"` // why not all are listed; "": all are
}

// ReleaseCommits is the content of a release for a release channel: the commits of its incarnation that the current one does not contain.
type ReleaseCommits struct {
	Channel     string               `json:"channel,omitempty"`
	Version     string               `json:"version,omitempty"` // full version
	Since       int64                `json:"since,omitempty"`   // the current incarnation; 0: there is none
	Incarnation int64                `json:"incarnation"`
	Commits     []IncarnationCommits `json:"commits"` // newest first, only incarnations with commits
	// Unknown says which commits are not listed, and why; "": all are.
	Unknown string `json:"unknown,omitempty"`
}

// IncarnationCommits are the commits that came with an incarnation, newest first.
type IncarnationCommits struct {
	Incarnation int64    `json:"incarnation"`
	Commits     []Commit `json:"commits"`
}

// Count returns how many commits are listed.
func (b ReleaseCommits) Count() (n int) {
	for _, i := range b.Commits {
		n += len(i.Commits)
	}
	return n
}

// Bounded keeps at most this many of the newest commits.
func (b ReleaseCommits) Bounded(limit int) ReleaseCommits {
	all := b.Commits
	b.Commits = nil
	for _, i := range all {
		if remaining := limit - b.Count(); len(i.Commits) > remaining {
			i.Commits = i.Commits[:remaining]
			b.Unknown = "only the newest are listed"
		}
		if len(i.Commits) > 0 {
			b.Commits = append(b.Commits, i)
		}
	}
	return b
}
