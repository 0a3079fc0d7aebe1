package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

func TestStoreKeepsChecksAndExtensions(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		check := entities.CheckDefinition{
			Application: "shop", Service: "web", ID: "never", Kind: entities.CheckAlways,
			Always: &entities.AlwaysCheck{Verdict: entities.Wait, Reason: "a < b"},
		}
		digest, err := s.PutCheck(ctx, check)
		require.NoError(t, err)
		require.Equal(t, entities.DigestOf(check), digest)
		extension := entities.ExtensionDefinition{Name: "migrate", Command: entities.Command{Argv: []string{"./migrate"}}}
		other, err := s.PutExtension(ctx, extension)
		require.NoError(t, err)
		s.cache = newCache()
		gotCheck, err := s.Check(ctx, digest)
		require.NoError(t, err)
		require.Equal(t, check, gotCheck)
		gotExtension, err := s.Extension(ctx, other)
		require.NoError(t, err)
		require.Equal(t, extension, gotExtension)
		_, err = s.Extension(ctx, digest)
		require.True(t, IsNotFound(err), "%v", err)
	})
}

var auditStart = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// audit makes lines of a trail that began at a time; number n comes n seconds later.
func audit(began time.Time, from, to int64) []entities.AuditEntry {
	var lines []entities.AuditEntry
	for n := from; n <= to; n++ {
		lines = append(lines, entities.AuditEntry{N: n, At: began.Add(time.Duration(n) * time.Second), Kind: entities.EventTarget, Text: "v1 to prod"})
	}
	return lines
}

func appendsAudit(t *testing.T, s *Store) {
	ctx := t.Context()
	all, err := s.Audit(ctx, "shop", "web")
	require.NoError(t, err)
	require.Empty(t, all)

	require.NoError(t, s.AppendAudit(ctx, "shop", "web", nil))
	require.NoError(t, s.AppendAudit(ctx, "shop", "web", audit(auditStart, 1, 12)))
	require.NoError(t, s.AppendAudit(ctx, "shop", "web", audit(auditStart, 1, 12)), "again")
	changed := audit(auditStart, 10, 15)
	changed[0].Text = "another text"
	require.NoError(t, s.AppendAudit(ctx, "shop", "web", changed), "some of them again, with later ones")
	require.NoError(t, s.AppendAudit(ctx, "shop", "web", audit(auditStart, 16, 100)))
	require.NoError(t, s.AppendAudit(ctx, "shop", "", audit(auditStart, 1, 2)), "the application's own")
	require.NoError(t, s.AppendAudit(ctx, "shop", "web2", audit(auditStart, 1, 1)))
	chunks, err := s.auditChunks(ctx, "shop", "web")
	require.NoError(t, err)
	require.Len(t, chunks, 3)

	s.cache = newCache()
	all, err = s.Audit(ctx, "shop", "web")
	require.NoError(t, err)
	require.Equal(t, audit(auditStart, 1, 100), all)
	all, err = s.Audit(ctx, "shop", "")
	require.NoError(t, err)
	require.Equal(t, audit(auditStart, 1, 2), all)

	later := auditStart.Add(time.Hour)
	require.NoError(t, s.AppendAudit(ctx, "shop", "web", audit(later, 1, 3)), "removed, and declared again")
	all, err = s.Audit(ctx, "shop", "web")
	require.NoError(t, err)
	require.Equal(t, append(audit(auditStart, 1, 100), audit(later, 1, 3)...), all)
}

func TestStoreAppendsAudit(t *testing.T) { eachStore(t, appendsAudit) }

func TestStoreAppendsAuditOnS3(t *testing.T) {
	s, _ := openS3Store(t)
	appendsAudit(t, s)
}

// A trail that a clock was set back in is read in the order in which it was recorded, and continued after the line that was recorded last.
func TestStoreReadsAuditInItsOrder_F6(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		var lines []entities.AuditEntry
		before := ""
		for n, hour := range []int{10, 11, 12, 1, 2, 3, 9} {
			l := entities.AuditEntry{N: int64(n + 1), Prev: before, At: time.Date(2026, 1, 2, hour, 0, 0, 0, time.UTC), Kind: entities.EventTarget, Text: fmt.Sprint(n + 1)}
			lines, before = append(lines, l), l.Hash()
		}
		for _, part := range [][]entities.AuditEntry{lines[:2], lines[2:4], lines[4:6], lines[6:]} {
			require.NoError(t, s.AppendAudit(t.Context(), "shop", "web", part))
		}
		all, err := s.Audit(t.Context(), "shop", "web")
		require.NoError(t, err)
		require.Equal(t, lines, all)
		end, err := s.TrailEnd(t.Context(), "shop", "web")
		require.NoError(t, err)
		require.Equal(t, &entities.TrailEnd{N: 7, Hash: before}, end)
	})
}

