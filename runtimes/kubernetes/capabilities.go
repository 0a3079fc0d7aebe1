package kubernetes

import (
	"context"

	"github.com/converge-engine/converge/runtimes"
)

var _ runtimes.Capturer = (*Runtime)(nil)

// Capabilities implements runtimes.Capturer by discovery, as Helm does. An API service that does not answer is an error, and not as
// if there were no such APIs.
func (r *Runtime) Capabilities(ctx context.Context) (string, map[string][]string, error) {
	connected, err := r.cluster.connect(ctx)
	if err != nil {
		return "", nil, err
	}
	server := connected.typed.Discovery().WithLegacy()
	version, err := server.ServerVersion()
	if err != nil {
		return "", nil, explain(ctx, "ask for the version of the cluster", err)
	}
	groups, lists, err := server.ServerGroupsAndResources()
	if err != nil {
		return "", nil, explain(ctx, "ask for the APIs of the cluster", err)
	}
	apis := map[string][]string{}
	for _, group := range groups {
		for _, served := range group.Versions {
			apis[served.GroupVersion] = []string{}
		}
	}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			apis[list.GroupVersion] = append(apis[list.GroupVersion], resource.Kind)
		}
	}
	return version.GitVersion, apis, ctx.Err()
}
