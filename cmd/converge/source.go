package main

import (
	"context"
	"fmt"

	"github.com/converge-engine/converge/client/origin"
	"github.com/converge-engine/converge/client/publish"
)

// sourceUsage describes the syntax of a source, for the help of all verbs with one.
const sourceUsage = `SOURCE is a directory, git::URL//PATH?ref=REF (https, ssh or file),
oci://HOST/REPOSITORY:TAG//PATH?key=FILE, or exec::COMMAND, whose output is the
configuration.`

// allowCommandsUsage is the usage of a flag that only the user sets: a configuration from elsewhere must not run commands without
// permission.
const allowCommandsUsage = "run the generators and validators that the configuration declares, on this machine"

// fetch fetches the newest state of a source. It queries the last published commit only if the server is reachable.
func (f *Factory) fetch(ctx context.Context, source string) (origin.Tree, error) {
	s, err := origin.Parse(source)
	if err != nil {
		return origin.Tree{}, err
	}
	return s.Fetch(ctx, func(dir string) string {
		api, err := f.client(ctx)
		if err != nil {
			return "" // reported when the server is needed
		}
		c, _ := api.Temporal()
		return publish.Since(ctx, c)(dir)
	})
}

// storeFor is storeOf for a tree. A fetched tree cannot contain a store.
func (f *Factory) storeFor(ctx context.Context, tree origin.Tree, flag string) (string, error) {
	store, err := f.storeOf(ctx, publish.ApplicationIn(tree.Dir), tree.Dir, flag)
	if err == nil && tree.Root != "" && store == storeIn(tree.Dir) {
		return "", fmt.Errorf("no application uses a store yet; name one: --store URL, or CONVERGE_STORE [no-store]")
	}
	return store, err
}
