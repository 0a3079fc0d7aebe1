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

// Why a list of commits is cut.
const (
	cutLong    = "there are more"
	cutShallow = "the history that is here begins after them"
)

// Bounds of what is read of a history.
const (
	maxWalk    = 20_000 // commits that are looked at
	maxSubject = 200    // characters
)

// commitsOf are those that a commit has and the one that was published before has not, newest first. Where there is none of before,
// or the repository does not have it any more, they are the history.
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

// line makes one short line of what anybody may have written.
func line(text string, most int) string {
	text = entities.Visible(strings.Join(strings.Fields(text), " "))
	if all := []rune(text); len(all) > most {
		return string(all[:most-1]) + "…"
	}
	return text
}

// causesIn are the commits after another one that changed the configuration, newest first; where there is no such commit, or none
// did, the newest.
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
