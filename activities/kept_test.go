package activities

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/intenttest"
)

// A version whose incarnation is marked for garbage collection can be released again, which renews the incarnation. If the incarnation is
// gone, the release is rejected permanently, because the name cannot get another meaning.
func TestReleasedAgainFromAnOldIncarnation_F11(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	open := func() *Activities {
		s, err := store.Open(ctx, dir)
		require.NoError(t, err)
		a := New(s, nil, nil)
		t.Cleanup(a.Close)
		return a
	}
	hash, err := open().Store.PutIncarnation(ctx, intenttest.Dir(t, "../intent/compile/testdata/shop").Incarnation)
	require.NoError(t, err)
	request := protocol.PrepareRequest{
		Application: "shop", Service: "routes", Version: "r1", FullVersion: "r1", Incarnation: 1, Hash: hash, Instances: []entities.InstanceID{entities.Only("staging")},
	}
	want, err := open().Prepare(ctx, request)
	require.NoError(t, err)
	want.Known = true

	request.Incarnation, request.Hash = 2, "another"
	file, aside := filepath.Join(dir, "incarnations", hash), filepath.Join(dir, "unreferenced", "incarnations", hash)
	require.NoError(t, os.MkdirAll(filepath.Dir(aside), 0o700))
	require.NoError(t, os.Rename(file, aside))
	got, err := open().Prepare(ctx, request)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.FileExists(t, file)

	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Remove(aside))
	_, err = open().Prepare(ctx, request)
	var app *temporal.ApplicationError
	require.True(t, errors.As(err, &app))
	require.Equal(t, protocol.ErrRefused, app.Type())
	require.ErrorContains(t, err, "version r1 belongs to incarnation 1, which is no longer stored (converge admin store gc); release it under a new name: converge release shop/routes VERSION")
}
