package publish

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/store"
)

func TestResultText(t *testing.T) {
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

func TestRejectedNamesTheNewestIncarnation(t *testing.T) {
	problems := config.Problems{{File: "a.yaml", Line: 1, Column: 2, Fault: config.Fault{Code: "oops", Message: "wrong"}}}
	require.Equal(t, "a.yaml:1:2: wrong [oops]\n1 error; nothing published, incarnation 41 stays newest", (&Rejected{problems, 41}).Error())
	require.Equal(t, "a.yaml:1:2: wrong [oops]\n1 error; nothing published", (&Rejected{problems, 0}).Error())
	require.ErrorAs(t, error(&Rejected{problems, 0}), new(config.Problems))
}

// The definitions that a spec refers to are in the store before it: those of checks and of extensions.
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
