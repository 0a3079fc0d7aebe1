// Package chart renders and checks the chart of deploy/chart with Helm's own library.
package chart

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the renderings as they are")

//go:generate go test -count=1 -run TestRenderings|TestPlainManifestsAreRendered . -update

const (
	dir       = "../../deploy/chart"
	manifests = "../../deploy/kubernetes"
)

// values reads values of testdata, or of a text.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	var read map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &read))
	return read
}

// render renders the chart for an installation in a namespace, as `helm template` does: the objects in the order of Helm.
func render(namespace string, given map[string]any) (objects []string, err error) {
	objects, _, err = renderWithNotes(namespace, given)
	return objects, err
}

// renderWithNotes returns what `helm install` prints, too.
func renderWithNotes(namespace string, given map[string]any) (objects []string, notes string, err error) {
	c, err := loader.LoadDir(dir)
	if err != nil {
		return nil, "", err
	}
	all, err := util.ToRenderValues(c, given, common.ReleaseOptions{Name: "converge", Namespace: namespace, Revision: 1, IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, "", err
	}
	const notesFile = "converge/templates/NOTES.txt"
	notes = files[notesFile]
	delete(files, notesFile)
	hooks, sorted, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err == nil && len(hooks) > 0 {
		err = fmt.Errorf("the chart has a hook: %s", hooks[0].Name)
	}
	for _, m := range sorted {
		objects = append(objects, strings.TrimSpace(m.Content))
	}
	return objects, notes, err
}

// compare holds a file to a text; -update writes it.
func compare(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "to keep it: go generate ./tests/chart")
}

// The chart renders what testdata has, with the least values and with all of them.
func TestRenderings(t *testing.T) {
	for _, name := range []string{"least", "all"} {
		t.Run(name, func(t *testing.T) {
			given, err := os.ReadFile(filepath.Join("testdata", name+".values.yaml"))
			require.NoError(t, err)
			objects, notes, err := renderWithNotes("releases", values(t, string(given)))
			require.NoError(t, err)
			compare(t, filepath.Join("testdata", name+".notes.txt"), notes)
			compare(t, filepath.Join("testdata", name+".yaml"), strings.Join(objects, "\n---\n")+"\n")
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
		least + "worker: {previous: [v0]}":                      "worker.previous needs worker.deployment",
		least + "jobs: {searchAttributes: {enabled: true}}":     "jobs.searchAttributes needs apiKeySecret.name or tlsSecret",
		least + "remoteWorkers: {Edge: {}}":                     "Edge",
		least + "remoteWorkers: {edge: {deployment: converge}}": "additional properties 'deployment' not allowed",
	} {
		_, err := render("releases", values(t, text))
		require.ErrorContains(t, err, want, text)
	}
}

// Every pod is one that a namespace with the standard "restricted" accepts, has a limit of memory that Go knows, and names no Secret that
// the chart would have to know the content of. Only workers get a token of Kubernetes.
func TestPodsAreRestricted(t *testing.T) {
	given, err := os.ReadFile("testdata/all.values.yaml")
	require.NoError(t, err)
	objects, err := render("releases", values(t, string(given)))
	require.NoError(t, err)
	var pods []string
	for _, one := range objects {
		require.NotContains(t, one, "kind: Secret\n")
		name, pod, found := podOf(t, one)
		if !found {
			continue
		}
		pods = append(pods, name)
		require.True(t, *pod.SecurityContext.RunAsNonRoot)
		require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
		require.Equal(t, pod.AutomountServiceAccountToken == nil, strings.HasPrefix(name, "converge-worker"), name)
		c := pod.Containers[0]
		require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
		require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
		require.True(t, slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" && e.Value != "" }), name)
	}
	require.Equal(t, []string{"converge-serve", "converge-worker", "converge-worker-v1.2.2", "converge-worker-edge", "converge-attributes", "converge-collect", "converge-backup"}, pods)
}

// podOf is what an object makes pods of.
func podOf(t *testing.T, object string) (name string, pod corev1.PodSpec, found bool) {
	t.Helper()
	var d appsv1.Deployment
	var j batchv1.Job
	var c batchv1.CronJob
	require.NoError(t, yaml.Unmarshal([]byte(object), &d))
	switch d.Kind {
	case "Deployment":
		return d.Name, d.Spec.Template.Spec, true
	case "Job":
		require.NoError(t, yaml.Unmarshal([]byte(object), &j))
		return "converge-attributes", j.Spec.Template.Spec, true
	case "CronJob":
		require.NoError(t, yaml.Unmarshal([]byte(object), &c))
		return c.Name, c.Spec.JobTemplate.Spec.Template.Spec, true
	}
	return "", pod, false
}

// A Job cannot be changed: whatever changes it changes its name.
func TestJobHasANameOfItsContent(t *testing.T) {
	const given = `
image: {tag: v1.2.3_b}
temporal: {address: "temporal:7233"}
store: {url: "s3://releases"}
jobs: {searchAttributes: {enabled: true, apiKeySecret: {name: admin}}}
`
	job := func(from, to string) string {
		require.Contains(t, given, from)
		objects, err := render("releases", values(t, strings.Replace(given, from, to, 1)))
		require.NoError(t, err)
		var j batchv1.Job
		for _, one := range objects {
			if strings.Contains(one, "kind: Job\n") {
				require.NoError(t, yaml.Unmarshal([]byte(one), &j))
			}
		}
		return j.Name
	}
	first := job("v1.2.3", "v1.2.3")
	require.Regexp(t, `^converge-attributes-[0-9a-f]{8}-v1\.2\.3-b$`, first)
	require.Equal(t, strings.Replace(first, "v1.2.3", "v1.2.4", 1), job("v1.2.3", "v1.2.4"))
	require.Equal(t, first, job("s3://releases", "s3://others"), "it does not know the store")
	for from, to := range map[string]string{"temporal:7233": "other:7233", "{name: admin}": "{name: root}", "{tag:": "{repository: mirror/converge, tag:"} {
		name := job(from, to)
		require.NotEqual(t, first, name)
		require.True(t, strings.HasSuffix(name, "-v1.2.3-b"), name)
	}
	require.Regexp(t, `-[0-9a-f]{8}-a{12}$`, job("{tag:", "{digest: sha256:"+strings.Repeat("a", 64)+", tag:"))
}

// The manifests of deploy/kubernetes are the chart with the values that lie there. Each object names its namespace, which comes first.
func TestPlainManifestsAreRendered(t *testing.T) {
	for _, name := range []string{"cluster-wide", "namespaced"} {
		given, err := os.ReadFile(filepath.Join(manifests, name+".values.yaml"))
		require.NoError(t, err)
		objects, err := render("converge", values(t, string(given)))
		require.NoError(t, err)
		require.Contains(t, objects[0], "kind: Namespace\n")
		for _, object := range objects[1:] {
			require.Regexp(t, `(?m)^kind: ClusterRole|^  namespace: `, object)
		}
		head := fmt.Sprintf("# deploy/chart with %s.values.yaml, written by `go generate ./tests/chart`.\n", name)
		compare(t, filepath.Join(manifests, name+".yaml"), head+strings.Join(objects, "\n---\n")+"\n")
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
