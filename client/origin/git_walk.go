package origin

import (
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// walk goes through a history from the newest commit to older ones, from two starting points at once, and finds the commits that only the
// first one has.
type walk struct {
	inSecond map[plumbing.Hash]bool // per visited commit: it is in the history of the second one too
	next     []*object.Commit
	pending  int              // how many of next are not known to be in the second history
	found    []*object.Commit // that were not known to be in the second history when they were passed
	shallow  bool             // a found commit has parents that are not available
}

// visit visits a commit. If it is found later to be in the second history, its ancestors are visited again.
func (w *walk) visit(c *object.Commit, before bool) {
	was, visited := w.inSecond[c.Hash]
	switch {
	case visited && (was || !before):
		return
	case visited:
		w.pending -= w.unqueue(c.Hash)
	}
	w.inSecond[c.Hash] = before
	w.next = append(w.next, c)
	if !before {
		w.pending++
	}
}

// unqueue removes a commit from next, and returns how many were removed.
func (w *walk) unqueue(hash plumbing.Hash) int {
	for i, c := range w.next {
		if c.Hash == hash {
			w.next = append(w.next[:i], w.next[i+1:]...)
			return 1
		}
	}
	return 0
}

// step passes the newest commit in next.
func (w *walk) step() {
	newest := 0
	for i, c := range w.next {
		if c.Committer.When.After(w.next[newest].Committer.When) {
			newest = i
		}
	}
	c := w.next[newest]
	w.next = append(w.next[:newest], w.next[newest+1:]...)
	before := w.inSecond[c.Hash]
	if !before {
		w.pending--
		w.found = append(w.found, c)
	}
	for i := range c.NumParents() {
		parent, err := c.Parent(i)
		if err == nil {
			w.visit(parent, before)
		} else if !before {
			w.shallow = true
		}
	}
}

// changes reports whether a commit has other content in a directory than its first parent.
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
