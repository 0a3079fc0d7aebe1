package kubernetes

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities"
)

func fileOf(server, token string) string {
	return `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "` + server + `", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: ` + token + `}}]
contexts: [{name: eu, context: {cluster: c, user: u}}, {name: us, context: {cluster: c, user: u}}, {name: broken, context: {cluster: none, user: u}}]
current-context: eu
`
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// An error of connecting names the file and the context, and lists what there is.
func TestConnectErrors(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "good"), fileOf("http://127.0.0.1:1", "x"))
	write(t, filepath.Join(dir, "headless"), "{apiVersion: v1, kind: Config, contexts: [{name: eu, context: {cluster: c}}], clusters: [{name: c, cluster: {server: x}}]}")
	write(t, filepath.Join(dir, "bad"), "{")
	rows := map[string]struct {
		kubeconfig, context string
		want                string
	}{
		"a relative path starts at the definition's directory": {kubeconfig: "good"},
		"another context":           {kubeconfig: "good", context: "us"},
		"no such file":              {kubeconfig: "gone", want: "kubeconfig " + dir + "/gone: no such file or directory"},
		"no kubeconfig at all":      {kubeconfig: "bad", want: "kubeconfig " + dir + "/bad: "},
		"no such context":           {kubeconfig: "good", context: "asia", want: "kubeconfig " + dir + `/good: no context "asia"; expected one of broken, eu, us`},
		"no current context":        {kubeconfig: "headless", want: "kubeconfig " + dir + "/headless: it has no current context, and the runtime names none; expected one of eu"},
		"a context without cluster": {kubeconfig: "good", context: "broken", want: "kubeconfig " + dir + `/good: context "broken": `},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			clusters := &Clusters{}
			t.Cleanup(clusters.Close)
			rt, err := New(entities.RuntimeDefinition{
				Name: "eks", Kind: entities.RuntimeKubernetes, Dir: dir,
				Kubernetes: &entities.KubernetesRuntime{Kubeconfig: row.kubeconfig, Context: row.context},
			}, clusters)
			require.NoError(t, err) // another call may find it
			_, err = rt.cluster.connect(t.Context())
			if row.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.want)
		})
	}
}

// A kubeconfig that a configuration names starts no program and reads no file. One that the worker's KUBECONFIG names may.
func TestConfiguredKubeconfigIsSelfContained_G4_G5(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("KUBECONFIG", "")
	mark := filepath.Join(dir, "ran")
	for user, want := range map[string]string{
		"exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: touch, args: [" + mark + "]}":    "starts the program touch",
		"exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: aws, args: [eks, get-token, --cluster-name, prod]}": "starts the program aws",
		"auth-provider: {name: oidc}":                          "uses the credential provider oidc",
		"tokenFile: secret":                                    "reads the file " + dir + "/secret",
		"client-certificate: secret, client-key-data: eA==":    "reads the file " + dir + "/secret",
		"client-certificate-data: eA==, client-key: ../secret": "reads the file " + filepath.Join(filepath.Dir(dir), "secret"),
	} {
		path := filepath.Join(dir, "config")
		write(t, path, strings.Replace(fileOf("http://127.0.0.1:1", "x"), "token: x", user, 1))
		_, err := sourceOf(entities.RuntimeDefinition{Dir: dir, Kubernetes: &entities.KubernetesRuntime{Kubeconfig: "config"}}).load()
		require.EqualError(t, err, "kubeconfig "+path+`: current context "eu" `+want+"; expected data alone in a file that a configuration names "+
			"(kubectl config view --flatten --raw), or a context of the worker's own: $KUBECONFIG, else ~/.kube/config")
	}
	write(t, filepath.Join(dir, "config"), strings.Replace(fileOf("https://127.0.0.1:1", "x"), "insecure-skip-tls-verify: true", "certificate-authority: ca", 1))
	_, err := source{kubeconfig: filepath.Join(dir, "config")}.load()
	require.ErrorContains(t, err, "reads the file "+dir+"/ca")
	t.Setenv("KUBECONFIG", filepath.Join(dir, "other")+string(filepath.ListSeparator)+filepath.Join(dir, "config"))
	write(t, filepath.Join(dir, "secret"), "s3cret")
	write(t, filepath.Join(dir, "config"), strings.Replace(fileOf("https://127.0.0.1:1", "x"), "token: x", "tokenFile: secret", 1))
	for _, own := range []source{{}, {kubeconfig: filepath.Join(dir, "config")}} {
		connected, err := own.load()
		require.NoError(t, err)
		require.Equal(t, filepath.Join(dir, "secret"), connected.config.BearerTokenFile)
	}
	require.NoFileExists(t, mark)
}

