package publish

import (
	"context"
	"slices"

	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/origin"
)

// Of has a tree published, and what led to it recorded.
func (o Options) Of(tree origin.Tree) Options {
	o.Dir, o.Root, o.Origin, o.Causes = tree.Dir, tree.Root, tree.Origin, slices.Concat(o.Causes, tree.Causes)
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
