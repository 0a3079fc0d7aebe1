package main

import (
	"context"
	"fmt"

	"github.com/converge-engine/converge/client/origin"
	"github.com/converge-engine/converge/client/publish"
)

// sourceUsage says how a source is written, for the help of all that take one.
const sourceUsage = `SOURCE is a directory, git::URL//PATH?ref=REF (https, ssh or file),
oci://HOST/REPOSITORY:TAG//PATH?key=FILE, or exec::COMMAND, whose output is the
configuration.`

// allowCommandsUsage is of a flag that nothing but the person sets: a configuration from elsewhere runs nothing by itself.
const allowCommandsUsage = "run the generators and validators that the configuration declares, on this machine"

// fetch brings the newest state of a source here. What was published before is asked only where it can be.
func (f *Factory) fetch(ctx context.Context, source string) (origin.Tree, error) {
	s, err := origin.Parse(source)
	if err != nil {
		return origin.Tree{}, err
	}
	return s.Fetch(ctx, func(dir string) string {
		api, err := f.client(ctx)
		if err != nil {
			return "" // it is said when the server is needed
		}
		c, _ := api.Temporal()
		return publish.Since(ctx, c)(dir)
	})
}

// storeFor is storeOf for a tree. One that was fetched is no place for a store.
func (f *Factory) storeFor(ctx context.Context, tree origin.Tree, flag string) (string, error) {
	store, err := f.storeOf(ctx, publish.ApplicationIn(tree.Dir), tree.Dir, flag)
	if err == nil && tree.Root != "" && store == storeIn(tree.Dir) {
		return "", fmt.Errorf("no application has a store yet that this one could lie in; name one: --store URL, or CONVERGE_STORE [no-store]")
	}
	return store, err
}
