package publish

import (
	"context"
	"slices"

	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/origin"
)

// Of has a tree published, and what led to it recorded.
func (o Options) Of(tree origin.Tree) Options {
	o.Dir, o.Root, o.Origin, o.Commits, o.Causes = tree.Dir, tree.Root, tree.Origin, tree.Commits, slices.Concat(o.Causes, tree.Causes)
	return o
}

// Since asks which commit was published last of the application of a directory. Where nobody answers none is known.
func Since(ctx context.Context, c client.Client) origin.Since {
	return func(dir string) string {
		name := ApplicationIn(dir)
		if name == "" {
			return ""
		}
		before, _ := Status(ctx, c, name)
		return newestOf(before).Origin.Commit
	}
}

// writeCommits finds out where the configuration comes from, if nobody said it the directory, and keeps which commits are new in it.
func (p *publication) writeCommits(ctx context.Context) error {
	p.origin = p.options.Origin
	if p.origin.Path == "" {
		p.origin = origin.Of(ctx, p.options.Dir)
	}
	c := p.options.Commits
	if c == nil && p.options.Root == "" && p.origin.Commit != "" {
		c = origin.CommitsIn(p.options.Dir, p.origin.Commit, newestOf(p.before).Origin.Commit)
	}
	if c == nil {
		return nil
	}
	var err error
	p.commits, err = p.store.PutCommits(ctx, *c)
	return err
}
