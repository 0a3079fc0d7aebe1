package tests

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

var screenshots = flag.String("screenshots", "", "write a picture of every page of the board into this directory")

// tab is a tab of a real browser.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// browse starts a browser with a tab of a width in pixels.
func browse(t *testing.T, width int) tab {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no browser here: make chromium")
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium), chromedp.NoSandbox)...)
	t.Cleanup(stop)
	return newTab(allocator, t, width)
}

// open opens another tab of the same browser.
func (b tab) open(width int) tab {
	b.t.Helper()
	return newTab(b.ctx, b.t, width)
}

func newTab(of context.Context, t *testing.T, width int) tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(of)
	t.Cleanup(closeTab)
	b := tab{t, ctx}
	// The context of the first steps is that of the tab.
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate("about:blank"), chromedp.EmulateViewport(int64(width), 800)))
	return b
}

// strict lets the test fail if the page logs an error, other than that an act was refused.
func (b tab) strict() tab {
	go func() {
		for message, err := range chromedp.Console(b.ctx) {
			refused := strings.Contains(fmt.Sprint(message), "status of 409")
			if err == nil && !refused && (message.Type == "error" || message.Type == chromedp.ConsoleException) {
				b.t.Errorf("the page says: %+v", message)
			}
		}
	}()
	return b
}

// do carries out steps.
func (b tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stage.Patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

// value is what an expression of JavaScript returns on the page.
func value[T any](b tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stage.Patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err)
	return v
}

