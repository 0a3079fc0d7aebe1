package origin

import (
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// walk goes through a history from the newest commit to older ones, from two ends at once, and tells apart what only the one has.
type walk struct {
	before  map[plumbing.Hash]bool // of each commit that was met: the other end has it, too
	next    []*object.Commit
	open    int              // of next: what the other end does not have, as far as is known
	found   []*object.Commit // that the other end did not have when they were passed
	shallow bool             // a commit that was found has parents that are not here
}

// meet comes to a commit. That the other end has it may be found out later: then what came before it is told again.
func (w *walk) meet(c *object.Commit, before bool) {
	was, met := w.before[c.Hash]
	switch {
	case met && (was || !before):
		return
	case met:
		w.open -= w.waiting(c.Hash)
	}
	w.before[c.Hash] = before
	w.next = append(w.next, c)
	if !before {
		w.open++
	}
}

// waiting takes a commit out of those that come next, and tells how many that were.
func (w *walk) waiting(hash plumbing.Hash) int {
	for i, c := range w.next {
		if c.Hash == hash {
			w.next = append(w.next[:i], w.next[i+1:]...)
			return 1
		}
	}
	return 0
}

// step passes the newest commit that comes next.
func (w *walk) step() {
	newest := 0
	for i, c := range w.next {
		if c.Committer.When.After(w.next[newest].Committer.When) {
			newest = i
		}
	}
	c := w.next[newest]
	w.next = append(w.next[:newest], w.next[newest+1:]...)
	before := w.before[c.Hash]
	if !before {
		w.open--
		w.found = append(w.found, c)
	}
	for i := range c.NumParents() {
		parent, err := c.Parent(i)
		if err == nil {
			w.meet(parent, before)
		} else if !before {
			w.shallow = true
		}
	}
}

// changes tells whether a commit has other content in a directory than the commit before it.
func changes(c *object.Commit, path string) bool {
	if path == "" {
		return true
	}
	before, err := c.Parent(0)
	return err != nil || contentOf(c, path) != contentOf(before, path)
}

func contentOf(c *object.Commit, path string) plumbing.Hash {
	tree, err := c.Tree()
	if err != nil {
		return plumbing.ZeroHash
	}
	entry, err := tree.FindEntry(path)
	if err != nil {
		return plumbing.ZeroHash
	}
	return entry.Hash
}
