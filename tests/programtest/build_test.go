package programtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

const wrapper = "github.com/converge-engine/converge/cmd/converge-wrapper"

// Whoever builds a program that is there links nothing, so that one that runs is never replaced by its equal.
func TestProgramIsLinkedOnce(t *testing.T) {
	t.Parallel()
	dir, err := Build(t.Context(), "", wrapper)
	require.NoError(t, err)
	first, err := os.Stat(filepath.Join(dir, "converge-wrapper"))
	require.NoError(t, err)
	var g errgroup.Group
	for range 3 {
		g.Go(func() error {
			_, err := Build(t.Context(), "", wrapper)
			return err
		})
	}
	require.NoError(t, g.Wait())
	again, err := os.Stat(filepath.Join(dir, "converge-wrapper"))
	require.NoError(t, err)
	require.True(t, os.SameFile(first, again), "it is not linked again")
}

func TestTagsHaveAFolderOfTheirOwn(t *testing.T) {
	t.Parallel()
	plain, err := Build(t.Context(), "", wrapper)
	require.NoError(t, err)
	tagged, err := Build(t.Context(), "programtest", wrapper)
	require.NoError(t, err)
	require.NotEqual(t, plain, tagged)
}

func TestBuildFailuresAreReported(t *testing.T) {
	t.Parallel()
	_, err := Build(t.Context(), "", "github.com/converge-engine/converge/cmd/missing")
	require.ErrorContains(t, err, "build github.com/converge-engine/converge/cmd/missing: ")
	require.ErrorContains(t, err, "no required module provides package")
}
