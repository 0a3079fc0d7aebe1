package config

import (
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// RuntimeKubernetes is a connection to a cluster. An empty one is what the worker's own environment
// says: KUBECONFIG, ~/.kube/config, or the service account of the pod that it runs in.
type RuntimeKubernetes struct {
	// The context in the kubeconfig; its current one when not given.
	Context string `json:"context,omitempty"`
	// The path of a kubeconfig, relative to the directory of this file.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// How long a pod of the new version may keep failing to start before its object has failed.
	FailAfter Duration `json:"failAfter,omitempty" jsonschema:"default=1m"`
	// How long an apply may take, the waits between its waves included.
	ApplyTimeout Duration `json:"applyTimeout,omitempty" jsonschema:"default=10m"`
	Pace
}

// ServiceKubernetes says which objects make up a service on a Kubernetes runtime. Its sources add
// up. The objects are the payload: a change of one is a change of what runs.
type ServiceKubernetes struct {
	// Files, directories or globs of manifests: paths relative to this file, at or below its directory.
	Manifests []string `json:"manifests,omitempty"`
	// A directory with a kustomization, relative to this file.
	Kustomize string `json:"kustomize,omitempty"`
	// A Helm chart, rendered when compiling.
	Helm *ServiceHelm `json:"helm,omitempty"`
	// Whether objects that are no longer declared are removed, instead of left in place and reported
	// as orphaned.
	Prune *bool `json:"prune,omitempty" jsonschema:"default=false"`
	// Whether objects that exist already and belong to nobody, or to another tool, are taken over
	// instead of refused.
	Adopt *bool `json:"adopt,omitempty" jsonschema:"default=false"`
	// Whether the namespace that the release channel names is made when it is not there. It is never
	// removed, and may be shared.
	CreateNamespace *bool `json:"createNamespace,omitempty" jsonschema:"default=false"`
}

// ServiceHelm is a Helm chart and what it is rendered with. It is rendered when compiling, without a
// cluster. Values may use ${{ }}; but for the version, what they name is fixed by the configuration.
type ServiceHelm struct {
	// A directory or .tgz file, relative to this file, or the https:// address of a .tgz file, which
	// needs its digest.
	Chart string `json:"chart,omitempty"`
	// The SHA-256 of the .tgz file.
	Digest ChartDigest `json:"digest,omitempty"`
	// Values, over those of the files and of the chart.
	Values *Values `json:"values,omitempty"`
	// Files of values, relative to this file; later ones win.
	ValuesFiles []string `json:"valuesFiles,omitempty"`
	// The name of the Helm release that templates see; the service's name when not given.
	ReleaseName Name `json:"releaseName,omitempty"`
	// Whether the CustomResourceDefinitions that the chart brings in crds/ are part of it.
	IncludeCRDs *bool `json:"includeCRDs,omitempty" jsonschema:"default=true"`
}

// Values are what a chart is rendered with: a mapping of anything.
type Values struct{ V map[string]any }

// Wanted words what may stand in the file.
func (Values) Wanted() string { return "a mapping" }

// DecodeStrict reads the mapping.
func (v *Values) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	if node.Kind != yaml.MappingNode {
		d.Fail(path, node, Fault{Code: "wrong-type", Message: "this is " + strict.Describe(node), Expected: v.Wanted()})
		return
	}
	v.V, _ = d.Any(path, node).(map[string]any)
}

// ChartDigest is sha256: and 64 hexadecimal digits.
type ChartDigest string

const chartDigestPattern = `^sha256:[0-9a-f]{64}$`

var chartDigestRE = regexp.MustCompile(chartDigestPattern)

// Pattern is for the JSON schema.
func (ChartDigest) Pattern() string { return chartDigestPattern }

// Check refuses what is no digest.
func (d ChartDigest) Check() *Fault {
	if chartDigestRE.MatchString(string(d)) {
		return nil
	}
	return &Fault{Code: "bad-value", Message: "this is no digest", Expected: "sha256: and 64 hexadecimal digits"}
}
