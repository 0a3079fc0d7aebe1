package config

import (
	"cmp"
	"regexp"
	"strings"

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
	// The version of Kubernetes that charts are rendered for; v1.36.0 when not given. No cluster is asked when compiling.
	KubeVersion KubeVersion `json:"kubeVersion,omitempty" jsonschema:"default=v1.36.0"`
	// APIs that charts are to find in the cluster, beside those that come with Kubernetes: GROUP/VERSION or GROUP/VERSION/KIND.
	APIVersions []ClusterAPI `json:"apiVersions,omitempty"`
	// How long a pod of the new version may keep failing to start before its object has failed.
	FailAfter Duration `json:"failAfter,omitempty" jsonschema:"default=1m"`
	// How objects of kinds are whose status says it in a way of its own.
	Health []KindHealth `json:"health,omitempty"`
	// How long an apply may take, the waits between its waves included.
	ApplyTimeout Duration `json:"applyTimeout,omitempty" jsonschema:"default=10m"`
	// Fields that are somebody else's, in the objects of all services.
	IgnoreDifferences []IgnoredDifference `json:"ignoreDifferences,omitempty"`
	Pace
}

// KindHealth says how objects of a kind are, by expressions in CEL about their fields: metadata, spec, status, data, apiVersion, kind,
// and object, the whole. The first of suspended, inProgress, failed and current that is true counts; where none is, the object
// is in progress.
type KindHealth struct {
	// The API group; without it, that of the core.
	Group string `json:"group,omitempty"`
	// The kind.
	Kind string `json:"kind"`
	// Whether it is as declared, and works.
	Current string `json:"current"`
	// Whether it has failed.
	Failed string `json:"failed,omitempty"`
	// Whether it is on its way.
	InProgress string `json:"inProgress,omitempty"`
	// Whether it waits for a person.
	Suspended string `json:"suspended,omitempty"`
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
	// What is different in the objects that the sources make, in this order, as a kustomization has it: a chart need not be copied for
	// one field.
	Patches []ObjectPatch `json:"patches,omitempty"`
	// Whether objects that are no longer declared are removed, instead of left in place and reported
	// as orphaned.
	Prune *bool `json:"prune,omitempty" jsonschema:"default=false"`
	// Whether objects that exist already and belong to nobody, or to another tool, are taken over
	// instead of refused.
	Adopt *bool `json:"adopt,omitempty" jsonschema:"default=false"`
	// Whether the namespace that the release channel names is made when it is not there, and the labels and annotations that
	// it is made with. It is never removed, and may be shared.
	CreateNamespace *CreateNamespace `json:"createNamespace,omitempty"`
	// Whether PersistentVolumeClaims, and the data in them, go as everything else does: when they are pruned, and when the
	// service or its release channel is taken down. They are kept otherwise.
	RemoveClaims *bool `json:"removeClaims,omitempty" jsonschema:"default=false"`
	// What becomes of what somebody else adds to the pod template of a workload, and nobody declares: a container, a volume,
	// hostNetwork. It is reported, or removed as drift is.
	Foreign ForeignRule `json:"foreign,omitempty" jsonschema:"default=report"`
	// Fields that are somebody else's.
	IgnoreDifferences []IgnoredDifference `json:"ignoreDifferences,omitempty"`
}

// ObjectPatch changes objects, as an entry of "patches" in a kustomization does.
type ObjectPatch struct {
	// Which objects it is for; without it, the one that a strategic merge patch names itself.
	Target *PatchTarget `json:"target,omitempty"`
	// A strategic merge patch, or a list of JSON patch operations (RFC 6902), as text.
	Patch string `json:"patch,omitempty"`
	// A file with the patch, relative to this file.
	Path string `json:"path,omitempty"`
}

// PatchTarget selects objects: all conditions hold. Texts are regular expressions for the whole of what they match.
type PatchTarget struct {
	// API group; empty matches all, and so on.
	Group     string `json:"group,omitempty"`
	Version   string `json:"version,omitempty"`
	Kind      string `json:"kind,omitempty"`
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Labels of objects, as kubectl -l takes them: app=web,tier!=back.
	LabelSelector string `json:"labelSelector,omitempty"`
	// Annotations of objects, likewise.
	AnnotationSelector string `json:"annotationSelector,omitempty"`
}

// ServiceHelm is a Helm chart and what it is rendered with. It is rendered when compiling, without a
// cluster. Values may use ${{ }}; but for the version, what they name is fixed by the configuration.
type ServiceHelm struct {
	// A directory or .tgz file, relative to this file; the name of a chart in the repository, or its oci:// address in a registry,
	// either with a version; or the https:// address of a .tgz file, which needs its digest.
	Chart string `json:"chart,omitempty"`
	// The address of the repository that has the chart: https:// or oci://.
	Repository string `json:"repository,omitempty"`
	// The version of the chart in its repository or registry, or a range of versions; converge.lock says which one it is.
	Version string `json:"version,omitempty"`
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

// Over is the chart that a later layer means: another one, or another version of the same.
func (h *ServiceHelm) Over(before *ServiceHelm) ServiceHelm {
	named := *h
	if h.Chart == "" && before != nil {
		named.Chart, named.Repository, named.Digest = before.Chart, cmp.Or(h.Repository, before.Repository), before.Digest
		named.Version = cmp.Or(h.Version, before.Version)
	}
	return named
}

// Locked reports whether the chart is one of converge.lock.
func (h *ServiceHelm) Locked() bool {
	return h.Repository != "" || strings.HasPrefix(h.Chart, "oci://")
}

// KubeVersion is a version of Kubernetes.
type KubeVersion string

const kubeVersionPattern = `^v?1\.[0-9]{1,3}(\.[0-9]{1,3})?([-+][0-9A-Za-z.+-]{1,40})?$`

var kubeVersionRE = regexp.MustCompile(kubeVersionPattern)

// Pattern is for the JSON schema.
func (KubeVersion) Pattern() string { return kubeVersionPattern }

// Check refuses what is no version.
func (v KubeVersion) Check() *Fault {
	return strict.Unless(kubeVersionRE.MatchString(string(v)), "bad-value", "%q is no version of Kubernetes", string(v), "a version such as v1.34.2, as kubectl version prints it")
}

// ClusterAPI is an API of a cluster.
type ClusterAPI string

const clusterAPIPattern = `^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/v[0-9][a-z0-9]{0,20}(/[A-Z][A-Za-z0-9]{0,62})?$`

var clusterAPIRE = regexp.MustCompile(clusterAPIPattern)

// Pattern is for the JSON schema.
func (ClusterAPI) Pattern() string { return clusterAPIPattern }

// Check refuses what is none.
func (v ClusterAPI) Check() *Fault {
	return strict.Unless(clusterAPIRE.MatchString(string(v)), "bad-value", "%q is no API", string(v), "GROUP/VERSION or GROUP/VERSION/KIND, such as monitoring.coreos.com/v1/ServiceMonitor")
}

// Values are a mapping of anything.
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
