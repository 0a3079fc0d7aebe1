package origin

import (
	"fmt"
	"maps"
	"strings"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/converge-engine/converge/entities"
)

// maxWalk is how many commits are looked at for causes.
const maxWalk = 500

// causes are the commits after another one that changed the configuration, newest first; where there is no such commit, or none
// did, the newest.
func (r *repository) causes(repo *git.Repository, newest *object.Commit, since string) []string {
	if since == "" {
		return Causes([]string{cause(newest)}, false)
	}
	known := map[plumbing.Hash]bool{}
	before, err := repo.CommitObject(plumbing.NewHash(since))
	if err == nil {
		walk(before, nil, func(c *object.Commit) { known[c.Hash] = true })
	}
	var all []string
	walk(newest, known, func(c *object.Commit) {
		if r.changes(c) {
			all = append(all, cause(c))
		}
	})
	if len(all) == 0 {
		all = []string{cause(newest)}
	}
	return Causes(all, err != nil)
}

// cause names a commit. Anybody may have written it.
func cause(c *object.Commit) string {
	subject, _, _ := strings.Cut(strings.TrimSpace(c.Message), "\n")
	return entities.Visible(fmt.Sprintf("%s %s: %s", c.Hash.String()[:12], c.Author.Name, subject))
}

// changes tells whether a commit has other content in the directory of the configuration than the commit before it.
func (r *repository) changes(c *object.Commit) bool {
	if r.path == "" {
		return true
	}
	before, err := c.Parent(0)
	return err != nil || r.content(c) != r.content(before)
}

func (r *repository) content(c *object.Commit) plumbing.Hash {
	tree, err := c.Tree()
	if err != nil {
		return plumbing.ZeroHash
	}
	entry, err := tree.FindEntry(r.path)
	if err != nil {
		return plumbing.ZeroHash
	}
	return entry.Hash
}

// walk visits commits and what came before them, the newest first, as far as they are here, but for those to skip.
func walk(from *object.Commit, skip map[plumbing.Hash]bool, visit func(*object.Commit)) {
	seen := maps.Clone(skip)
	if seen == nil {
		seen = map[plumbing.Hash]bool{}
	}
	next := []*object.Commit{from}
	if seen[from.Hash] {
		return
	}
	seen[from.Hash] = true
	for n := 0; len(next) > 0 && n < maxWalk; n++ {
		newest := 0
		for i, c := range next {
			if c.Committer.When.After(next[newest].Committer.When) {
				newest = i
			}
		}
		c := next[newest]
		next = append(next[:newest], next[newest+1:]...)
		visit(c)
		for i := range c.NumParents() {
			if before, err := c.Parent(i); err == nil && !seen[before.Hash] {
				seen[before.Hash] = true
				next = append(next, before)
			}
		}
	}
}
