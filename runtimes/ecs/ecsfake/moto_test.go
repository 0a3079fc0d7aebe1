package ecsfake_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/runtimes/ecs/ecsfake"
)

// moto starts moto_server, which `make moto` installs, and returns a client for it; without it the test is skipped.
func moto(t *testing.T) *ecs.Client {
	t.Helper()
	program, err := filepath.Abs("../../../.cache/moto/bin/moto_server")
	require.NoError(t, err)
	if _, err := os.Stat(program); err != nil {
		t.Skip("moto is not installed: run `make moto` to ask the same of an independent implementation")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().(*net.TCPAddr)
	require.NoError(t, listener.Close())

	server := exec.CommandContext(t.Context(), program, "-H", "127.0.0.1", "-p", fmt.Sprint(address.Port))
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	endpoint := "http://" + address.String()
	require.Eventually(t, func() bool {
		answer, err := http.Get(endpoint + "/moto-api/")
		if err == nil {
			answer.Body.Close()
		}
		return err == nil
	}, time.Minute, 50*time.Millisecond)

	nowhere, err := ecsfake.New(ecsfake.Options{})
	require.NoError(t, err)
	require.NoError(t, nowhere.Close())
	return nowhere.Client(once, func(o *ecs.Options) { o.BaseEndpoint = aws.String(endpoint) })
}
