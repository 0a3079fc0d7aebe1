package kubernetes

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/tests/mototest"
)

// Every form that the AWS tools write into a kubeconfig is understood, and what is not is left to the program.
func TestKubeconfigsOfEKSAreRecognised(t *testing.T) {
	variables := func(pairs ...string) (env []clientcmdapi.ExecEnvVar) {
		for i := 0; i < len(pairs); i += 2 {
			env = append(env, clientcmdapi.ExecEnvVar{Name: pairs[i], Value: pairs[i+1]})
		}
		return env
	}
	for _, row := range []struct {
		command string
		args    string
		env     []clientcmdapi.ExecEnvVar
		want    eks
	}{
		{"aws", "--region eu-west-1 eks get-token --cluster-name prod --output json", nil, eks{cluster: "prod", region: "eu-west-1"}},
		{"/usr/local/bin/aws", "eks get-token --cluster-name=prod --role-arn arn:aws:iam::1:role/r", variables("AWS_PROFILE", "p"), eks{cluster: "prod", role: "arn:aws:iam::1:role/r", profile: "p"}},
		{`C:\aws\aws.exe`, "eks get-token --cluster-id 0123", variables("AWS_REGION", "us-east-2"), eks{cluster: "0123", region: "us-east-2"}},
		{"aws-iam-authenticator", "token -i prod -r arn:r", nil, eks{cluster: "prod", role: "arn:r"}},
		{"aws", "eks get-token", nil, eks{}},
		{"aws", "eks get-token --cluster-name", nil, eks{}},
		{"aws", "eks get-token --cluster-name prod --endpoint-url http://x", nil, eks{}},
		{"aws", "s3 ls --cluster-name prod", nil, eks{}},
		{"aws", "eks get-token --cluster-name prod", variables("HTTPS_PROXY", "x"), eks{}},
		{"aws-vault", "exec p -- aws eks get-token --cluster-name prod", nil, eks{}},
	} {
		got, ok := eksOf(&clientcmdapi.ExecConfig{Command: row.command, Args: strings.Fields(row.args), Env: row.env})
		require.Equal(t, row.want != eks{}, ok, row.args)
		if ok {
			require.Equal(t, row.want, got, row.args)
		}
	}
	_, ok := eksOf(nil)
	require.False(t, ok)
}

// A worker without any program of AWS gets its tokens: a signed request, which STS answers when the cluster sends it. It is kept
// while it is good, and not used again where it was not accepted.
func TestTokensForEKSNeedNoProgram(t *testing.T) {
	sts := mototest.Start(t)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_STS": sts, "AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "test",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "PATH": t.TempDir(),
	} {
		t.Setenv(name, value)
	}
	var mu sync.Mutex
	var tokens []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		tokens = append(tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"shop"}}`)
	}))
	defer server.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	list := func(args string) error {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		require.NoError(t, os.WriteFile(path, []byte(fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}],
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: aws, interactiveMode: Never, args: [%s]}}}]}`, server.URL, ca, args)), 0o600))
		t.Setenv("KUBECONFIG", path)
		var clusters Clusters
		defer clusters.Close()
		client, err := clusters.Client(t.Context(), entities.RuntimeDefinition{Kubernetes: &entities.KubernetesRuntime{}})
		require.NoError(t, err)
		for range 2 {
			_, err = client.Namespaces().Get(t.Context(), "shop", metav1.GetOptions{})
		}
		return err
	}
	require.NoError(t, list("eks, get-token, --cluster-name, prod, --region, eu-west-1"))
	require.Len(t, tokens, 2)
	require.Equal(t, tokens[0], tokens[1], "kept")

	signed, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(tokens[0], "k8s-aws-v1."))
	require.NoError(t, err)
	at, err := url.Parse(string(signed))
	require.NoError(t, err)
	query := at.Query()
	require.Equal(t, "GetCallerIdentity", query.Get("Action"))
	require.Equal(t, "60", query.Get("X-Amz-Expires"))
	require.Equal(t, "host;x-k8s-aws-id", query.Get("X-Amz-SignedHeaders"))
	require.Contains(t, query.Get("X-Amz-Credential"), "/eu-west-1/sts/aws4_request")
	ask, err := http.NewRequestWithContext(t.Context(), http.MethodGet, string(signed), nil)
	require.NoError(t, err)
	ask.Header.Set("x-k8s-aws-id", "prod")
	ask.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+query.Get("X-Amz-Credential")) // by which that server tells services apart
	answer, err := http.DefaultClient.Do(ask)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode, "%s", body)
	require.Contains(t, string(body), "<Arn>arn:aws:")

	require.NoError(t, list("eks, get-token, --cluster-name, prod, --region, eu-west-1, --role-arn, 'arn:aws:iam::123456789012:role/deployer'"), "a role is assumed first")

	t.Setenv("AWS_REGION", "")
	require.ErrorContains(t, list("eks, get-token, --cluster-name, prod"), "token for the EKS cluster prod: no region is known")
}

// A token that is not accepted is not used again.
func TestRefusedTokenForEKS(t *testing.T) {
	tokens := &eksTokens{token: "withdrawn", until: time.Now().Add(time.Hour)}
	refusing := roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody}, nil
	})
	resp, err := (&eksTransport{tokens: tokens, next: refusing}).RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Empty(t, tokens.token)
}

// What the address of a cluster says of its region is used where nothing else does.
func TestRegionOfAnEKSAddress(t *testing.T) {
	require.Equal(t, "eu-west-1", eksHost.FindStringSubmatch("https://0123ABCD.gr7.eu-west-1.eks.amazonaws.com")[1])
	require.Nil(t, eksHost.FindStringSubmatch("https://10.0.0.1"))
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
