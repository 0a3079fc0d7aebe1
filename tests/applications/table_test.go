package applications_test

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/kubetest/public"
)

// row is an application of the suite.
type row struct {
	// name is that of its sets (public.Applications), and shown what the documentation calls it.
	name, shown string
	// source is YAML of the service's kubernetes field. DIR is the directory of a version.
	source string
	// kind is the source as the documentation names it.
	kind string
	// namespace is that of the channel.
	namespace string
	// options are more YAML of the service, each option on a line. why names another thing that Converge needs, such as a value of a chart.
	options []string
	why     string
	// objects is YAML of what the pods need and the application makes at runtime: no program of it runs here.
	objects string
	// edited is the object that is edited by hand, of one of the types in edits.
	edited string
	// stay are the objects that a deletion leaves, such as a Namespace.
	stay []string
}

// secrets are Secrets with any content.
func secrets(names ...string) string {
	var all strings.Builder
	for _, name := range names {
		fmt.Fprintf(&all, "---\n{apiVersion: v1, kind: Secret, metadata: {name: %s}, stringData: {auth: secret}}\n", name)
	}
	return all.String()
}

const ownNamespace = "createNamespace: true"

var rows = []row{
	{
		name: "argo-cd-install", shown: "Argo CD", source: "manifests: [DIR/install.yaml]", kind: "manifests", namespace: "argocd",
		options: []string{ownNamespace}, edited: "Deployment/argocd-server", objects: secrets("argocd-redis"),
	},
	{
		name: "argo-rollouts-install", shown: "Argo Rollouts", source: "manifests: [DIR/install.yaml]", kind: "manifests", namespace: "argo-rollouts",
		options: []string{ownNamespace}, edited: "Deployment/argo-rollouts",
	},
	{
		name: "cert-manager", shown: "cert-manager", source: "helm: {chart: DIR.tgz, values: {crds: {enabled: true}}}",
		kind: "chart", namespace: "cert-manager", options: []string{ownNamespace}, edited: "Deployment/public-cert-manager",
		stay: []string{ // the chart keeps them: crds.keep
			"CustomResourceDefinition/certificaterequests.cert-manager.io", "CustomResourceDefinition/certificates.cert-manager.io",
			"CustomResourceDefinition/challenges.acme.cert-manager.io", "CustomResourceDefinition/clusterissuers.cert-manager.io",
			"CustomResourceDefinition/issuers.cert-manager.io", "CustomResourceDefinition/orders.acme.cert-manager.io",
		},
	},
	{
		name: "cilium", shown: "Cilium", source: "helm: {chart: DIR, values: {hubble: {tls: {auto: {method: cronJob}}}}}", kind: "chart", namespace: "kube-system",
		why: "the value `hubble.tls.auto.method: cronJob`, since a chart that makes certificates while it renders is refused", edited: "DaemonSet/cilium",
	},
	{
		name: "contour", shown: "Contour", source: "manifests: [DIR/contour.yaml]", kind: "manifests", namespace: "projectcontour", edited: "Deployment/contour",
		objects: secrets("contourcert", "envoycert"), stay: []string{"Namespace/projectcontour"},
	},
	{
		name: "external-dns", shown: "ExternalDNS", source: "kustomize: DIR", kind: "kustomization", namespace: "default", edited: "Deployment/external-dns",
	},
	{
		name: "gateway-api", shown: "Gateway API", source: "kustomize: DIR", kind: "kustomization", namespace: "default",
		edited: "CustomResourceDefinition/gateways.gateway.networking.k8s.io",
	},
	{
		name: "keda", shown: "KEDA", source: "kustomize: DIR/default", kind: "kustomization", namespace: "keda", edited: "Deployment/keda-operator",
		objects: secrets("kedaorg-certs"), stay: []string{"Namespace/keda"},
	},
	{
		name: "kro", shown: "kro", source: "helm: {chart: DIR}", kind: "chart", namespace: "kro-system", options: []string{ownNamespace}, edited: "Deployment/public-kro",
	},
	{
		name: "kuberay", shown: "KubeRay", source: "kustomize: DIR/default", kind: "kustomization", namespace: "default",
		edited: "Deployment/kuberay-operator",
	},
	{
		name: "kyverno", shown: "Kyverno", source: "manifests: [DIR/install-latest-testing.yaml]", kind: "manifests", namespace: "kyverno",
		edited: "Deployment/kyverno-admission-controller", stay: []string{"ConfigMap/kyverno", "Namespace/kyverno"},
	},
	{
		name: "metallb", shown: "MetalLB", source: "manifests: [DIR/metallb-native.yaml]", kind: "manifests", namespace: "metallb-system", edited: "DaemonSet/speaker",
		objects: secrets("memberlist"), stay: []string{"Namespace/metallb-system"},
	},
	{
		name: "metrics-server-overlays", shown: "metrics-server", source: "kustomize: DIR/overlays/release", kind: "kustomization", namespace: "kube-system",
		edited: "Deployment/metrics-server",
	},
	{
		name: "prometheus-operator", shown: "Prometheus Operator", source: "manifests: [DIR/bundle.yaml]", kind: "manifests", namespace: "default",
		edited: "Deployment/prometheus-operator",
	},
	{
		name: "sealed-secrets", shown: "Sealed Secrets", source: "helm: {chart: DIR}", kind: "chart", namespace: "kube-system", edited: "Deployment/public-sealed-secrets",
	},
	{
		name: "snapshot-controller", shown: "CSI snapshot-controller", source: "kustomize: DIR", kind: "kustomization", namespace: "kube-system",
		edited: "Deployment/snapshot-controller",
	},
	{
		name: "source-controller", shown: "Flux source-controller", source: "kustomize: DIR/default", kind: "kustomization", namespace: "source-system",
		edited: "Deployment/source-controller", stay: []string{"Namespace/source-system"},
	},
	{
		name: "vertical-pod-autoscaler", shown: "Vertical Pod Autoscaler", source: "kustomize: DIR", kind: "kustomization", namespace: "kube-system",
		edited: "Deployment/vpa-recommender", objects: secrets("vpa-tls-certs"),
	},
}

// The page lists exactly the applications of the suite, with their versions and options.
func TestPublicApplicationsAreThoseOfTheDocumentation(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/kubernetes.md")
	require.NoError(t, err)
	var table strings.Builder
	for _, r := range rows {
		needs := r.why
		for _, option := range r.options {
			needs += "`" + option + "`"
		}
		needs = cmp.Or(needs, "–")
		sets := r.sets(t)
		fmt.Fprintf(&table, "| %s | %s to %s | %s | `%s` | %s |\n", r.shown, sets[0].Version, sets[1].Version, r.kind, r.namespace, needs)
	}
	_, after, found := strings.Cut(string(page), "| application | from, to | source | namespace | option |\n| --- | --- | --- | --- | --- |\n")
	require.True(t, found, "the table of applications:\n%s", table.String())
	documented, _, _ := strings.Cut(after, "\n\n")
	require.Equal(t, table.String(), documented+"\n")
}

func (r row) sets(t *testing.T) [2]public.Set {
	t.Helper()
	short, long := public.Applications()
	for _, a := range append(short, long...) {
		if a.Name == r.name {
			return a.Sets
		}
	}
	t.Fatalf("no application %s", r.name)
	return [2]public.Set{}
}
