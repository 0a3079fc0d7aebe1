package tests

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/idptest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// signedBoard is a board on which people sign in. Browsers see it and the issuer as two sites.
func signedBoard(t *testing.T, own string) (d *stage.Dev, issuer *idptest.Issuer, url string) {
	t.Helper()
	issuer = idptest.New(t)
	issuer.Sessions, issuer.Secret = true, "a secret of the client"
	dir := t.TempDir()
	secret, keys := filepath.Join(dir, "secret"), filepath.Join(dir, "keys")
	require.NoError(t, os.WriteFile(secret, []byte(issuer.Secret+"\n"), 0o600))
	require.NoError(t, os.WriteFile(keys, []byte("a secret that seals the sessions of this test\n"), 0o600))
	d = shopWithGate(t, "{minApprovers: 2, approvers: [bob@shop.dev, carol@shop.dev]}", "0")
	if own != "" {
		declare(t, d, strings.ReplaceAll(own, "ISSUER", issuer.URL))
	}
	port := shared.FreePort(t)
	url = fmt.Sprintf("http://localhost:%d", port)
	said := d.Background("serve", "--listen", fmt.Sprintf("127.0.0.1:%d", port), "--base-url", url, "--issuer", issuer.URL, "--client-id", "converge-board", "--audience", idptest.Audience, "--client-secret-file", secret, "--session-key-file", keys)
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		answer, err := http.Get(url + "/healthz")
		if err != nil {
			return false, err.Error() + said()
		}
		return answer.Body.Close() == nil, ""
	})
	return d, issuer, url
}

// declare adds fields to the application, and waits until they are in force.
func declare(t *testing.T, d *stage.Dev, fields string) {
	t.Helper()
	file := filepath.Join(d.Dir, "converge.yaml")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	const name = "kind: Application\nname: shop\n"
	require.Contains(t, string(text), name)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), name, name+fields, 1)), 0o600))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		out, code := d.Converge("status", "shop/hello", "--output", "json")
		return code == 0 && strings.Contains(out, `"incarnation": 3`), out
	})
}

// signIn answers the question of the issuer.
func (b tab) signIn(who string) {
	b.t.Helper()
	b.sees("Who are you?")
	b.do(chromedp.SendKeys(chromedp.CSS("#who"), who), chromedp.Click(chromedp.CSS("button")))
}

// A link that was sent to a person leads, through the sign-in, to its page. The issuer signs what they approve, without a question while it knows
// them, with and without script. A board whose session is alive approves nothing once the issuer has forgotten the person, until they log in.
func TestIssuerSignsApprovals(t *testing.T) {
	stage.Long(t, "builds the programs and runs a browser")
	t.Parallel()
	d, issuer, url := signedBoard(t, `identity: {issuer: "ISSUER", audience: converge, required: [approve], bound: [approve]}`+"\n")
	out, code := d.Converge("release", "shop/hello", "v2", "--as", "alice")
	require.Zero(t, code, out)
	d.Await("shop/hello", "staging CONVERGED v2, production WAITING_MANUAL_APPROVAL v1")
	sheet := url + "/services/shop/hello/act/approve?version=v2&topic=production"

	alice := browse(t, 1000)
	alice.do(chromedp.Navigate(sheet))
	alice.signIn("alice@shop.dev")
	alice.sees("alice@shop.dev may not approve production", "Your issuer signs this act")
	alice.do(chromedp.Click(chromedp.CSS("main form.act button")))
	alice.sees("alice@shop.dev may not approve production")
	alice.do(chromedp.Click(chromedp.CSS("form.who button")))
	alice.sees("You are signed out here.")

	bob := browse(t, 320)
	bob.do(chromedp.Navigate(sheet))
	bob.signIn("bob@shop.dev")
	bob.sees("Approve shop/hello v2", "bob@shop.dev", "Sign out")
	bob.strict()
	codes := issuer.Codes()
	bob.do(chromedp.Click(chromedp.CSS("main form.act button")))
	bob.sees("v2 approved for production by bob@shop.dev: 1 of 2")
	require.Equal(t, codes+1, issuer.Codes(), "the issuer signed it, and did not ask")
	bob.do(chromedp.Navigate(url + "/"))
	bob.sees("No approval can be given now.", "Approvals that you cannot give", "1 of 2 (bob@shop.dev), by carol@shop.dev")

	carol := browse(t, 1000)
	carol.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
	carol.do(chromedp.Navigate(url + "/"))
	carol.signIn("carol@shop.dev")
	carol.sees("shop/hello v2", "1 of 2", "Look and approve")
	carol.do(chromedp.Navigate(issuer.URL + "/end"))
	carol.sees("You are logged out of the issuer.")
	carol.do(chromedp.Navigate(sheet), chromedp.Click(chromedp.CSS("main form.act button")))
	carol.signIn("mallory@shop.dev")
	carol.sees("the issuer says that you are mallory@shop.dev, and the page was of carol@shop.dev")
	carol.do(chromedp.Navigate(issuer.URL+"/end"), chromedp.Navigate(sheet), chromedp.Click(chromedp.CSS("main form.act button")))
	carol.signIn("carol@shop.dev")
	carol.sees("v2 approved for production by carol@shop.dev")
	d.Await("shop/hello", "staging CONVERGED v2, production CONVERGED v2")

	out, code = d.Converge("history", "shop/hello")
	require.Zero(t, code, out)
	require.Contains(t, out, "bob@shop.dev")
	require.NotContains(t, out, "bob@shop.dev?", "the name is proven")
}

