package security

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/idptest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker/embedded"
)

// org is a library whose production has a freeze and an approval; another version says otherwise.
const org = `apiVersion: converge/v1
kind: Library
name: org
version: 1
releaseChannels:
- {name: staging, runtimes: [{name: APP-rt}]}
- name: production
  runtimes: [{name: APP-rt}]
  preconditions: [{releaseChannelStable: {releaseChannel: staging}}, {manualApproval: {minApprovers: 2}}]
  protections: [{ref: freeze}]
---
apiVersion: converge/v1
kind: Protection
name: freeze
always: {verdict: FAIL, reason: "${{ service }} is frozen"}
`

const importsOrg = `apiVersion: converge/v1
kind: Application
name: APP
imports: [{name: org, version: 1}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
`

// shelved writes a library to a directory.
func shelved(w *stage.World, text string) string {
	w.T.Helper()
	dir := w.T.TempDir()
	require.NoError(w.T, os.WriteFile(filepath.Join(dir, "converge.yaml"), []byte(strings.ReplaceAll(text, "APP", w.App)), 0o600))
	return dir
}

// shelves publishes a library as the command line does.
func shelves(w *stage.World, text string, more ...string) (string, error) {
	w.T.Helper()
	arguments := append([]string{"config", "library", "publish", shelved(w, text), "--address", w.Address, "--store", w.Store}, more...)
	cmd := exec.CommandContext(w.T.Context(), shared.Converge(w.T), arguments...)
	cmd.Env = append(os.Environ(), "CONVERGE_BY=olga")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// takes publishes the application with the library of a version, and says what it loosens.
func takes(w *stage.World, version string) (publish.Result, error) {
	w.T.Helper()
	w.Write(strings.Replace(importsOrg, "version: 1", version, 1) + stage.Web)
	return publish.Publish(w.T.Context(), publish.Options{Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "petra", Fake: true})
}

func opened(w *stage.World) *store.Store {
	w.T.Helper()
	s, err := store.Open(w.T.Context(), w.Store)
	require.NoError(w.T, err)
	w.T.Cleanup(func() { _ = s.Close() })
	return s
}

// A library is published once under a version, an application imports it, and its releases stop at the gates that it has from
// there. A version that asks for less is listed before it is published, and afterwards with who did. The incarnation names the content.
func TestReleasesPassWhatIsImported_G2(t *testing.T) {
	t.Parallel()
	w := shared.OwnServerWith(t, embedded.Options{})
	_, err := takes(w, "version: 1")
	require.ErrorContains(t, err, `converge.yaml:4:11: imports[0]: there is no library "org"; expected a library that was published with: converge config library publish DIR [unknown-library]`)
	said, err := shelves(w, org)
	require.NoError(t, err, said)
	digest := strings.TrimSpace(strings.TrimPrefix(said, "library org 1 is published: "))
	require.Len(t, digest, 64, said)
	said, err = shelves(w, org)
	require.NoError(t, err, said)
	require.Equal(t, "library org 1 was published by olga already; nothing changed\n", said)

	result, err := takes(w, "version: 1")
	require.NoError(t, err)
	inc, err := opened(w).Incarnation(t.Context(), result.Hash)
	require.NoError(t, err)
	require.Equal(t, []incarnation.Import{{Name: "org", Version: 1, Digest: digest}}, inc.Imports())
	w.Release("web", "v1")
	held := func(s protocol.Status) bool {
		g := gates(s, "production")
		return g["freeze"] == "FAIL" && g["approval/production"] != ""
	}
	w.AwaitThat("web", "the gates of the library", held)
	w.AwaitThat("web", "its reason", func(s protocol.Status) bool { return strings.Contains(fmt.Sprint(s.Channels), "web is frozen") })
	require.Zero(t, w.Fake.At(w.App, "web", "production").Applies())

	other := strings.Replace(strings.Replace(org, "minApprovers: 2", "minApprovers: 1", 1), "FAIL", "PASS", 1)
	said, err = shelves(w, other)
	require.Error(t, err)
	require.Contains(t, said, "library org 1 was published by olga at ")
	require.Contains(t, said, " with other content, "+digest+"; give this one another version")
	said, err = shelves(w, strings.Replace(other, "version: 1", "version: 2", 1))
	require.NoError(t, err, said)
	w.AwaitThat("web", "what it was", held)

	_, err = takes(w, "version: 7")
	require.ErrorContains(t, err, "imports[0]: there is no version 7 of library org; expected one of 1, 2 [unknown-library]")
	result, err = takes(w, "version: 2")
	require.NoError(t, err)
	require.Equal(t, "[web in production: approval/production from 1 instead of 2 web in production: freeze: always passes]", fmt.Sprint(result.Loosened))
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	said, code := history(w, w.App+"/web")
	require.Zero(t, code, said)
	require.Regexp(t, `petra.*approval/production from 1 instead of 2`, said)

	require.Regexp(t, `(?m)^  ~ imports.org  1 \(`+digest[:12]+`\) → 2 \([0-9a-f]{12}\)$`, converge(w, "config", "diff", w.App, "1", "2", "--store", w.Store))

	said, code = history(w, "--installation")
	require.Zero(t, code, said)
	require.Contains(t, said, "library org 1 is published: "+digest)
	require.NotContains(t, said, "with other content")
	require.Equal(t, 1, strings.Count(said, "library org 1 "), said)

	d := shared.Prompt(t, t.TempDir(), w.Address)
	d.Env = []string{"CONVERGE_STORE=" + w.Store}
	archive, err := txtar.ParseFile("../../cmd/converge/testdata/library.txtar")
	require.NoError(t, err)
	require.NoError(t, txtar.Write(archive, d.Dir)) // has the directory libraries/org
	d.RunPage(stage.Only(t, "../../docs/spec/library.md", "Publishing"))
}

// An application that is pinned to an incarnation with an older, looser version of a library has the gates of the version that its newest
// incarnation imports.
func TestPinKeepsTheNewestLibrary_G2(t *testing.T) {
	t.Parallel()
	w := shared.OwnServerWith(t, embedded.Options{})
	loose := strings.Replace(strings.Replace(org, "minApprovers: 2", "minApprovers: 1", 1), "FAIL", "PASS", 1)
	for _, text := range []string{loose, strings.Replace(org, "version: 1", "version: 2", 1)} {
		said, err := shelves(w, text)
		require.NoError(t, err, said)
	}
	for _, version := range []string{"version: 1", "version: 2"} {
		_, err := takes(w, version)
		require.NoError(t, err)
	}
	require.NoError(t, w.Update(protocol.ApplicationID(w.App), protocol.Pin, raw(`{"incarnation":1,"by":"test","reason":"back"}`), &protocol.Answer{}))
	w.Release("web", "v1")
	w.AwaitThat("web", "the pin", func(s protocol.Status) bool {
		return s.Incarnation == 1 && len(journalled(s, "incarnation 1, under the rules of incarnation 2")) > 0
	})
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
	w.AwaitThat("web", "the gates of the newest version", func(s protocol.Status) bool {
		return gates(s, "production")["freeze"] == "FAIL" && strings.Contains(textOf(t, s), "1 of 2 (alice)")
	})
	require.Zero(t, w.Fake.At(w.App, "web", "production").Applies())
}

// What the store has of a library is believed by its digest only: damaged content is named until it is published again; another
// content under the version that was imported is refused, and so is one that the import names by another digest.
func TestTamperedLibraryIsRefused_G1(t *testing.T) {
	t.Parallel()
	w := shared.OwnServerWith(t, embedded.Options{})
	said, err := shelves(w, org)
	require.NoError(t, err, said)
	digest := strings.TrimSpace(strings.TrimPrefix(said, "library org 1 is published: "))
	pinned := "version: 1, digest: " + digest
	_, err = takes(w, pinned)
	require.NoError(t, err)

	content := filepath.Join(w.Store, "library-contents", digest)
	was, err := os.ReadFile(content)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(content, []byte(strings.Replace(string(was), "FAIL", "PASS", 1)), 0o600))
	_, err = takes(w, "version: 1")
	require.ErrorContains(t, err, "imports[0]: library org 1 is damaged in the store: ")
	said, err = shelves(w, org)
	require.NoError(t, err, said)
	_, err = takes(w, "version: 1")
	require.NoError(t, err)

	require.NoError(t, os.Remove(filepath.Join(w.Store, "libraries", "org", fmt.Sprintf("%012d", 1))))
	w.StartWorker() // one that has read nothing
	other := strings.Replace(org, "FAIL", "PASS", 1)
	s := opened(w)
	c, _ := config.ParseLibrary(config.LibraryContent{Files: map[string]string{"converge.yaml": strings.ReplaceAll(other, "APP", w.App)}}, "")
	forged, err := s.PutLibraryContent(t.Context(), c.Content)
	require.NoError(t, err)
	_, err = s.CreateLibrary(t.Context(), protocol.Library{LibraryName: protocol.LibraryName{Name: "org", Version: 1, Digest: forged}, By: entities.Who{Name: "olga"}})
	require.NoError(t, err)
	_, err = takes(w, "version: 1")
	require.ErrorIs(t, err, publish.ErrRefused)
	require.ErrorContains(t, err, "library org 1 had the digest "+digest+" in the newest incarnation, and has "+forged+" in the store now")
	_, err = takes(w, pinned)
	require.ErrorContains(t, err, "imports[0]: the content of library org 1 is "+forged+"; expected "+digest+" [library-differs]")
	require.Equal(t, int64(1), w.Status("web").Incarnation)
}

