package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// scratch is a store in a directory, which a test damages.
type scratch struct {
	*testing.T
	dir string
}

func newScratch(t *testing.T) scratch { return scratch{t, t.TempDir()} }

// open is the store as a process that begins now sees it.
func (s scratch) open() *Store {
	s.Helper()
	out, err := Open(s.Context(), s.dir)
	require.NoError(s, err)
	return out
}

// damage changes the file of a key.
func (s scratch) damage(key string, change func([]byte) []byte) {
	s.Helper()
	file := filepath.Join(s.dir, key)
	data, err := os.ReadFile(file)
	require.NoError(s, err)
	require.NoError(s, os.WriteFile(file, change(data), 0o600))
}

// Whatever happens to a record is noticed, and harms no other: it is named with what to do, listed all the same, and
// what the caller holds is written again.
func TestDamagedRecordDoesNotAffectOthers(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"emptied":       func([]byte) []byte { return nil },
		"cut off":       func(b []byte) []byte { return b[:len(b)-20] },
		"another byte":  func(b []byte) []byte { return []byte(string(b[:20]) + "x" + string(b[21:])) },
		"zeroes":        func(b []byte) []byte { return make([]byte, len(b)) },
		"another value": func(b []byte) []byte { return slices.Replace(slices.Clone(b), len(b)-90, len(b)-89, b[len(b)-90]^1) },
		"of another": func([]byte) []byte {
			return []byte(`{"version":"v9","fullVersion":"v9","incarnation":9,"number":9,"hash":"h"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, ctx := newScratch(t), t.Context()
			for n := range 3 {
				v := fmt.Sprintf("release/v%d", n)
				_, _, err := d.open().CreateVersion(ctx, "shop", "web", VersionRecord{Version: v, FullVersion: v, Incarnation: 1, Hash: "hash"})
				require.NoError(t, err)
			}
			key := versionKey("shop", "web", "release/v1")
			d.damage(key, change)
			s := d.open()
			_, err := s.Version(ctx, "shop", "web", "release/v1")
			require.True(t, IsDamaged(err), "%v", err)
			require.ErrorContains(t, err, "the store's "+key+" is damaged: ")
			require.ErrorContains(t, err, "; the meaning of that version is lost: use a new version; or delete this")
			_, _, err = s.CreateVersion(ctx, "shop", "web", VersionRecord{Version: "release/v1", FullVersion: "release/v1", Hash: "other"})
			require.True(t, IsDamaged(err), "the meaning of a version is not guessed: %v", err)
			_, err = s.Version(ctx, "shop", "web", "release/v2")
			require.NoError(t, err)
			other, err := s.OtherVersion(ctx, "shop", "web", "release/v0")
			require.NoError(t, err)
			require.Contains(t, []string{"release/v1", "release/v2"}, other, "a damaged record counts")

			number := protocol.Incarnation{Number: 4, Hash: "hash4", Manifest: "manifest of the fourth incarnation"}
			require.NoError(t, s.PutNumber(ctx, "shop", number))
			d.damage(numberKey("shop", 4), change)
			s = d.open()
			_, err = s.Number(ctx, "shop", 4)
			require.True(t, IsDamaged(err), "%v", err)
			require.NoError(t, s.PutNumber(ctx, "shop", number))
			mended, err := s.Number(ctx, "shop", 4)
			require.NoError(t, err)
			require.Equal(t, "hash4", mended.Hash)
		})
	}
}

// What was damaged and is mended by somebody else is read, without another start.
func TestRepairedRecordIsReadAgain(t *testing.T) {
	d, ctx := newScratch(t), t.Context()
	record := VersionRecord{Version: "v1", FullVersion: "v1", Incarnation: 1, Hash: "h", Parameters: map[string]any{"digest": "sha256:1"}}
	_, _, err := d.open().CreateVersion(ctx, "shop", "web", record)
	require.NoError(t, err)
	key := versionKey("shop", "web", "v1")
	var whole []byte
	d.damage(key, func(b []byte) []byte { whole = b; return b[:9] })
	s := d.open()
	_, err = s.Version(ctx, "shop", "web", "v1")
	require.True(t, IsDamaged(err))
	d.damage(key, func([]byte) []byte { return whole })
	got, err := s.Version(ctx, "shop", "web", "v1")
	require.NoError(t, err)
	require.Equal(t, record, got)
}

// A damaged piece of an audit trail hides no other, is named in its place, and is written again from what comes again.
func TestDamagedAuditDoesNotHideOtherRecords(t *testing.T) {
	d, ctx := newScratch(t), t.Context()
	for n := range int64(3) {
		require.NoError(t, d.open().AppendAudit(ctx, "shop", "web", audit(auditStart, 10*n+1, 10*n+10)))
	}
	chunks, err := d.open().auditChunks(ctx, "shop", "web")
	require.NoError(t, err)
	d.damage(chunks[1].key, func(b []byte) []byte { return b[:len(b)-9] })
	lines, err := d.open().Audit(ctx, "shop", "web")
	require.NoError(t, err)
	require.Len(t, lines, 21)
	require.Equal(t, "damaged", lines[10].Kind)
	require.Contains(t, lines[10].Text, "lines 11 to 20: the store's "+chunks[1].key+" is damaged")
	require.NoError(t, d.open().AppendAudit(ctx, "shop", "web", audit(auditStart, 11, 20)))
	lines, err = d.open().Audit(ctx, "shop", "web")
	require.NoError(t, err)
	require.Equal(t, audit(auditStart, 1, 30), lines)
}

// A pause whose record is damaged is in force until it is ended; a runtime whose definition is hides no other.
func TestDamagedPauseIsInForce(t *testing.T) {
	d, ctx := newScratch(t), t.Context()
	pause := protocol.ScopePause{Scope: "runtime/edge", Pause: &entities.Pause{By: "ann", At: auditStart}}
	require.NoError(t, d.open().PutPause(ctx, "", pause))
	d.damage("holds/runtime/edge", func([]byte) []byte { return []byte("{") })
	pauses, err := d.open().Pauses(ctx, "shop", []string{"edge"})
	require.NoError(t, err)
	require.Len(t, pauses, 1)
	require.Equal(t, "runtime/edge", pauses[0].Scope)
	require.Contains(t, pauses[0].Pause.Reason, "holds/runtime/edge is damaged")
	require.NoError(t, d.open().PutPause(ctx, "", protocol.ScopePause{Scope: "runtime/edge"}))
	pauses, err = d.open().Pauses(ctx, "shop", []string{"edge"})
	require.NoError(t, err)
	require.Empty(t, pauses)

	for _, name := range []string{"edge", "lake"} {
		_, err := d.open().PublishRuntime(ctx, entities.RuntimeDefinition{Name: name, Owner: "shop"})
		require.NoError(t, err)
	}
	d.damage("runtimes/edge/current", func([]byte) []byte { return nil })
	all, err := d.open().Runtimes(ctx)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "lake", all[0].Name)
}

// A file system that hangs holds nobody longer than the context says.
func TestHangingFileSystem(t *testing.T) {
	d := newScratch(t)
	s := d.open()
	digest, err := s.PutPayload(t.Context(), entities.Payload{Service: "web"})
	require.NoError(t, err)
	file := filepath.Join(d.dir, "payloads", digest)
	require.NoError(t, os.Remove(file))
	require.NoError(t, syscall.Mkfifo(file, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // the deadline is what is tested
	defer cancel()
	_, err = d.open().Payload(ctx, digest)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "the store does not respond")
	pipe, err := os.OpenFile(file, os.O_RDWR, 0) // lets go what was left behind
	require.NoError(t, err)
	require.NoError(t, pipe.Close())
}