// sees waits until a person reads texts on the page, in any case of letters.
func (b tab) sees(texts ...string) {
	b.t.Helper()
	temporaltest.WaitFor(b.t, stage.Patience, func() (bool, string) {
		ctx, cancel := context.WithTimeout(b.ctx, stage.Patience)
		defer cancel()
		page, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body ? document.title + "\n" + document.body.innerText : ""`))
		if err != nil {
			return false, err.Error()
		}
		for _, text := range texts {
			if !strings.Contains(page, text) {
				return false, "no " + text + " in:\n" + page
			}
		}
		return true, ""
	})
}

// act fills in the name of a person on the sheet of an act, and sends it.
func (b tab) act(by string) {
	b.t.Helper()
	b.do(chromedp.SetValue(chromedp.CSS("#f-by"), by), chromedp.Click(chromedp.CSS("main form.act button")))
}

// On phones, two people see what waits without loading the page again, look at what changes, and approve; the release converges.
func TestApproveOnAPhone(t *testing.T) {
	stage.Long(t, "builds the programs and runs a browser")
	t.Parallel()
	d := shopWithGate(t, "{minApprovers: 2, notReleaser: true, approvers: [bob, carol]}", "0")
	bob, carol := browse(t, 320).strict(), browse(t, 320).strict()
	for _, b := range []tab{bob, carol} {
		b.do(chromedp.Navigate(apiURL(t, d) + "/"))
		b.sees("No approval can be given now.", "live")
	}
	out, code := d.Converge("release", "shop/hello", "v2", "--as", "alice")
	require.Zero(t, code, out)
	begun := time.Now()
	bob.sees("shop/hello v2", "0 of 2")
	t.Logf("the approval was on the page %s after the release", time.Since(begun).Round(time.Millisecond))
	require.LessOrEqual(t, value[int](bob, `document.documentElement.scrollWidth`), 320, "nothing is wider than the screen")
	bob.do(chromedp.Click(chromedp.CSS("main a.button")))
	bob.sees("Approve shop/hello v2", "Runs v1", "What changes", "version: v1 → v2")
	late := browse(t, 1000).strict()
	late.do(chromedp.Navigate(apiURL(t, d) + "/services/shop/hello/act/approve?version=v2&topic=production"))
	late.sees("Approve shop/hello v2", "After one more, another one is needed.", "live")
	bob.act("alice")
	bob.sees("may not approve production")
	require.Empty(t, value[string](bob, `document.querySelector("#f-version, #f-topic")?.id || ""`), "the form stays about what the page showed")
	bob.act("bob")
	late.sees("this has changed: load the page again")
	late.do(chromedp.Click(chromedp.CSS("#live a")))
	late.sees("One more is the last that is needed: v2 then enters production.", "live")
	bob.sees("v2 approved for production by bob: 1 of 2", "Dismiss")
	carol.sees("1 of 2")
	carol.do(chromedp.Click(chromedp.CSS("main a.button")))
	carol.sees("Approved by bob.")
	carol.act("carol")
	d.Await("shop/hello", "staging CONVERGED v2, production CONVERGED v2")
	bob.sees("v2 converged in every channel")
	late.sees("this has changed")
	late.do(chromedp.Click(chromedp.CSS("#live a")))
	late.sees("v2 is over: production succeeded, staging succeeded")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // a browser moves the focus when it draws
		return value[bool](late, `document.querySelector("main form.act button").disabled && document.activeElement.getAttribute("role") === "alert"`), "no focus"
	})
	carol.sees("v2 approved for production by carol")
	carol.do(chromedp.Click(chromedp.CSS("main .said button")), chromedp.WaitNotPresent(chromedp.CSS("main .said")))
	carol.do(chromedp.Navigate(apiURL(t, d) + "/services/shop/hello/history?kind=approval"))
	carol.sees("bob?", "carol?", "approved production")
}

// Without script the same forms and pages work.
func TestBoardWithoutScript(t *testing.T) {
	stage.Long(t, "builds the programs and runs a browser")
	t.Parallel()
	d := shopWithApproval(t)
	out, code := d.Converge("release", "shop/hello", "v2", "--as", "alice")
	require.Zero(t, code, out)
	d.Await("shop/hello", "staging CONVERGED v2, production WAITING_MANUAL_APPROVAL v1")
	b := browse(t, 1000).strict()
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
	b.do(chromedp.Navigate(apiURL(t, d)+"/"), chromedp.Click(chromedp.CSS("main a.button")))
	b.sees("Approve shop/hello v2", "Runs v1")
	b.do(chromedp.SendKeys(chromedp.CSS("#f-by"), "bob"), chromedp.Click(chromedp.CSS("main form.act button")))
	b.sees("v2 approved for production by bob")
	d.Await("shop/hello", "staging CONVERGED v2, production CONVERGED v2")
	b.do(chromedp.Navigate(apiURL(t, d) + "/services/shop/hello/act/rollback?channel=production"))
	b.sees("Roll back shop/hello in production", "What follows", "If you change nothing below, the answer will be: v2 is rolled back in production to v1.", "What v1 changes")
	b.do(chromedp.Click(chromedp.CSS("main ul.acts a")))
	b.sees("What shop/hello v1 changes", "version: v2 → v1")
	b.do(chromedp.Navigate(apiURL(t, d) + "/services/shop/hello/act/pause?channel=production"))
	b.sees("The answer will be: shop/hello production is paused.")
}

// Ten tabs of a browser follow one stream: with one each, the connections that browsers allow to a host would be used up.
func TestTenTabs(t *testing.T) {
	stage.Long(t, "builds the programs and runs a browser")
	t.Parallel()
	d := shopWithApproval(t)
	url := apiURL(t, d)
	first := browse(t, 1000).strict()
	tabs := []tab{first}
	for range 9 {
		tabs = append(tabs, first.open(1000).strict())
	}
	for n, b := range tabs {
		b.do(chromedp.Navigate(url + []string{"/", "/services", "/services/shop/hello"}[n%3]))
		b.sees("live")
	}
	out, code := d.Converge("release", "shop/hello", "v2", "--as", "alice")
	require.Zero(t, code, out)
	for n, b := range tabs { // a tab that is not seen reads nothing until it is
		b.front()
		b.sees([]string{"hello v2", "v2", "v2"}[n%3])
	}
	out, code = d.Converge("approve", "shop/hello", "v2", "production", "--as", "bob")
	require.Zero(t, code, out)
	tabs[9].sees("No approval can be given now.")
	first.front()
	first.sees("No approval can be given now.")
}

// front brings a tab to the front, as a person does who looks at it.
func (b tab) front() {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := chromedp.Call(ctx, cdppage.BringToFront, cdp.Empty{})
		return err
	}))
}

// The page stays, says that there is no connection, and is live again when the server is back.
func TestServerRestartsUnderAnOpenPage(t *testing.T) {
	stage.Long(t, "builds the programs and runs a browser")
	t.Parallel()
	d := shopWithGate(t, "{}", fmt.Sprint(shared.FreePort(t)))
	b := browse(t, 1000)
	b.do(chromedp.Navigate(apiURL(t, d) + "/services/shop/hello"))
	b.sees("Runs v1", "live")
	d.Stop()
	b.sees("Runs v1", "no connection")
	d.Start()
	b.sees("Runs v1", "live")
	out, code := d.Converge("release", "shop/hello", "v2", "--as", "alice")
	require.Zero(t, code, out)
	b.sees("Runs v2", "waits for approval")
}

// A person releases on the sheet, and another one watches the page of the service, which is never loaded again: it shows each step, and the end as
// soon as the service says so.
func TestWatchARelease(t *testing.T) {
	stage.Long(t, "builds the programs and runs a browser")
	t.Parallel()
	d := shared.DevOfInit(t)
	d.Start()
	d.Await("shop/hello", "staging CONVERGED v1, production CONVERGED v1")
	url := apiURL(t, d)
	watcher, person := browse(t, 1000).strict(), browse(t, 320).strict()
	watcher.do(chromedp.Navigate(url + "/services/shop/hello"))
	watcher.sees("Runs v1", "live")
	value[bool](watcher, `window.steps = []; window.converged = 0;
		new MutationObserver(() => {
			const text = document.querySelector("#channel-production").innerText.replace(/\s+/g, " ");
			if (window.steps[window.steps.length - 1] !== text) window.steps.push(text);
			if (!window.converged && text.includes("Runs v2") && text.includes("converged")) window.converged = Date.now();
		}).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true}); true`)
	value[bool](watcher, `document.body.style.minHeight = "300vh"; const d = document.querySelector("#channel-staging details"); d.open = true;
		d.querySelector("summary").focus(); scrollTo(0, 200); getSelection().selectAllChildren(document.querySelector("h1")); true`)
	person.do(chromedp.Navigate(url+"/services/shop/hello/act/release"), chromedp.SendKeys(chromedp.CSS("#f-version"), "v2"),
		chromedp.SendKeys(chromedp.CSS("#f-reason"), "for the fair"))
	person.act("alice")
	person.sees("Runs v2")
	watcher.sees("Runs v2")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		steps := value[[]string](watcher, `window.steps`)
		return value[float64](watcher, `window.converged`) > 0, strings.Join(steps, "\n")
	})
	require.Equal(t, "200 true SUMMARY shop/hello", value[string](watcher, `[scrollY, document.querySelector("#channel-staging details").open,
		document.activeElement.tagName, getSelection().toString().split(" ")[0]].join(" ")`), "the place, what is open, the focus and the selection stay")
	status := d.Await("shop/hello", "staging CONVERGED v2, production CONVERGED v2")
	since := status.Channels[len(status.Channels)-1].Since
	shown := time.UnixMilli(int64(value[float64](watcher, `window.converged`)))
	person.do(chromedp.Navigate(url + "/services/shop/hello/history?kind=release"))
	person.sees("release of v2", "(for the fair)", "alice?")
	t.Logf("the page showed the end %s after the status", shown.Sub(since).Round(time.Millisecond))
}

// A person releases and approves with keys alone, and watches it converge.
func TestBoardByKeyboard(t *testing.T) {
	stage.Long(t, "builds the programs and runs a browser")
	t.Parallel()
	d := shopWithApproval(t)
	b := browse(t, 1000).strict()
	b.do(chromedp.Navigate(apiURL(t, d) + "/"))
	b.sees("No approval can be given now.", "live")
	press := func(keys ...string) {
		t.Helper()
		for _, key := range keys {
			b.do(chromedp.KeyEvent(key))
		}
	}
	press("?")
	b.sees("Keys", "what waits")
	press(kb.Escape)
	// focus moves, link by link, to the one with the text.
	focus := func(key, text string) {
		t.Helper()
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			at := value[string](b, `document.activeElement.innerText || document.activeElement.id`)
			if at == text {
				return true, ""
			}
			press(key)
			return false, "at " + at
		})
	}
	press("s")
	b.sees("1 service")
	focus("j", "hello")
	press(kb.Enter)
	b.sees("Release a version")
	focus("j", "Release a version")
	press(kb.Enter)
	b.sees("Release shop/hello")
	focus(kb.Tab, "f-version")
	press("v", "2")
	focus(kb.Tab, "f-by")
	press("e", "v", "e")
	focus(kb.Tab, "Release shop/hello")
	press(kb.Enter)
	b.sees("v2 is release", "waits for approval")
	press("w")
	b.sees("Look and approve")
	focus("j", "Look and approve")
	press(kb.Enter)
	b.sees("Approve shop/hello v2")
	focus(kb.Tab, "Approve shop/hello v2")
	press(kb.Enter)
	d.Await("shop/hello", "staging CONVERGED v2, production CONVERGED v2")
	b.sees("v2 converged in every channel")
}

// Every page can be used by everybody: axe-core finds no violation, in light and dark; nothing is wider than a phone.
func TestBoardPages(t *testing.T) {
	stage.Long(t, "builds the programs and runs a browser")
	t.Parallel()
	axe, err := os.ReadFile("../.cache/axe/package/axe.min.js")
	if err != nil {
		t.Skip("there is no axe-core here: make axe")
	}
	week := time.Now().UTC().Add(7 * 24 * time.Hour)
	edge := "\n- name: edge\n  runtimes: [{selector: {place: edge}}]\n  rollout: {steps: [{instances: 1}]}\n  constants: {greeting: hello}"
	for _, name := range []string{"east", "west"} {
		edge += "\n---\napiVersion: converge/v1\nkind: Runtime\nname: " + name + "\nlabels: {place: edge}\n" +
			"custom: {apply: {command: [./runtime.sh, apply]}, fetch: {command: [./runtime.sh, fetch], mode: structured}}"
	}
	d := shopWithGate(t, fmt.Sprintf("{}\n  protections:\n  - {name: stocktaking, allowedTimes: {timeZone: UTC, freezes: [{from: %q, to: %q, reason: we count}]}}"+edge,
		week.Format(time.DateOnly), week.Add(24*time.Hour).Format(time.DateOnly)), "0")
	out, code := d.Converge("release", "shop/hello", "v2", "--as", "alice")
	require.Zero(t, code, out)
	d.Await("shop/hello", "staging CONVERGED v2, production WAITING_MANUAL_APPROVAL v1, edge CONVERGED v2")
	b := browse(t, 1000)
	frozen := week.Format(time.DateOnly) + "T12:00"
	for _, each := range []struct{ name, path, has string }{
		{"waiting", "/", "Look and approve"},
		{"services", "/services", "1 service"},
		{"service", "/services/shop/hello", "Explanation"},
		{"approve", "/services/shop/hello/act/approve?version=v2&topic=production", "What changes"},
		{"release", "/services/shop/hello/act/release", "Release shop/hello"},
		{"changes", "/services/shop/hello/changes?version=v2", "What is sent to the runtime"},
		{"history", "/services/shop/hello/history?verify=true", "verified up to line"},
		{"timeline", "/services/shop/hello/timeline", "Delivery in the last 30 days"},
		{"calendar", "/services/shop/hello/calendar?version=v3&approved=true&at=" + frozen, "v3 is in every channel"},
		{"calendar-of-nothing", "/services/shop/hello/calendar?version=v3&at=tomorrow", "expected one such as 2026-12-23T16:00"},
		{"fleet", "/services/shop/hello/fleet/edge", "2 of 2 instances have converged at v2"},
		{"logs", "/services/shop/hello/logs", "apply"},
		{"installation", "/installation", "Nothing was found that needs a person."},
		{"application", "/applications/shop", "is in force"},
		{"diff", "/applications/shop/diff?from=1&to=2", "production"},
		{"plan", "/applications/shop/plans/staging", "Incarnation 2 has no plan in staging"},
		{"missing", "/services/shop/helo", "did you mean shop/hello?"},
	} {
		for _, theme := range []string{"light", "dark"} {
			b.do(chromedp.EmulateViewport(1000, 800), chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
				_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
					Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
				})
				return err
			}), chromedp.Navigate(apiURL(t, d)+each.path))
			b.sees(each.has)
			if each.name == "calendar" {
				b.sees("production is closed from", "we count")
			}
			found := value[[]string](b, string(axe)+`;
				axe.run(document).then((r) => r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.html).join("; ")))`)
			require.Empty(t, found, "%s, %s", each.name, theme)
			shoot(t, b, each.name+"-"+theme)
			b.do(chromedp.EmulateViewport(320, 800))
			require.LessOrEqual(t, value[int](b, `document.documentElement.scrollWidth`), 320, each.name)
			shoot(t, b, each.name+"-"+theme+"-phone")
		}
	}
}

// shoot writes a picture of a page, if they are asked for.
func shoot(t *testing.T, b tab, name string) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, stage.Patience)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(*screenshots, name+".png"), picture, 0o600))
}
