package publish

import (
	"context"
	"slices"

	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/origin"
)

// Of sets the options to publish a tree, and to record its causes.
func (o Options) Of(tree origin.Tree) Options {
	o.Dir, o.Root, o.Origin, o.Commits, o.Causes = tree.Dir, tree.Root, tree.Origin, tree.Commits, slices.Concat(o.Causes, tree.Causes)
	return o
}

// Since queries which commit of the application in a directory was published last. Without an answer it is empty.
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

// writeCommits determines the origin of the configuration, by default from the directory, and stores the new commits.
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
