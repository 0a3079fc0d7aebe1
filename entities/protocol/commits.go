package protocol

import (
	"fmt"
	"time"
)

// MaxCommits is how many commits are kept of an incarnation.
const MaxCommits = 1000

// Commit is a commit of a repository that a configuration comes from.
type Commit struct {
	SHA     string    `json:"sha"` // whole, in hex
	Author  string    `json:"author"`
	At      time.Time `json:"at"` // when it was committed
	Subject string    `json:"subject"`
	// Elsewhere: it changes nothing in the directory of the configuration.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// String is one line.
func (c Commit) String() string {
	return fmt.Sprintf("%s %s: %s", c.SHA[:min(12, len(c.SHA))], c.Author, c.Subject)
}

// Commits are those that an incarnation contains and the one published before it does not.
type Commits struct {
	Commit string `json:"commit"` // of the incarnation
	// Since is that of the incarnation before; "": there is none, or the repository does not have it any more, and what is
	// listed is the history of Commit.
	Since string   `json:"since,omitempty"`
	All   []Commit `json:"all"`           // newest first, at most MaxCommits
	Cut   string   `json:"cut,omitempty"` // why not all are listed; "": all are
}

// Brought is what a release brings to a release channel: the commits of its incarnation that are not in the one which is there.
type Brought struct {
	Channel     string               `json:"channel,omitempty"`
	Version     string               `json:"version,omitempty"` // full version
	Since       int64                `json:"since,omitempty"`   // the incarnation that is there; 0: nothing is
	Incarnation int64                `json:"incarnation"`
	Commits     []IncarnationCommits `json:"commits"` // newest first, only incarnations that have some
	// Unknown says which commits are not listed, and why; "": all are.
	Unknown string `json:"unknown,omitempty"`
}

// IncarnationCommits are the commits that came with an incarnation, newest first.
type IncarnationCommits struct {
	Incarnation int64    `json:"incarnation"`
	Commits     []Commit `json:"commits"`
}

// Count is how many commits are listed.
func (b Brought) Count() (n int) {
	for _, i := range b.Commits {
		n += len(i.Commits)
	}
	return n
}

// Bounded keeps the newest commits, at most so many.
func (b Brought) Bounded(most int) Brought {
	all := b.Commits
	b.Commits = nil
	for _, i := range all {
		if left := most - b.Count(); len(i.Commits) > left {
			i.Commits = i.Commits[:left]
			b.Unknown = "only the newest are listed"
		}
		if len(i.Commits) > 0 {
			b.Commits = append(b.Commits, i)
		}
	}
	return b
}
