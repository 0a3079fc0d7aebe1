package kubernetes_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
)

// What runs in one channel is removed from the cluster, and nothing else; nobody takes its absence for drift, and a restart applies it again.
func TestChannelIsTakenDownOnKubernetes_A24(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "api")
	w.Publish()
	w.Await("api", "staging CONVERGED 6.7.0, production CONVERGED 6.7.0")
	before := w.deployment(w.staging, "api")
	w.Act("api", protocol.Delete, `{"channel":"production","by":"bob","reason":"moved"}`)
	w.Await("api", "staging CONVERGED 6.7.0, production DELETED 6.7.0")
	_, err := w.cluster.Client.AppsV1().Deployments(w.production).Get(t.Context(), "api", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	require.Equal(t, before.UID, w.deployment(w.staging, "api").UID)
	w.Act("api", protocol.Refresh, `{"channel":"production","by":"bob"}`)
	w.AwaitThat("api", "a reading", func(s protocol.Status) bool { return channelOf(s, "production").Current == "" })
	w.Await("api", "staging CONVERGED 6.7.0, production DELETED 6.7.0")
	w.Act("api", protocol.RestartService, `{"channel":"production","by":"bob"}`)
	w.Await("api", "staging CONVERGED 6.7.0, production CONVERGED 6.7.0")
	w.deployment(w.production, "api")
}
