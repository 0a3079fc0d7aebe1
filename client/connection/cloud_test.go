package connection

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

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

// A client certificate is read when the process starts: a new one in its place is for the next start.
func TestClientCertificateIsReadAtTheStart(t *testing.T) {
	dir := t.TempDir()
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	issue := func(serial int64, name string) {
		t.Helper()
		template := &x509.Certificate{
			SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		}
		if serial == 1 {
			template = authority
		}
		certificate, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), key)
		require.NoError(t, err)
		private, err := x509.MarshalPKCS8PrivateKey(key)
		require.NoError(t, err)
		for ending, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: certificate}, ".key": {Type: "PRIVATE KEY", Bytes: private}} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name+ending), pem.EncodeToMemory(block), 0o600))
		}
	}
	issue(1, "ca")
	issue(2, "server")
	issue(3, "client")
	trusted, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	require.NoError(t, err)
	require.True(t, pool.AppendCertsFromPEM(trusted))
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"))
	require.NoError(t, err)
	serials := make(chan string, 2) // of the certificates that clients showed
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		VerifyConnection: func(s tls.ConnectionState) error {
			serials <- s.PeerCertificates[0].SerialNumber.String()
			return nil
		},
	})))
	workflowservice.RegisterWorkflowServiceServer(server, &apiKeyServer{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	t.Setenv("TEMPORAL_CONFIG_FILE", filepath.Join(dir, "none"))
	t.Setenv("TEMPORAL_ADDRESS", listener.Addr().String())
	t.Setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", filepath.Join(dir, "ca.crt"))
	_, err = client.Dial(started(t))
	require.Error(t, err, "the server requires a certificate")
	t.Setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", filepath.Join(dir, "client.crt"))
	t.Setenv("TEMPORAL_TLS_CLIENT_KEY_PATH", filepath.Join(dir, "client.key"))
	earlier := started(t)
	issue(4, "client")
	for _, o := range []client.Options{earlier, started(t)} {
		c, err := client.Dial(o)
		require.NoError(t, err)
		c.Close()
	}
	require.Equal(t, []string{"3", "4"}, []string{<-serials, <-serials})
}

// started are the options of a process that starts now.
func started(t *testing.T) client.Options {
	t.Helper()
	o, err := Settings{}.options()
	require.NoError(t, err)
	return o
}
