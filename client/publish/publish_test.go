package publish

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/store"
)

func TestRepositoryOf(t *testing.T) {
	for remote, want := range map[string]string{
		"https://github.com/acme/shop.git":          "github.com/acme/shop",
		"https://user:secret@github.com/acme/shop":  "github.com/acme/shop",
		"ssh://git@git.acme.dev:2222/acme/shop.git": "git.acme.dev/acme/shop",
		"git@github.com:acme/shop.git":              "github.com/acme/shop",
		"github.com:acme/shop/":                     "github.com/acme/shop",
		"/srv/git/shop.git":                         "",
		"../shop":                                   "",
		"file:///srv/git/shop.git":                  "",
	} {
		require.Equal(t, want, repositoryOf(remote), remote)
	}
}

func TestOriginOf(t *testing.T) {
	dir := t.TempDir()
	require.Equal(t, protocol.Origin{Path: dir}, OriginOf(t.Context(), dir), "no repository")

	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"}, args...)...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	deploy := filepath.Join(dir, "deploy", "shop")
	require.NoError(t, os.MkdirAll(deploy, 0o755))
	file := filepath.Join(deploy, "converge.yaml")
	require.NoError(t, os.WriteFile(file, []byte("a"), 0o600))
	git("init", "-q")
	require.Equal(t, protocol.Origin{Path: deploy, Dirty: true}, OriginOf(t.Context(), deploy), "nothing committed")

	git("add", ".")
	git("commit", "-q", "-m", "a")
	git("remote", "add", "origin", "https://token@git.acme.dev/acme/mono.git")
	origin := OriginOf(t.Context(), deploy)
	require.Len(t, origin.Commit, 40)
	require.Equal(t, protocol.Origin{Path: "git.acme.dev/acme/mono//deploy/shop", Commit: origin.Commit}, origin)
	require.Equal(t, "git.acme.dev/acme/mono//", OriginOf(t.Context(), dir).Path)

	require.NoError(t, os.MkdirAll(filepath.Join(deploy, ".converge"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(deploy, ".converge", "db"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "elsewhere"), nil, 0o600))
	require.False(t, OriginOf(t.Context(), deploy).Dirty, "only the directory counts, without our own state")
	require.NoError(t, os.WriteFile(file, []byte("b"), 0o600))
	require.True(t, OriginOf(t.Context(), deploy).Dirty)
}

func TestResultSays(t *testing.T) {
	r := Result{Application: "shop", Incarnation: 42, Previous: 41, Services: []string{"api", "web"}, Changed: []string{"web"}}
	for _, tt := range []struct {
		edit func(*Result)
		want string
	}{
		{func(*Result) {}, "incarnation 42 of shop published: 2 services, 1 changed"},
		{func(r *Result) { r.Removed = []string{"old"} }, "incarnation 42 of shop published: 2 services, 1 changed, 1 no longer declared"},
		{func(r *Result) { r.Unchanged = true }, "nothing changed: incarnation 42 of shop stays newest"},
		{func(r *Result) { r.Previous = 42 }, "runtimes changed: 1 service notified; incarnation 42 of shop stays newest"},
		{func(r *Result) { r.DryRun = true }, "not published: 2 services, 1 changed since incarnation 41"},
		{func(r *Result) { r.DryRun, r.Previous = true, 0 }, "not published: 2 services, 1 changed, as the first incarnation"},
		{func(r *Result) { r.DryRun, r.Unchanged = true, true }, "nothing would change: incarnation 42 of shop has this content already"},
	} {
		got := r
		tt.edit(&got)
		require.Equal(t, tt.want, got.String())
	}
}

func TestRejectedSaysWhatStays(t *testing.T) {
	problems := config.Problems{{File: "a.yaml", Line: 1, Column: 2, Fault: config.Fault{Code: "oops", Message: "wrong"}}}
	require.Equal(t, "a.yaml:1:2: wrong [oops]\n1 error; nothing published, incarnation 41 stays newest", (&Rejected{problems, 41}).Error())
	require.Equal(t, "a.yaml:1:2: wrong [oops]\n1 error; nothing published", (&Rejected{problems, 0}).Error())
	require.ErrorAs(t, error(&Rejected{problems, 0}), new(config.Problems))
}

// What a spec names is in the store before it: how checks are evaluated, and what extensions run.
func TestDefinitionsAreWritten(t *testing.T) {
	config, err := compile.Load("../../intent/compile/testdata/gates")
	require.NoError(t, err)
	compiled, err := compile.Compile(config)
	require.NoError(t, err)
	specs, err := compiled.Specs()
	require.NoError(t, err)
	store, err := store.Open(t.Context(), t.TempDir())
	require.NoError(t, err)
	defer store.Close()
	p := &publication{store: store, compiled: compiled, specs: specs}
	require.NoError(t, p.writeDefinitions(t.Context(), []string{"web", "lb", "routes"}))
	checks, extensions := 0, 0
	for service, spec := range specs {
		for _, channel := range spec.Channels {
			for _, c := range channel.Checks {
				definition, err := store.Check(t.Context(), c.Definition)
				require.NoError(t, err, "%s %s %s", service, channel.Name, c.ID)
				require.Equal(t, c.ID, definition.ID)
				checks++
			}
			for _, e := range channel.Extensions {
				definition, err := store.Extension(t.Context(), e.Definition)
				require.NoError(t, err, "%s %s %s", service, channel.Name, e.Name)
				require.Equal(t, e.Name, definition.Name)
				extensions++
			}
		}
	}
	require.Greater(t, checks, 30)
	require.Greater(t, extensions, 8)
}