// Without a path, what KUBECONFIG names is used; without that the error says where it was searched for.
func TestConnectByTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("KUBECONFIG", filepath.Join(dir, "config"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	here := &cluster{ctx: t.Context()}
	_, err := here.connect(t.Context())
	require.EqualError(t, err, "no cluster is named: no kubeconfig was found at "+dir+"/config, and the worker runs in no pod of a cluster")
	here.source.context = "eu"
	_, err = here.connect(t.Context())
	require.EqualError(t, err, `context "eu": no kubeconfig was found at `+dir+"/config")

	write(t, filepath.Join(dir, "config"), fileOf("http://127.0.0.1:1", "x"))
	_, err = here.connect(t.Context()) // the file has come: no restart is needed
	require.NoError(t, err)
}

func TestDefinitionsShareAConnection(t *testing.T) {
	clusters := &Clusters{}
	of := func(dir, kubeconfig, context string) *cluster {
		return clusters.cluster(entities.RuntimeDefinition{Dir: dir, Kubernetes: &entities.KubernetesRuntime{Kubeconfig: kubeconfig, Context: context}})
	}
	require.Same(t, of("/a", "../b/config", "eu"), of("/b", "config", "eu"))
	require.NotSame(t, of("/a", "config", "eu"), of("/a", "config", "us"))
	require.NotSame(t, of("/a", "config", ""), of("/a", "", ""))

	clusters.Close()
	_, err := of("/a", "config", "eu").connect(t.Context())
	require.ErrorIs(t, err, errClosed)
	_, err = of("/new", "config", "eu").connect(t.Context())
	require.ErrorIs(t, err, errClosed)
}

// A token that expired is read again, and the request goes out with the new one; so is an address
// that moved, for the clients that there are.
func TestACredentialIsReadAgain(t *testing.T) {
	var refused atomic.Int64
	serve := func(token string) *httptest.Server {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+token {
				refused.Add(1)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"by": "` + token + `"}}`))
		}))
		t.Cleanup(s.Close)
		return s
	}
	server, moved := serve("new"), serve("moved")
	path := filepath.Join(t.TempDir(), "config")
	write(t, path, fileOf(server.URL, "old"))
	c := &cluster{ctx: t.Context(), source: source{kubeconfig: path}}
	clients, err := c.connect(t.Context())
	require.NoError(t, err)
	get := func() (string, error) {
		o, err := clients.typed.ConfigMaps("shop").Get(t.Context(), "settings", metav1.GetOptions{})
		return o.Data["by"], err
	}
	for range 3 {
		_, err = get()
		require.Error(t, err)
	}
	require.EqualValues(t, 3, refused.Load()) // one request each: the file says nothing new

	write(t, path, fileOf(server.URL, "new"))
	clients.transport.rereadAt = clients.transport.rereadAt.Add(-rereadInterval)
	by, err := get()
	require.NoError(t, err)
	require.Equal(t, "new", by)

	server.Close()
	write(t, path, fileOf(moved.URL+"/proxy", "moved"))
	clients.transport.rereadAt = clients.transport.rereadAt.Add(-rereadInterval)
	_, err = get() // the server is gone: the outcome of the request is unknown
	require.Error(t, err)
	by, err = get()
	require.NoError(t, err)
	require.Equal(t, "moved", by)
}
