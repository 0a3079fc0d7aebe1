package activities

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/store"
)

// A directory in a definition is resolved in this worker's directory of the application, or else in the directory that it was published
// from. A directory outside of it is rejected. The error for a missing one names it and what to do.
func TestDirectoryOfAnApplication(t *testing.T) {
	ctx := t.Context()
	s, err := store.Open(ctx, t.TempDir())
	require.NoError(t, err)
	from, root, other := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{from, root, other} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, "edge"), 0o700))
	}
	require.NoError(t, s.PutDirectory(ctx, "shop", from))
	for name, c := range map[string]struct {
		roots           Roots
		application, at string
		want, refused   string
	}{
		"published directory":         {nil, "shop", "edge", filepath.Join(from, "edge"), ""},
		"default root":                {Roots{"": root}, "shop", "edge", filepath.Join(root, "edge"), ""},
		"own root":                    {Roots{"": root, "shop": other}, "shop", ".", other, ""},
		"root of another application": {Roots{"web": other}, "shop", ".", from, ""},
		"outside":                     {Roots{"": root}, "shop", "../x", "", "directory ../x is outside the application's directory"},
		"absolute path":               {Roots{"": root}, "shop", "/srv", "", "directory /srv is outside the application's directory"},
		"missing":                     {Roots{"shop": root}, "shop", "gone", "", "set it with: converge worker --root shop=DIR"},
		"unknown":                     {nil, "web", "edge", "", "this worker does not have the directory edge of application web"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := (&Activities{Store: s, Roots: c.roots}).dir(ctx, c.application, c.at)
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, dir)
		})
	}
}

// A definition without relative paths needs no directory.
func TestDirectoryIsNotNeeded(t *testing.T) {
	a := &Activities{}
	for _, d := range []entities.RuntimeDefinition{
		{Kind: entities.RuntimeKubernetes, Dir: ".", Kubernetes: &entities.KubernetesRuntime{Context: "prod"}},
		{Kind: entities.RuntimeFake, Dir: "."},
		{Kind: entities.RuntimeCustom, Dir: ".", Custom: &entities.CustomRuntime{Job: &entities.CommandJob{}}},
		{Kind: entities.RuntimeCustom, Dir: ".", Custom: &entities.CustomRuntime{Task: &entities.CommandTask{}}},
	} {
		placed, err := a.withLocalDir(t.Context(), d)
		require.NoError(t, err)
		require.Empty(t, placed.Dir)
	}
}
