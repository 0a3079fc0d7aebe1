// Package mototest starts moto_server, which others wrote to answer as AWS does, for tests that ask it what they ask our own. It may
// import nothing of ours.
package mototest

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Start returns the URL of a server that ends with the test. Without one installed (`make moto`) the test is skipped.
func Start(t *testing.T) string {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	program := filepath.Join(filepath.Dir(here), "../../.cache/moto/bin/moto_server")
	if _, err := os.Stat(program); err != nil {
		t.Skip("moto is not installed: run `make moto` to ask the same of an independent implementation")
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().(*net.TCPAddr)
	require.NoError(t, listener.Close())
	server := exec.CommandContext(t.Context(), program, "-H", "127.0.0.1", "-p", fmt.Sprint(address.Port)) //nolint:gosec // ours
	require.NoError(t, server.Start())
	t.Cleanup(func() { _, _ = server.Process.Kill(), server.Wait() })
	url := "http://" + address.String()
	require.Eventually(t, func() bool {
		answer, err := http.Get(url + "/moto-api/") //nolint:gosec,noctx // ours
		if err == nil {
			err = answer.Body.Close()
		}
		return err == nil
	}, time.Minute, 50*time.Millisecond)
	return url
}
