package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// A store that a workflow states is opened if it is a directory on this machine. Any other store is opened only if the user named it.
func TestReportedStoreIsNotOpened(t *testing.T) {
	for _, tt := range []struct{ flag, stated, want, refused string }{
		{"", "/var/lib/converge/store", "/var/lib/converge/store", ""},
		{"", "file:///var/lib/converge", "file:///var/lib/converge", ""},
		{"", "s3://evil?endpoint=https://evil.example", "", `the workflow reports the store "s3://evil?endpoint=https://evil.example"`},
		{"", "file:///tmp/x?secret_key_path=/etc/passwd", "", "the workflow reports the store"},
		{"s3://mine", "s3://evil", "s3://mine", ""},
	} {
		c := newConsole(t, &fakeAPI{})
		got, err := c.stores(tt.flag).Trusted(tt.stated)
		if tt.refused != "" {
			require.ErrorContains(t, err, tt.refused)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tt.want, got)
	}
	s := webStatus("prod CONVERGED v9 v9 succeeded")
	s.Store = "s3://evil?endpoint=http://127.0.0.1:1"
	for _, line := range []string{"history shop/web", "logs shop/web prod"} {
		_, output := newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {s, protocol.HistoryAnswer{}}}}).run(t, line)
		require.Contains(t, output, "confirm it with --store URL, or CONVERGE_STORE [stated-store]", line)
	}

	s.Store = filepath.Join(t.TempDir(), "elsewhere")
	for _, line := range []string{"history shop/web", "history shop/web --verify", "logs shop/web prod"} {
		_, output := newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {s, protocol.HistoryAnswer{}}}}).run(t, line)
		require.Contains(t, output, "which is not on this machine; name it with --store URL, or CONVERGE_STORE [store-elsewhere]", line)
		require.NoDirExists(t, s.Store, line)
	}
}
