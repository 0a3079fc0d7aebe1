package job_test

import (
	"testing"

	"k8s.io/client-go/rest"

	"github.com/converge-engine/converge/tests/kubetest"
)

// cluster is a real control plane, whose node runs a Job's command as a local process, and a namespace
// for this test.
func cluster(t *testing.T) (*rest.Config, string) {
	t.Helper()
	plane := kubetest.Start(t)
	return plane.Config, plane.Namespace(t)
}
