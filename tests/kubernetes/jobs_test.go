package kubernetes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
)

// A migration that fails fails its release. Once what it lacked is there, a retry of the same release runs it again, once, and the
// release goes on; nothing else runs it again before.
func TestRetryRunsAFailedJobAgain_H4_A18(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "api")
	lacks := filepath.Join(t.TempDir(), "schema")
	w.pattern("api/base/migrate.yaml", `command: \[[^\n]*\]`, `command: [test, -e, "`+lacks+`"]`)
	w.edit("api/base/migrate.yaml", "backoffLimit: 2", "backoffLimit: 0")
	w.Publish()
	w.AwaitThat("api", "the failed migration", func(s protocol.Status) bool {
		return channelOf(s, "staging").Status == "FAILED" && strings.Contains(reasons(s, "staging"), "api-migrate: it failed")
	})
	migration := func() map[string]string {
		job, err := w.cluster.Client.BatchV1().Jobs(w.staging).Get(t.Context(), "api-migrate", metav1.GetOptions{})
		require.NoError(t, err)
		return job.Annotations
	}
	require.Regexp(t, "^1 ", migration()["converge/runs"], "no attempt that came by itself ran it")

	require.NoError(t, os.WriteFile(lacks, nil, 0o600))
	w.Act("api", protocol.Retry, `{"by":"alice","version":"6.7.0"}`)
	w.Await("api", "staging CONVERGED 6.7.0, production CONVERGED 6.7.0")
	require.Regexp(t, "^2 ", migration()["converge/runs"])
}