// Nothing but the content of a library is published as one, whoever names it: as an update, and as a signal.
func TestOnlyALibraryIsPublished_G1(t *testing.T) {
	t.Parallel()
	w := shared.OwnServerWith(t, embedded.Options{})
	s := opened(w)
	puts := func(name string, version int, text string) string {
		digest, err := s.PutLibraryContent(t.Context(), config.LibraryContent{Name: name, Version: version, Files: map[string]string{"converge.yaml": strings.ReplaceAll(text, "APP", w.App)}})
		require.NoError(t, err)
		return digest
	}
	none := strings.Repeat("0", 64)
	for n, refused := range []struct{ name, digest, why string }{
		{"org", none, "content not found"},
		{"org", puts("org", 2, strings.Replace(org, "version: 1", "version: 2", 1)), "is library org 2, not org 1"},
		{"mine", puts("org", 1, org), "is library org 1, not mine 1"},
		{"org", puts("org", 1, importsOrg), "is not a library: "},
		{"org", puts("org", 1, strings.Repeat("#", config.MaxLibrary+1)), "is not a library: converge.yaml:1:1: the library is too large"},
		{"org", puts("", 1, org), "contains more than a library"},
		{"org", "abc", `"content" is "abc"; expected the SHA-256 of the stored content`},
		{"Org", none, `"name" is "Org"; expected the name of a library`},
	} {
		request := protocol.LibraryRequest{RequestMeta: protocol.RequestMeta{By: "mallory"}, LibraryName: protocol.LibraryName{Name: refused.name, Version: 1, Digest: refused.digest}}
		require.ErrorContains(t, w.Update(protocol.InstallationID(), protocol.PublishLibrary, request, &protocol.Answer{}), refused.why)
		require.NoError(t, w.Client.SignalWorkflow(t.Context(), protocol.InstallationID(), "", protocol.PublishLibrary, request))
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			all := standing(t, w.Client, protocol.InstallationID()).Refused
			return len(all) == n+1 && strings.Contains(all[n].Reason, refused.why), fmt.Sprint(all)
		})
	}
	known, err := s.Libraries(t.Context())
	require.NoError(t, err)
	require.Empty(t, known)
	said, code := history(w, "--installation")
	require.Zero(t, code, said)
	require.NotContains(t, said, "is published")
}

