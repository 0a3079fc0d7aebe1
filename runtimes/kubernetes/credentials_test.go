package kubernetes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/kubetest"
)

// A credential plugin that fails is the cause, with what it wrote to stderr: in a reading and in an apply, which is no attempt.
func TestTheStderrOfACredentialPluginIsTheCause_C9(t *testing.T) {
	b := newExclusiveTestCluster(t)
	for _, row := range []struct{ name, script, want string }{
		{"stderr", "echo $WHO: the SSO session has expired, run: aws sso login >&2; exit 255", "ann: the SSO session has expired, run: aws sso login"},
		{"nothing", "exit 3", "exit status 3"},
		{
			"credentials", `printf '\033[31mdenied: %s, Authorization: Bearer abcdefgh.123, and %s\n' "$AWS_SECRET_ACCESS_KEY" given-token-1 >&2
				echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "given-token-1"}}'; exit 1`,
			"failed: denied: ***, Authorization: ***, and ***",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := runtimeWithPlugin(t, row.script)
			in := b.instance("v1", config)
			_, err := r.Observe(t.Context(), in)
			require.True(t, hasCode(err, runtimes.CodeUnauthorized), err)
			require.ErrorContains(t, err, row.want)
			var reading *entities.ReadingError
			require.ErrorAs(t, err, &reading)
			require.True(t, reading.SaysNothing())

			_, err = r.Apply(t.Context(), in)
			require.ErrorContains(t, err, row.want)
			require.ErrorContains(t, err, "the kubeconfig names that plugin")
			require.NotContains(t, err.Error(), "not reachable")
			require.True(t, runtimes.IsUnready(err), err)
		})
	}
}

// runtimeWithPlugin is a runtime whose kubeconfig, chosen by the worker, gets its credentials from a script.
func runtimeWithPlugin(t *testing.T, script string) *Runtime {
	file, err := clientcmd.LoadFromFile(kubetest.Start(t).Kubeconfig)
	require.NoError(t, err)
	for _, user := range file.AuthInfos {
		*user = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			Command: "/bin/sh", Args: []string{"-c", script}, APIVersion: "client.authentication.k8s.io/v1",
			Env: []clientcmdapi.ExecEnvVar{{Name: "WHO", Value: "ann"}, {Name: "AWS_SECRET_ACCESS_KEY", Value: "secret-of-ann"}}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}
	}
	return runtimeOf(t, file)
}

// runtimeOf is a runtime with a kubeconfig that the worker's environment names.
func runtimeOf(t *testing.T, file *clientcmdapi.Config) *Runtime {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*file, path))
	require.NoError(t, os.Chmod(path, 0o600))
	t.Setenv("KUBECONFIG", path)
	clusters := &Clusters{}
	t.Cleanup(clusters.Close)
	r, err := New(entities.RuntimeDefinition{Name: "plugin", Kind: entities.RuntimeKubernetes, Kubernetes: &entities.KubernetesRuntime{FailAfter: time.Minute}}, clusters)
	require.NoError(t, err)
	return r
}

// Credentials of AWS that cannot sign a token for EKS are the cause in the same way.
func TestCredentialsThatSignNoTokenAreTheCause_C9(t *testing.T) {
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	file := clientcmdapi.NewConfig()
	file.Clusters["eks"] = &clientcmdapi.Cluster{Server: "https://0123.gr7.eu-west-1.eks.amazonaws.com"}
	file.AuthInfos["eks"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		Command: "aws", Args: []string{"eks", "get-token", "--cluster-name", "shop", "--profile", "expired"}, APIVersion: "client.authentication.k8s.io/v1",
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	file.Contexts["eks"] = &clientcmdapi.Context{Cluster: "eks", AuthInfo: "eks"}
	file.CurrentContext = "eks"
	r := runtimeOf(t, file)
	in := runtimes.Request{Owner: runtimes.Owner{Application: "shop", Service: "web", ID: entities.Only("prod")}, FullVersion: "v1", Payload: &entities.Payload{
		Application: "shop", Service: "web", Channel: "prod", Address: map[string]string{"namespace": "shop"},
		Kubernetes: &entities.KubernetesPayload{Bundled: entities.Bundled{Objects: []json.RawMessage{json.RawMessage(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}`)}}},
	}}
	_, err := r.Observe(t.Context(), in)
	require.True(t, hasCode(err, runtimes.CodeUnauthorized), err)
	require.ErrorContains(t, err, "token for the EKS cluster shop: ")
	_, err = r.Apply(t.Context(), in)
	require.ErrorContains(t, err, "the AWS credentials in the environment of the worker")
	require.NotContains(t, err.Error(), "not reachable")
	require.True(t, runtimes.IsUnready(err), err)
}
