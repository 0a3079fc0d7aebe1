// Package sources turns a service's manifests, kustomization or chart into Kubernetes objects when
// compiling. It is hermetic: no cluster, no clock, no randomness, and no network but for a chart
// that is pinned by its digest.
//
// It reads only below the directory it is given. It imports nothing of ours.
package sources

import (
	_ "helm.sh/helm/v4/pkg/chart/common/util" // replaced by its use
	_ "helm.sh/helm/v4/pkg/chart/v2/loader"
	_ "helm.sh/helm/v4/pkg/engine"
	_ "sigs.k8s.io/kustomize/api/krusty"
	_ "sigs.k8s.io/kustomize/kyaml/filesys"
)
