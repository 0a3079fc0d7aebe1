package kubetest

import (
	"os"
	"testing"

	"github.com/converge-engine/converge/tests/kubetest/public"
)

// PublicManifests is a folder of manifests that others wrote (public.Manifests). When it was not fetched, the test is
// skipped.
func PublicManifests(t testing.TB) string {
	t.Helper()
	return fetched(t, public.Manifests())
}

// PublicChart is a folder with a Helm chart that others wrote (public.Chart), or the test is skipped.
func PublicChart(t testing.TB) string {
	t.Helper()
	return fetched(t, public.Chart())
}

// PublicRollouts is a folder with the CustomResourceDefinitions of Argo Rollouts (public.Rollouts), or the test is skipped.
func PublicRollouts(t testing.TB) string {
	t.Helper()
	return fetched(t, public.Rollouts())
}

// PublicChartWithHooks are folders with two versions of a Helm chart that others wrote (public.ChartWithHooks), and what these are,
// or the test is skipped.
func PublicChartWithHooks(t testing.TB) (dirs, versions [2]string) {
	t.Helper()
	for i, set := range public.ChartWithHooks() {
		dirs[i], versions[i] = fetched(t, set), set.Version
	}
	return dirs, versions
}

// PublicSet is a folder of an application that others wrote (public.Applications), or the test is skipped.
func PublicSet(t testing.TB, set public.Set) string {
	t.Helper()
	return fetched(t, set)
}

func fetched(t testing.TB, set public.Set) string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(set.Path(root)); err != nil {
		t.Skipf("no public manifests: run make manifests, or make applications (%v)", err)
	}
	return set.Path(root)
}
