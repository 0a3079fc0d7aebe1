package kubernetes_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes/secret"
	"github.com/converge-engine/converge/tests/kubetest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
)

const readsASecret = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: production, runtimes: [{name: APP-rt}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
custom:
  apply: {command: [sh, -c, 'echo "$TOKEN" > GOT']}
  retry: {maxAttempts: 1}
---
apiVersion: converge/v1
kind: Service
name: web
parameters: [{name: token, type: secretRef, default: {kubernetesSecret: NAME, namespace: NAMESPACE, context: CONTEXT, key: password}}]
autoRollback: false
custom: {env: {TOKEN: "${{ params.token }}"}}
`

// A command gets what a Secret of a cluster holds just then: another value is no release, and neither is in the store, in
// Temporal, or in what is shown. What the worker was not started to let be named is not read, though it could be.
func TestCommandGetsASecretOfTheCluster_G5(t *testing.T) {
	c := kubetest.Start(t)
	namespace := c.Namespace(t)
	t.Setenv("KUBECONFIG", c.Kubeconfig)
	put := func(name, value string) {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"password": value}}
		secrets := c.Client.CoreV1().Secrets(namespace)
		if _, err := secrets.Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			_, err = secrets.Update(t.Context(), s, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
	}
	put("db", "hunter-one")
	put("admin", "hunter-admin")
	allowed, err := secret.ParseExternal("kubernetes:" + c.Name + "/" + namespace + "/db")
	require.NoError(t, err)
	w := shared.Unserved(t, embedded.Options{})
	stop := w.StartWorkerAs(worker.Options{AllowSecret: allowed})
	got := filepath.Join(t.TempDir(), "got")
	write := func(name string) {
		w.Write(strings.NewReplacer("NAMESPACE", namespace, "NAME", name, "CONTEXT", c.Name, "GOT", got).Replace(readsASecret))
	}
	released := func(version, want string) {
		w.Release("web", version)
		w.AwaitThat("web", version, func(s protocol.Status) bool {
			return s.Channels[0].Status == "CONVERGED" && s.Channels[0].Current == version
		})
		text, err := os.ReadFile(got)
		require.NoError(t, err)
		require.Equal(t, want+"\n", string(text))
	}
	write("db")
	w.Publish()
	released("v1", "hunter-one")
	put("db", "hunter-two")
	require.True(t, w.Publish().Unchanged, "another value is no change of the configuration")
	stop() // what it had read a moment ago is forgotten with it
	w.StartWorkerAs(worker.Options{AllowSecret: allowed})
	released("v2", "hunter-two")

	write("admin")
	w.Publish()
	s := w.AwaitThat("web", "a failure", func(s protocol.Status) bool { return s.Channels[0].Status == "FAILED" })
	shown, err := json.Marshal(s)
	require.NoError(t, err)
	require.Contains(t, string(shown), "which this worker does not allow; to allow it, start the worker with --allow-secret kubernetes:"+c.Name+"/"+namespace+"/admin")
	events, err := json.Marshal(w.History(w.ID("web")))
	require.NoError(t, err)
	require.NotContains(t, string(events)+string(shown), "hunter-")
	require.NoError(t, filepath.WalkDir(w.Store, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		require.False(t, bytes.Contains(raw, []byte("hunter-")), path)
		return err
	}))
}
