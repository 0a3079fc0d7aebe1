package config

import (
	"cmp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// RuntimeKubernetes is a connection to a cluster. An empty one uses the worker's environment: KUBECONFIG, ~/.kube/config, or the service
// account of its pod.
type RuntimeKubernetes struct {
	// The context in the kubeconfig; by default its current context.
	Context string `json:"context,omitempty"`
	// The path of a kubeconfig, relative to the directory of this file.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// The Kubernetes version for which charts are rendered; by default v1.36.0. Compilation does not contact a cluster.
	KubeVersion KubeVersion `json:"kubeVersion,omitempty" jsonschema:"default=v1.36.0"`
	// APIs that charts find in the cluster in addition to the built-in ones: GROUP/VERSION or GROUP/VERSION/KIND.
	APIVersions []ClusterAPI `json:"apiVersions,omitempty"`
	// How long a pod of the new version may fail to start before its object counts as failed.
	FailAfter Duration `json:"failAfter,omitempty" jsonschema:"default=1m"`
	// Health rules for kinds of objects with their own status formats.
	Health []KindHealth `json:"health,omitempty"`
	// The timeout of an apply, including the time that it waits between waves.
	ApplyTimeout Duration `json:"applyTimeout,omitempty" jsonschema:"default=10m"`
	// Fields with another owner, in the objects of all services.
	IgnoreDifferences []IgnoredDifference `json:"ignoreDifferences,omitempty"`
	Pace
}

// KindHealth defines the health of objects of a kind, by CEL expressions on their fields: metadata, spec, status, data, apiVersion,
// kind, and object, the whole. The first of suspended, inProgress, failed and current that is true counts. If none is true, the object
// is in progress.
type KindHealth struct {
	// The API group; by default the core group.
	Group string `json:"group,omitempty"`
	// The kind.
	Kind string `json:"kind"`
	// Whether it is as declared, and works.
	Current string `json:"current"`
	// Whether it has failed.
	Failed string `json:"failed,omitempty"`
	// Whether it is in progress.
	InProgress string `json:"inProgress,omitempty"`
	// Whether it waits for a person.
	Suspended string `json:"suspended,omitempty"`
}

// ServiceKubernetes declares the objects of a service on a Kubernetes runtime. Its sources are combined. The objects are the payload: a
// change of an object changes the running workload.
type ServiceKubernetes struct {
	// Files, directories or globs of manifests: paths relative to this file, at or below its directory.
	Manifests []string `json:"manifests,omitempty"`
	// A directory with a kustomization, relative to this file.
	Kustomize string `json:"kustomize,omitempty"`
	// A Helm chart, rendered during compilation.
	Helm *ServiceHelm `json:"helm,omitempty"`
	// Patches of the objects from the sources, applied in this order, as in a kustomization. They avoid a copy of a chart to change one
	// field.
	Patches []ObjectPatch `json:"patches,omitempty"`
	// Whether objects that are no longer declared are removed. Otherwise they stay and are reported as orphaned.
	Prune *bool `json:"prune,omitempty" jsonschema:"default=false"`
	// Whether existing objects with no owner, or with another tool as their owner, are adopted. Otherwise they are rejected.
	Adopt *bool `json:"adopt,omitempty" jsonschema:"default=false"`
	// Whether the namespace of the release channel is created if it does not exist, with which labels and annotations. It is never
	// removed, and may be shared.
	CreateNamespace *CreateNamespace `json:"createNamespace,omitempty"`
	// Whether PersistentVolumeClaims and their data are removed like other objects: when they are pruned, and when the service or its
	// release channel is removed. By default they are kept.
	RemoveClaims *bool `json:"removeClaims,omitempty" jsonschema:"default=false"`
	// What happens to undeclared additions to the pod template of a workload: a container, a volume, hostNetwork. They are reported, or
	// removed like drift.
	Foreign ForeignRule `json:"foreign,omitempty" jsonschema:"default=report"`
	// The tool whose annotations have the same meaning here as there: hooks, waves, options. Others are reported by validate.
	Annotations AnnotationTool `json:"annotations,omitempty"`
	// Fields with another owner.
	IgnoreDifferences []IgnoredDifference `json:"ignoreDifferences,omitempty"`
}

// ObjectPatch changes objects, like an entry of "patches" in a kustomization.
type ObjectPatch struct {
	// The target objects; without it, the object that a strategic merge patch names itself.
	Target *PatchTarget `json:"target,omitempty"`
	// A strategic merge patch, or a list of JSON patch operations (RFC 6902), as text.
	Patch string `json:"patch,omitempty"`
	// A file with the patch, relative to this file.
	Path string `json:"path,omitempty"`
}

// PatchTarget selects objects that match all conditions. Texts are regular expressions that must match the whole value.
type PatchTarget struct {
	// The API group; empty matches all. The same applies to the other fields.
	Group     string `json:"group,omitempty"`
	Version   string `json:"version,omitempty"`
	Kind      string `json:"kind,omitempty"`
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Labels of objects, in the format of kubectl -l: app=web,tier!=back.
	LabelSelector string `json:"labelSelector,omitempty"`
	// Annotations of objects, in the same format.
	AnnotationSelector string `json:"annotationSelector,omitempty"`
}

// ServiceHelm is a Helm chart and its input. It is rendered during compilation, without a cluster. Values may use ${{ }}; except for the
// version, the configuration fixes the names that they use.
type ServiceHelm struct {
	// A directory or .tgz file, relative to this file; the name of a chart in the repository, or its oci:// address in a registry,
	// either with a version; or the https:// address of a .tgz file, which needs its digest.
	Chart string `json:"chart,omitempty"`
	// The address of the repository that has the chart: https:// or oci://.
	Repository string `json:"repository,omitempty"`
	// The version of the chart in its repository or registry, or a version range; converge.lock contains the resolved version.
	Version string `json:"version,omitempty"`
	// The SHA-256 of the .tgz file.
	Digest ChartDigest `json:"digest,omitempty"`
	// Values, which override those of the files and of the chart.
	Values *HelmValues `json:"values,omitempty"`
	// Files of values, relative to this file; later files override earlier ones.
	ValuesFiles []string `json:"valuesFiles,omitempty"`
	// The name of the Helm release for templates; by default the service's name.
	ReleaseName Name `json:"releaseName,omitempty"`
	// Whether the CustomResourceDefinitions in the chart's crds/ are included.
	IncludeCRDs *bool `json:"includeCRDs,omitempty" jsonschema:"default=true"`
}

// InheritFrom returns the chart of a later layer: another chart, or another version of the same chart.
func (h *ServiceHelm) InheritFrom(base *ServiceHelm) ServiceHelm {
	named := *h
	if h.Chart == "" && base != nil {
		named.Chart, named.Repository, named.Digest = base.Chart, cmp.Or(h.Repository, base.Repository), base.Digest
		named.Version = cmp.Or(h.Version, base.Version)
	}
	return named
}

// Locked reports whether the chart must be in converge.lock.
func (h *ServiceHelm) Locked() bool {
	return h.Repository != "" || strings.HasPrefix(h.Chart, "oci://")
}

// KubeVersion is a Kubernetes version.
type KubeVersion string

const kubeVersionPattern = `^v?1\.[0-9]{1,3}(\.[0-9]{1,3})?([-+][0-9A-Za-z.+-]{1,40})?$`

var kubeVersionRE = strict.Pattern(kubeVersionPattern)

// Pattern returns the pattern for the JSON schema.
func (KubeVersion) Pattern() string { return kubeVersionPattern }

// Check rejects invalid versions.
func (v KubeVersion) Check() *Fault {
	return strict.FaultUnless(kubeVersionRE().MatchString(string(v)), "bad-value", "invalid Kubernetes version %q", string(v), "a version such as v1.34.2, as kubectl version prints it")
}

// ClusterAPI is an API of a cluster.
type ClusterAPI string

const clusterAPIPattern = `^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/v[0-9][a-z0-9]{0,20}(/[A-Z][A-Za-z0-9]{0,62})?$`

var clusterAPIRE = strict.Pattern(clusterAPIPattern)

// Pattern returns the pattern for the JSON schema.
func (ClusterAPI) Pattern() string { return clusterAPIPattern }

// Check rejects invalid APIs.
func (v ClusterAPI) Check() *Fault {
	return strict.FaultUnless(clusterAPIRE().MatchString(string(v)), "bad-value", "invalid API %q", string(v), "GROUP/VERSION or GROUP/VERSION/KIND, such as monitoring.coreos.com/v1/ServiceMonitor")
}

// Values is a mapping with any content.
type Values struct{ V map[string]any }

// Wanted describes the allowed values.
func (Values) Wanted() string { return "a mapping" }

// DecodeStrict decodes the mapping.
func (v *Values) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	if node.Kind != yaml.MappingNode {
		d.Fail(path, node, Fault{Code: "wrong-type", Message: "this is " + strict.Describe(node), Expected: v.Wanted()})
		return
	}
	v.V, _ = d.Any(path, node).(map[string]any)
}

// HelmValues are values of a chart, which are read as Helm reads them.
type HelmValues struct{ V map[string]any }

// Wanted describes the allowed values.
func (HelmValues) Wanted() string { return "a mapping" }

// DecodeStrict decodes the mapping.
func (v *HelmValues) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	if node.Kind != yaml.MappingNode {
		d.Fail(path, node, Fault{Code: "wrong-type", Message: "this is " + strict.Describe(node), Expected: v.Wanted()})
		return
	}
	v.V, _ = d.HelmValues(path, node).(map[string]any)
}

// ChartDigest is sha256: and 64 hexadecimal digits.
type ChartDigest string

const chartDigestPattern = `^sha256:[0-9a-f]{64}$`

var chartDigestRE = strict.Pattern(chartDigestPattern)

// Pattern returns the pattern for the JSON schema.
func (ChartDigest) Pattern() string { return chartDigestPattern }

// Check rejects invalid digests.
func (d ChartDigest) Check() *Fault {
	if chartDigestRE().MatchString(string(d)) {
		return nil
	}
	return &Fault{Code: "bad-value", Message: "invalid digest", Expected: "sha256: and 64 hexadecimal digits"}
}