// A tab whose session has ended keeps its page, says so, and requests nothing more; signed in again, it lives again.
func TestTabOfAnEndedSession(t *testing.T) {
	stage.Long(t, "builds the programs and runs a browser")
	t.Parallel()
	_, _, url := signedBoard(t, "")
	b := browse(t, 1000)
	b.do(chromedp.Navigate(url + "/services/shop/hello"))
	b.signIn("bob@shop.dev")
	b.sees("Runs v1", "live")
	other := b.open(1000)
	other.do(chromedp.Navigate(url+"/services"), chromedp.Click(chromedp.CSS("form.who button")))
	other.sees("You are signed out here.")
	b.front()
	b.sees("Runs v1", "signed out", "sign in")
	b.do(chromedp.Click(chromedp.CSS("#live a")))
	b.sees("Runs v1", "live", "bob@shop.dev")
}

// A server says how it is used, by route, and whether Temporal answers; names that a sender chooses make no metric.
func TestServeIsMeasured(t *testing.T) {
	stage.Long(t, "builds the programs")
	t.Parallel()
	d := shared.DevOfInit(t)
	d.Start()
	d.Await("shop/hello", "staging CONVERGED v1, production CONVERGED v1")
	port, metrics := shared.FreePort(t), shared.FreePort(t)
	said := d.Background("serve", "--listen", fmt.Sprintf("127.0.0.1:%d", port), "--metrics", fmt.Sprint(metrics))
	read := func(port int, method, path string) (text string) {
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			r, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
			require.NoError(t, err)
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				return false, err.Error() + said()
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			text = string(body)
			return err == nil, fmt.Sprint(err)
		})
		return text
	}
	require.Contains(t, read(port, http.MethodGet, "/services/shop/hello"), "Runs <b>v1</b>")
	require.Contains(t, read(port, http.MethodGet, "/api/v1/applications"), "shop")
	read(port, "FORGED", "/forged")
	require.Equal(t, "temporal: ok\n", read(metrics, http.MethodGet, "/readyz"))
	served := strings.Join(slices.DeleteFunc(strings.Split(read(metrics, http.MethodGet, "/metrics"), "\n"), func(line string) bool {
		return !strings.HasPrefix(line, "converge_http_request_duration_seconds_count{")
	}), "\n")
	for _, labels := range []string{`code="200",method="GET",route="/services/{application}/{service}"`, `code="200",method="GET",route="/api/v1/applications"`, `method="other"`} {
		require.Contains(t, served, labels)
	}
	require.NotContains(t, strings.ToLower(served), "forged")
}
