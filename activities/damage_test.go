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
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/intenttest"
)

// A damaged or lost payload is rendered again when it is needed, because a known version has the same bytes. The meaning of a version
// cannot be restored: the error names that version, and others are not affected.
func TestDamagedPayloadIsRenderedAgain(t *testing.T) {
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
	id := entities.Only("staging")
	request := protocol.PrepareRequest{
		Application: "shop", Service: "routes", Version: "r1", FullVersion: "r1", Incarnation: 1, Hash: hash, Instances: []entities.InstanceID{id},
	}
	answer, err := open().Prepare(ctx, request)
	require.NoError(t, err)
	digest := answer.Payloads[id].Digest
	in := runtimes.Request{Owner: runtimes.Owner{Application: "shop", Service: "routes", ID: id}, FullVersion: "r1"}
	want, err := open().payload(ctx, in, digest)
	require.NoError(t, err)
	file := filepath.Join(dir, "payloads", digest)
	for name, harm := range map[string]func() error{
		"damaged": func() error { return os.WriteFile(file, []byte("{}"), 0o600) },
		"lost":    func() error { return os.Remove(file) },
	} {
		require.NoError(t, harm(), name)
		got, err := open().payload(ctx, in, digest)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
		_, err = open().Store.Payload(ctx, digest)
		require.NoError(t, err, "%s: it is stored again", name)
	}

	records, err := filepath.Glob(filepath.Join(dir, "versions", "shop", "routes", "r1-*"))
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.NoError(t, os.WriteFile(records[0], []byte(`{"version":"r1"`), 0o600))
	_, err = open().Prepare(ctx, request)
	var app *temporal.ApplicationError
	require.True(t, errors.As(err, &app))
	require.Equal(t, protocol.ErrDamaged, app.Type())
	require.ErrorContains(t, err, "versions/shop/routes/r1-")
	request.Version, request.FullVersion = "r2", "r2"
	_, err = open().Prepare(ctx, request)
	require.NoError(t, err)
	in.FullVersion = "lost-i2" // of a configuration; no user can name it
	_, err = open().payload(ctx, in, "0000")
	require.Regexp(t, `to render it again, release the version again: converge release shop/routes lost$`, err)
	require.True(t, store.IsNotFound(err))
	request.Version, request.FullVersion, request.Initial = "r3", "r3", true
	_, err = open().Prepare(ctx, request)
	require.ErrorContains(t, err, "so this is not the first release", "a damaged record still counts as a release")
}

// A version keeps the payload of its first rendering, even if a newer Converge would render it differently.
func TestKnownVersionKeepsItsPayload_B3_D4(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	s, err := store.Open(ctx, dir)
	require.NoError(t, err)
	a := New(s, nil, nil)
	t.Cleanup(a.Close)
	hash, err := s.PutIncarnation(ctx, intenttest.Dir(t, "../intent/compile/testdata/shop").Incarnation)
	require.NoError(t, err)
	id := entities.Only("staging")
	request := protocol.PrepareRequest{
		Application: "shop", Service: "routes", Version: "r1", FullVersion: "r1", Incarnation: 1, Hash: hash, Instances: []entities.InstanceID{id},
	}
	first, err := a.Prepare(ctx, request)
	require.NoError(t, err)
	record, err := s.Version(ctx, "shop", "routes", "r1")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"staging": first.Payloads[id].Digest}, record.Payloads)

	_, _, err = s.CreateVersion(ctx, "shop", "routes", store.VersionRecord{
		Version: "r2", FullVersion: "r2", Incarnation: 1, Hash: hash, Payloads: map[string]string{"staging": "as it was"},
	})
	require.NoError(t, err)
	request.Version, request.FullVersion = "r2", "r2"
	known, err := a.Prepare(ctx, request)
	require.NoError(t, err)
	require.Equal(t, "as it was", known.Payloads[id].Digest)
	_, _, err = s.CreateVersion(ctx, "shop", "routes", store.VersionRecord{
		Version: "r3", FullVersion: "r3", Incarnation: 1, Hash: hash, Payloads: map[string]string{"production": "as it was"},
	})
	require.NoError(t, err)
	request.Version, request.FullVersion = "r3", "r3"
	known, err = a.Prepare(ctx, request)
	require.NoError(t, err)
	require.Len(t, known.Payloads[id].Digest, 64, "first named for another channel")
}

// Damaged rules differ from an outage: without rules a server would permit everything (F4).
func TestDamagedRulesDifferFromAnOutage_F4(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	s, err := store.Open(ctx, dir)
	require.NoError(t, err)
	a := New(s, nil, nil)
	t.Cleanup(a.Close)
	_, err = a.Configure(ctx, protocol.Rules{Number: 1})
	require.NoError(t, err)
	records, err := filepath.Glob(filepath.Join(dir, "rules", "*"))
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.NoError(t, os.WriteFile(records[0], []byte(`{"number":`), 0o600))

	reopened, err := store.Open(ctx, dir)
	require.NoError(t, err)
	a = New(reopened, nil, nil)
	t.Cleanup(a.Close)
	for name, call := range map[string]func() error{
		"read": func() error { _, err := a.Rules(ctx, protocol.RulesRequest{}); return err },
		"set":  func() error { _, err := a.Configure(ctx, protocol.Rules{Number: 1}); return err },
	} {
		var app *temporal.ApplicationError
		require.True(t, errors.As(call(), &app), name)
		require.Equal(t, protocol.ErrDamaged, app.Type(), name)
	}
}
