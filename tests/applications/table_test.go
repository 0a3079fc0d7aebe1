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

var rows = []row{
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