// Two writers that did not see each other leave chunks that overlap.
func TestStoreReadsOverlappingAuditOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		require.NoError(t, s.AppendAudit(ctx, "shop", "web", audit(auditStart, 1, 3)))
		key := auditPrefix("shop", "web")
		require.NoError(t, s.AppendAudit(ctx, "shop", "other", audit(auditStart, 1, 5)))
		chunks, err := s.auditChunks(ctx, "shop", "other")
		require.NoError(t, err)
		data, err := s.blobs.read(ctx, chunks[0].key)
		require.NoError(t, err)
		require.NoError(t, s.blobs.write(ctx, key+"20261121T100001.000000000-1-5", data))
		all, err := s.Audit(ctx, "shop", "web")
		require.NoError(t, err)
		require.Equal(t, audit(auditStart, 1, 5), all)

		require.NoError(t, s.blobs.write(ctx, key+"20261121T100009.000000000-9-9", []byte("{")))
		all, err = s.Audit(ctx, "shop", "web")
		require.NoError(t, err)
		require.Len(t, all, 6)
		require.Contains(t, all[5].Text, "not part of an audit trail")
	})
}

func TestStoreKeepsPauses_A16(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		pause := &entities.Pause{Reason: "outage", At: auditStart}
		application := protocol.ScopePause{Scope: "application", Pause: pause}
		runtime := protocol.ScopePause{Scope: protocol.RuntimeID("eu"), Pause: pause}
		require.NoError(t, s.PutPause(ctx, "shop", application))
		require.NoError(t, s.PutPause(ctx, "", runtime))

		pauses, err := s.Pauses(ctx, "shop", []string{"us", "eu"})
		require.NoError(t, err)
		require.Equal(t, []protocol.ScopePause{application, runtime}, pauses)
		pauses, err = s.Pauses(ctx, "other", []string{"us"})
		require.NoError(t, err)
		require.Empty(t, pauses)

		application.Pause = nil
		require.NoError(t, s.PutPause(ctx, "shop", application))
		require.NoError(t, s.PutPause(ctx, "shop", application), "ended already")
		pauses, err = s.Pauses(ctx, "shop", []string{"eu"})
		require.NoError(t, err)
		require.Equal(t, []protocol.ScopePause{runtime}, pauses)

		all := protocol.PauseEnded{Scope: entities.ScopeInstallation, Began: auditStart}
		eu := protocol.PauseEnded{Scope: protocol.RuntimeID("eu"), Began: auditStart}
		shop := protocol.PauseEnded{Scope: entities.ScopeApplication, Began: auditStart}
		for application, ended := range map[string]protocol.PauseEnded{"": all, "shop": shop, "other": eu} {
			require.NoError(t, s.PutPauseEnded(ctx, application, ended))
		}
		require.NoError(t, s.blobs.write(ctx, endedPauses+"runtime/us", []byte("{")))
		ended, err := s.PausesEnded(ctx, "shop")
		require.NoError(t, err)
		require.ElementsMatch(t, []protocol.PauseEnded{all, eu, shop}, ended)
		ended, err = s.PausesEnded(ctx, "other")
		require.NoError(t, err)
		require.ElementsMatch(t, []protocol.PauseEnded{all, eu}, ended)
	})
}

// The output of extensions is kept beside that of applies, so many of each.
func TestStoreKeepsOutputOfExtensions_A21(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		put := func(entry LogEntry) string {
			key, err := s.PutLogKey(t.Context(), "shop", "web", "prod", entry)
			require.NoError(t, err)
			return key
		}
		first := put(LogEntry{Kind: LogExtension, Name: "migrate-db", At: auditStart})
		require.Equal(t, "logs/shop/web/prod/extension/migrate-db/", first[:len("logs/shop/web/prod/extension/migrate-db/")])
		require.NotEqual(t, first, put(LogEntry{Kind: LogExtension, Name: "migrate-db", At: auditStart}), "of one moment")
		for n := range 3 * keptLogs {
			put(LogEntry{Kind: LogExtension, Name: "migrate", At: auditStart.Add(time.Duration(n+1) * time.Second)})
		}
		put(LogEntry{Kind: LogApply, At: auditStart.Add(time.Hour)})
		logs, err := s.Logs(t.Context(), "shop", "web", "prod")
		require.NoError(t, err)
		names := map[string]int{}
		for _, l := range logs {
			names[string(l.Kind)+" "+l.Name]++
		}
		require.Equal(t, map[string]int{"apply ": 1, "extension migrate": keptLogs, "extension migrate-db": 2}, names)
	})
}
