// Package chart renders and checks the chart of deploy/chart with Helm's own library.
package chart

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the renderings as they are")

const dir = "../../deploy/chart"

// values reads values of testdata, or of a text.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	var read map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &read))
	return read
}

// render renders the chart for an installation, as `helm template` does.
func render(given map[string]any) (map[string]string, error) {
	c, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	all, err := util.ToRenderValues(c, given, common.ReleaseOptions{Name: "converge", Namespace: "releases", Revision: 1, IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// documents are the objects of a rendering, in the order of their templates.
func documents(t *testing.T, files map[string]string) (all []string) {
	t.Helper()
	for _, name := range []string{"account", "workers", "rights", "serve", "jobs", "protection", "monitor", "extra"} {
		text, rendered := files["converge/templates/"+name+".yaml"]
		require.True(t, rendered, name)
		for one := range strings.SplitSeq("\n"+text, "\n---") {
			if one = strings.TrimSpace(one); one != "" {
				all = append(all, one)
			}
		}
	}
	require.Len(t, files, 9, "a template that this test does not know")
	return all
}

// The chart renders what testdata has, with the least values and with all of them.
func TestRenderings(t *testing.T) {
	for _, name := range []string{"least", "all"} {
		t.Run(name, func(t *testing.T) {
			given, err := os.ReadFile(filepath.Join("testdata", name+".values.yaml"))
			require.NoError(t, err)
			files, err := render(values(t, string(given)))
			require.NoError(t, err)
			rendered := strings.Join(documents(t, files), "\n---\n") + "\n"
			path := filepath.Join("testdata", name+".yaml")
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(rendered), 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), rendered, "to keep it: go test ./tests/chart -update")
			for _, m := range lint.RunAll(dir, values(t, string(given)), "releases").Messages {
				require.Less(t, m.Severity, support.WarningSev, "%s: %v", m.Path, m.Err)
			}
		})
	}
}

// Values that are missing, misspelled or of another kind are refused, and the message says which.
func TestRefusedValues(t *testing.T) {
	const least = "image: {tag: v1}\ntemporal: {address: \"temporal:7233\"}\nstore: {url: \"s3://releases\"}\n"
	for text, want := range map[string]string{
		"image: {tag: v1}": "temporal.address is required: HOST:PORT of your Temporal",
		"image: {tag: v1}\ntemporal: {address: \"temporal:7233\"}":        "store.url is required: a bucket, such as s3://releases?region=eu-west-1",
		"temporal: {address: temporal}":                                   "at '/temporal/address'",
		strings.Replace(least, "image: {tag: v1}\n", "", 1):               "image.tag or image.digest is required",
		least + "worker: {replica: 3}":                                    "additional properties 'replica' not allowed",
		least + "rbac: {scope: everywhere}":                               "at '/rbac/scope'",
		least + "rbac: {scope: namespaces}":                               "rbac.namespaces is required",
		least + "serve: {enabled: true, replicas: 1}":                     "serve.baseURL is required",
		least + "serve: {enabled: true, baseURL: \"https://c.shop.dev\"}": "serve.sessionKeysSecret.name is required for more than one replica",
		least + "jobs: {backup: {enabled: true}}":                         "jobs.backup.claim is required",
		strings.Replace(least, "tag: v1", "digest: abc", 1):               "at '/image/digest'",
		strings.Replace(least, "tag: v1", "digest: sha256:"+strings.Repeat("a", 64), 1) + "worker: {deployment: converge}": "image.tag is required with worker.deployment",
		least + "remoteWorkers: {Edge: {}}":                     "Edge",
		least + "remoteWorkers: {edge: {deployment: converge}}": "additional properties 'deployment' not allowed",
	} {
		_, err := render(values(t, text))
		require.ErrorContains(t, err, want, text)
	}
}

// Every pod is one that a namespace with the standard "restricted" accepts, has a limit of memory that Go knows, and names no Secret that
// the chart would have to know the content of.
func TestPodsAreRestricted(t *testing.T) {
	given, err := os.ReadFile("testdata/all.values.yaml")
	require.NoError(t, err)
	files, err := render(values(t, string(given)))
	require.NoError(t, err)
	deployments := 0
	for _, one := range documents(t, files) {
		require.NotContains(t, one, "kind: Secret\n")
		var d appsv1.Deployment
		require.NoError(t, yaml.Unmarshal([]byte(one), &d))
		if d.Kind != "Deployment" || d.Labels["app.kubernetes.io/name"] != "converge" {
			continue
		}
		deployments++
		pod := d.Spec.Template.Spec
		require.True(t, *pod.SecurityContext.RunAsNonRoot)
		require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
		c := pod.Containers[0]
		require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
		require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
		limit := ""
		for _, e := range c.Env {
			if e.Name == "GOMEMLIMIT" {
				limit = e.Value
			}
		}
		require.NotEmpty(t, limit, d.Name)
	}
	require.Equal(t, 3, deployments)
}

// What workers may do is what deploy/kubernetes grants them.
func TestRightsAreThoseOfTheManifests(t *testing.T) {
	for file, manifest := range map[string]string{"cluster": "cluster-wide", "namespaced": "namespaced", "jobs": "jobs"} {
		text, err := os.ReadFile(filepath.Join(dir, "files", file+".yaml"))
		require.NoError(t, err)
		var rules []rbacv1.PolicyRule
		require.NoError(t, yaml.UnmarshalStrict(text, &rules))
		text, err = os.ReadFile(filepath.Join("../../deploy/kubernetes", manifest+".yaml"))
		require.NoError(t, err)
		var role rbacv1.ClusterRole
		first, _, _ := strings.Cut(string(text), "\n---\n")
		require.NoError(t, yaml.Unmarshal([]byte(first), &role))
		require.NotEmpty(t, rules)
		require.Equal(t, role.Rules, rules, file)
	}
}

// The least values are those of the documentation.
func TestLeastValuesAreDocumented(t *testing.T) {
	given, err := os.ReadFile("testdata/least.values.yaml")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/install.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "```yaml\n"+string(given)+"```\n")
}
