package tests

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/idptest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// The secret of the client and the keys of sessions are read when serve starts: until then it uses the earlier ones. Sessions survive the
// change of both.
func TestSecretsOfServeAreReadAtTheStart(t *testing.T) {
	stage.Long(t, "builds the programs")
	t.Parallel()
	issuer := idptest.New(t)
	issuer.Secret = "the first secret of the client"
	dir := t.TempDir()
	secret, keys := filepath.Join(dir, "secret"), filepath.Join(dir, "keys")
	write := func(lines ...string) {
		t.Helper()
		require.NoError(t, os.WriteFile(secret, []byte(issuer.Secret+"\n"), 0o600))
		require.NoError(t, os.WriteFile(keys, []byte(strings.Join(lines, "\n")), 0o600))
	}
	const first, second = "the first secret that seals sessions", "the second secret that seals sessions"
	write(first)
	address, port := temporaltest.Start(t).Address, shared.FreePort(t)
	url := fmt.Sprintf("http://localhost:%d", port)
	start := func() (stop func()) {
		t.Helper()
		out := &stage.Buffer{}
		cmd := exec.Command(shared.Converge(t), "serve", "--address", address, "--listen", fmt.Sprintf("127.0.0.1:%d", port), "--base-url", url,
			"--issuer", issuer.URL, "--client-secret-file", secret, "--session-key-file", keys)
		cmd.Stdout, cmd.Stderr = out, out
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		require.NoError(t, cmd.Start())
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			answer, err := http.Get(url + "/healthz")
			return err == nil && answer.Body.Close() == nil, out.String()
		})
		return func() {
			t.Helper()
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, cmd.Wait(), out)
		}
	}
	browser := func() (isSignedIn func() bool) {
		jar, err := cookiejar.New(nil)
		require.NoError(t, err)
		client := http.Client{Jar: jar}
		return func() bool {
			t.Helper()
			answer, err := client.Get(url + "/")
			require.NoError(t, err)
			defer answer.Body.Close()
			page, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			return strings.Contains(string(page), "Sign out")
		}
	}
	stop := start()
	early, late := browser(), browser()
	require.True(t, early())
	issuer.Secret = "the second secret of the client"
	write(second, first)
	require.False(t, late(), "the issuer accepts the second secret alone, which serve has not read")
	stop()

	stop = start()
	codes := issuer.Codes()
	require.True(t, early())
	require.Equal(t, codes, issuer.Codes(), "the session goes on")
	require.True(t, late())
	stop()
}
