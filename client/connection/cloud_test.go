package connection

import (
	"context"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
)

// apiKeyServer is a server that records the API key of its requests.
type apiKeyServer struct {
	workflowservice.UnimplementedWorkflowServiceServer
	key atomic.Value
}

func (k *apiKeyServer) GetSystemInfo(ctx context.Context, _ *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	of, _ := metadata.FromIncomingContext(ctx)
	k.key.Store(append(of.Get("authorization"), "none")[0])
	return &workflowservice.GetSystemInfoResponse{}, nil
}

// With an API key and no other setting for encryption, as Temporal Cloud requires, the key is sent over TLS and never without it.
func TestAPIKeyGoesOverTLS(t *testing.T) {
	t.Setenv("TEMPORAL_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	authority := httptest.NewTLSServer(nil) // for its certificate, which is for 127.0.0.1
	defer authority.Close()
	serve := func(options ...grpc.ServerOption) (*apiKeyServer, string) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		k, g := &apiKeyServer{}, grpc.NewServer(options...)
		workflowservice.RegisterWorkflowServiceServer(g, k)
		go func() { _ = g.Serve(listener) }()
		t.Cleanup(g.Stop)
		return k, listener.Addr().String()
	}
	encrypted, at := serve(grpc.Creds(credentials.NewServerTLSFromCert(&authority.TLS.Certificates[0])))
	plain, plainAt := serve()
	certificate := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate().Raw}), 0o600))

	t.Setenv("TEMPORAL_API_KEY", "a-key")
	t.Setenv("TEMPORAL_NAMESPACE", "releases.a1b2c")
	t.Setenv("TEMPORAL_ADDRESS", plainAt)
	o, err := Settings{}.options()
	require.NoError(t, err)
	require.Equal(t, "releases.a1b2c", o.Namespace)
	_, err = client.Dial(o)
	require.Error(t, err)
	require.Nil(t, plain.key.Load(), "the key was sent unencrypted")

	t.Setenv("TEMPORAL_ADDRESS", at)
	t.Setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", certificate)
	o, err = Settings{}.options()
	require.NoError(t, err)
	c, err := client.Dial(o)
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, "Bearer a-key", encrypted.key.Load())
}