// Where the rules of the installation say who may publish a library, nobody else does; who may proves it, and the history says so.
func TestWhoMayPublishALibrary_G1(t *testing.T) {
	t.Parallel()
	w, issuer := shared.OwnServerWith(t, embedded.Options{}), idptest.New(t)
	require.NoError(t, sets(t, w, fmt.Sprintf(`identity: {issuer: %q, audience: %q}
authorization:
- {verbs: [publish-library], libraries: [org, "org-*"], to: [alice@shop.dev]}
`, issuer.URL, idptest.Audience), "olga", ""))
	for _, refused := range []struct{ text, token, why string }{
		{org, "none", `publish-library needs proof of identity, since only certain callers may: "token" is missing`},
		{org, issuer.TokenOf(t, "bob@shop.dev"), "bob@shop.dev may not publish-library in library/org; allowed: alice@shop.dev"},
		{strings.Replace(org, "name: org", "name: team", 1), issuer.TokenOf(t, "alice@shop.dev"), "alice@shop.dev may not publish-library in library/team; allowed: no one"},
	} {
		said, err := shelves(w, refused.text, "--token", refused.token)
		require.Error(t, err)
		require.Contains(t, said, refused.why)
	}
	s := opened(w)
	c, problems := config.ParseLibrary(config.LibraryContent{Files: map[string]string{"converge.yaml": strings.ReplaceAll(org, "APP", w.App)}}, "")
	require.Empty(t, problems)
	signalled, err := json.Marshal(protocol.LibraryRequest{RequestMeta: protocol.RequestMeta{By: "alice@shop.dev"}, LibraryName: protocol.LibraryName{Name: "org", Version: 1, Digest: c.Content.Digest()}})
	require.NoError(t, err)
	require.NoError(t, w.Client.SignalWorkflow(t.Context(), protocol.InstallationID(), "", protocol.PublishLibrary, raw(string(signalled))))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		all := standing(t, w.Client, protocol.InstallationID()).Refused
		return len(all) == 1 && strings.Contains(all[0].Reason, "needs proof"), fmt.Sprint(all)
	})
	known, err := s.Libraries(t.Context())
	require.NoError(t, err)
	require.Empty(t, known)

	said, err := shelves(w, org, "--token", issuer.TokenOf(t, "alice@shop.dev"))
	require.NoError(t, err, said)
	library, err := s.Library(t.Context(), "org", 1)
	require.NoError(t, err)
	require.Equal(t, "alice@shop.dev", library.By.Name)
	require.True(t, library.By.Proven)
	lines := standing(t, w.Client, protocol.InstallationID()).Audit
	last := lines[len(lines)-1]
	require.Equal(t, "library org 1 is published: "+library.Digest, last.Text)
	require.True(t, last.Who.Proven)
}
