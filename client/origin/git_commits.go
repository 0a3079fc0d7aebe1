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
	cutTooMany = "there are more"
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
	w := &walk{inSecond: map[plumbing.Hash]bool{}}
	if before, err := repo.CommitObject(plumbing.NewHash(since)); since != "" && err == nil {
		out.Since = since
		w.visit(before, true)
	}
	w.visit(newest, false)
	for n := 0; w.pending > 0 && n < maxWalk && len(w.found) <= protocol.MaxCommits; n++ {
		w.step()
	}
	found := slices.DeleteFunc(w.found, func(c *object.Commit) bool { return w.inSecond[c.Hash] })
	switch {
	case w.pending > 0 || len(found) > protocol.MaxCommits:
		out.Truncated = cutTooMany
	case w.shallow:
		out.Truncated = cutShallow
	}
	for _, c := range found[:min(len(found), protocol.MaxCommits)] {
		subject, _, _ := strings.Cut(strings.TrimSpace(c.Message), "\n")
		out.All = append(out.All, protocol.Commit{
			SHA: c.Hash.String(), Author: clip(c.Author.Name, maxCause), At: c.Committer.When.UTC(), Subject: clip(subject, maxSubject), OutsideDir: !changes(c, path),
		})
	}
	return out
}

// clip makes one short line of untrusted text.
func clip(text string, limit int) string {
	text = entities.Visible(strings.Join(strings.Fields(text), " "))
	if all := []rune(text); len(all) > limit {
		return string(all[:limit-1]) + "…"
	}
	return text
}

// causesIn are the commits after since that changed the configuration, newest first. If there is no such commit, or none changed it, the
// result is the newest commit.
func causesIn(commits *protocol.Commits, newest *object.Commit, since string) []string {
	var all []string
	for _, c := range commits.All {
		if since != "" && !c.OutsideDir {
			all = append(all, c.String())
		}
	}
	if len(all) == 0 {
		subject, _, _ := strings.Cut(strings.TrimSpace(newest.Message), "\n")
		all = []string{entities.Visible(fmt.Sprintf("%s %s: %s", newest.Hash.String()[:12], newest.Author.Name, subject))}
	}
	return Causes(all, since != commits.Since || since != "" && commits.Truncated != "")
}
