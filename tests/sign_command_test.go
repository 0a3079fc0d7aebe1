package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/tests/idptest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// A job of CI, whose issuer takes no nonce but lets it choose the audience of a token, acts and publishes where every act needs a token that was
// issued for it. A token for no act, and one for another act, serve nothing.
func TestSignCommandOfCI_G3(t *testing.T) {
	stage.Long(t, "builds the programs")
	t.Parallel()
	issuer := idptest.New(t)
	d := shared.DevOfInit(t)
	d.Start()
	d.Await("shop/hello", "staging CONVERGED v1, production CONVERGED v1")
	file := filepath.Join(d.Dir, "converge.yaml")
	edit := func(old, now string) {
		t.Helper()
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(text), old)
		require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), old, now, 1)), 0o600))
	}
	const name = "kind: Application\nname: shop\n"
	edit(name, name+`identity: {issuer: "`+issuer.URL+`", audience: converge, bound: "*"}`+"\n")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		out, code := d.Converge("status", "shop/hello", "--output", "json")
		return code == 0 && strings.Contains(out, `"incarnation": 2`), out
	})

	request := `curl -fsS -H "Authorization: bearer ` + idptest.JobSecret + `" "` + issuer.URL + `/job?audience=AUDIENCE" | sed 's/.*"value":"//; s/".*//'`
	refused := func(command, why string) {
		t.Helper()
		d.Env = nil
		if command != "" {
			d.Env = []string{"CONVERGE_SIGN_COMMAND=" + command}
		}
		out, code := d.ConvergeSaid("release", "shop/hello", "v2")
		require.NotZero(t, code)
		require.Contains(t, out, why)
	}
	refused("", "needs proof of identity")
	refused(strings.ReplaceAll(request, "AUDIENCE", "converge"), "was issued for no act")
	refused(strings.ReplaceAll(request, "AUDIENCE", "converge%23converge-act-1.NJfO5CP_8intQhEZaG-BOfQWflA52GbZ9n1X6PY7kqs"), "was issued for another act")
	refused(strings.ReplaceAll(request, "AUDIENCE", "other%23$CONVERGE_ACT"), `expected "converge"`)
	refused("echo no token", "CONVERGE_SIGN_COMMAND printed 9 bytes that are no ID token; expected three parts with dots between them")
	refused("echo too bad >&2; exit 3", "CONVERGE_SIGN_COMMAND: exit status 3; its errors are above")

	d.Env = []string{"CONVERGE_SIGN_COMMAND=exit 3"}
	out, code := d.ConvergeSaid("release", "shop/hello", "v2", "--token", "x.y.z")
	require.NotZero(t, code)
	require.Contains(t, out, "the token is not an ID token", "a token that the caller names comes first")

	d.Env = []string{"CONVERGE_SIGN_COMMAND=" + strings.ReplaceAll(request, "AUDIENCE", "converge%23$CONVERGE_ACT")}
	out, code = d.ConvergeSaid("release", "shop/hello", "v2")
	require.Zero(t, code, out)
	d.Await("shop/hello", "staging CONVERGED v2, production CONVERGED v2")
	out, code = d.ConvergeSaid("history", "shop/hello", "--kind", entities.EventRelease)
	require.Zero(t, code, out)
	require.Contains(t, out, "repo:shop/web:ref:refs/heads/main")
	require.NotContains(t, out, "refs/heads/main?", "the name is proven")

	edit("greeting: hello from staging", "greeting: good day from staging") // converge dev has no token, so it cannot publish it
	out, code = d.ConvergeSaid("config", "publish", ".")
	require.Zero(t, code, out)
	require.Contains(t, out, "incarnation 3")
}
