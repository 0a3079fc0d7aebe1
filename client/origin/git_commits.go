package origin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Reasons why a list of commits is cut short.
const (
	cutLong    = "there are more"
	cutShallow = "older commits are not in the local history"
)

// Limits when a history is read.
const (
	maxWalk    = 20_000 // visited commits
	maxSubject = 200    // characters
)

// commitsOf are the commits of newest that are not in the commit that was published before, newest first. If there is no previous commit,
// or the repository no longer has it, they are the whole history.
func commitsOf(repo *git.Repository, newest *object.Commit, since, path string) *protocol.Commits {
	out := &protocol.Commits{Commit: newest.Hash.String(), All: []protocol.Commit{}}
	w := &walk{before: map[plumbing.Hash]bool{}}
	if before, err := repo.CommitObject(plumbing.NewHash(since)); since != "" && err == nil {
		out.Since = since
		w.meet(before, true)
	}
	w.meet(newest, false)
	for n := 0; w.open > 0 && n < maxWalk && len(w.found) <= protocol.MaxCommits; n++ {
		w.step()
	}
	found := slices.DeleteFunc(w.found, func(c *object.Commit) bool { return w.before[c.Hash] })
	switch {
	case w.open > 0 || len(found) > protocol.MaxCommits:
		out.Cut = cutLong
	case w.shallow:
		out.Cut = cutShallow
	}
	for _, c := range found[:min(len(found), protocol.MaxCommits)] {
		subject, _, _ := strings.Cut(strings.TrimSpace(c.Message), "\n")
		out.All = append(out.All, protocol.Commit{
			SHA: c.Hash.String(), Author: line(c.Author.Name, maxCause), At: c.Committer.When.UTC(), Subject: line(subject, maxSubject), Elsewhere: !changes(c, path),
		})
	}
	return out
}

// line makes one short line of untrusted text.
func line(text string, most int) string {
	text = entities.Visible(strings.Join(strings.Fields(text), " "))
	if all := []rune(text); len(all) > most {
		return string(all[:most-1]) + "…"
	}
	return text
}

// causesIn are the commits after since that changed the configuration, newest first. If there is no such commit, or none changed it, the
// result is the newest commit.
func causesIn(commits *protocol.Commits, newest *object.Commit, since string) []string {
	var all []string
	for _, c := range commits.All {
		if since != "" && !c.Elsewhere {
			all = append(all, c.String())
		}
	}
	if len(all) == 0 {
		subject, _, _ := strings.Cut(strings.TrimSpace(newest.Message), "\n")
		all = []string{entities.Visible(fmt.Sprintf("%s %s: %s", newest.Hash.String()[:12], newest.Author.Name, subject))}
	}
	return Causes(all, since != commits.Since || since != "" && commits.Cut != "")
}
