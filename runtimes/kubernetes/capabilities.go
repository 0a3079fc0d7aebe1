package kubernetes

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/converge-engine/converge/runtimes"
)

var _ runtimes.Capturer = (*Runtime)(nil)

// Capabilities implements runtimes.Capturer by discovery, as Helm does. An API service that does not answer is an error; its APIs do
// not count as missing.
func (r *Runtime) Capabilities(ctx context.Context) (string, map[string][]string, error) {
	connected, err := r.cluster.connect(ctx)
	if err != nil {
		return "", nil, err
	}
	get := func(path string, into any) error {
		data, err := connected.typed.Get(ctx, path)
		if err != nil {
			return err
		}
		return json.Unmarshal(data, into)
	}
	var server version.Info
	if err := get("/version", &server); err != nil {
		return "", nil, explain(ctx, "read the version of the cluster", err)
	}
	apis := map[string][]string{}
	paths, err := groupVersionPaths(get)
	if err != nil {
		return "", nil, explain(ctx, "read the APIs of the cluster", err)
	}
	for groupVersion, path := range paths {
		var list metav1.APIResourceList
		if err := get(path, &list); err != nil {
			return "", nil, explain(ctx, "read the APIs of the cluster", err)
		}
		apis[groupVersion] = []string{}
		for _, resource := range list.APIResources {
			apis[groupVersion] = append(apis[groupVersion], resource.Kind)
		}
	}
	return server.GitVersion, apis, ctx.Err()
}

// groupVersionPaths are the paths of all versions of all groups: those of the core group are below /api, the others below /apis.
func groupVersionPaths(get func(path string, into any) error) (map[string]string, error) {
	var core metav1.APIVersions
	if err := get("/api", &core); err != nil {
		return nil, err
	}
	var groups metav1.APIGroupList
	if err := get("/apis", &groups); err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for _, v := range core.Versions {
		paths[v] = "/api/" + v
	}
	for _, group := range groups.Groups {
		for _, v := range group.Versions {
			paths[v.GroupVersion] = "/apis/" + v.GroupVersion
		}
	}
	return paths, nil
}
