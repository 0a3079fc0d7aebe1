package applications_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubeyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// source is the kubernetes field of a service, as far as the suite uses it.
type source struct {
	Manifests []string
	Kustomize string
	Helm      *struct {
		Chart  string
		Values map[string]any
	}
}

// declared reads the objects of a version with Kustomize's and Helm's own code, and none of Converge's.
func (l *life) declared(version int) (objects []*unstructured.Unstructured) {
	l.T.Helper()
	var s source
	require.NoError(l.T, yaml.Unmarshal([]byte(strings.ReplaceAll(l.source, "DIR", directory(version))), &s))
	for _, path := range s.Manifests {
		for _, text := range texts(l.T, filepath.Join(l.Dir, path)) {
			objects = append(objects, parsed(l.T, text)...)
		}
	}
	if s.Kustomize != "" {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(l.Dir, s.Kustomize))
		require.NoError(l.T, err)
		text, err := built.AsYaml()
		require.NoError(l.T, err)
		objects = append(objects, parsed(l.T, text)...)
	}
	if s.Helm != nil {
		objects = append(objects, l.rendered(filepath.Join(l.Dir, s.Helm.Chart), s.Helm.Values)...)
	}
	return objects
}

// texts are a file, or the YAML files of a directory.
func texts(t *testing.T, path string) (all [][]byte) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(at) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(at)
		all = append(all, text)
		return err
	}))
	return all
}

func parsed(t *testing.T, text []byte) (objects []*unstructured.Unstructured) {
	t.Helper()
	for decoder := kubeyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// rendered are the objects of a chart, without its hooks.
func (l *life) rendered(path string, values map[string]any) (objects []*unstructured.Unstructured) {
	l.T.Helper()
	chart, err := loader.Load(path)
	require.NoError(l.T, err)
	require.NoError(l.T, chartutil.ProcessDependencies(chart, values))
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = common.KubeVersion{Version: "v1.36.0", Major: "1", Minor: "36"}
	all, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: service, Namespace: l.namespace, Revision: 1, IsInstall: true}, capabilities)
	require.NoError(l.T, err)
	files, err := engine.Render(chart, all)
	require.NoError(l.T, err)
	for _, crd := range chart.CRDObjects() {
		objects = append(objects, parsed(l.T, crd.File.Data)...)
	}
	for name, text := range files {
		if filepath.Ext(name) == ".yaml" {
			objects = append(objects, parsed(l.T, []byte(text))...)
		}
	}
	return slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetAnnotations()["helm.sh/hook"] != "" })
}
