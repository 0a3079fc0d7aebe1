package security

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/worker/embedded"
)

// What the store has of what is newest, and is damaged or lost, is written again by publishing the same once more, as the error
// says that names it.
func TestPublishingAgainMendsTheStore(t *testing.T) {
	t.Parallel()
	w := shared.OwnServerWith(t, embedded.Options{})
	w.Write(digested + stage.Web)
	w.Publish()
	for name, harm := range map[string]func(file string) error{
		"damaged": func(file string) error { return os.WriteFile(file, []byte(`{"damaged":true}`), 0o600) },
		"lost":    os.Remove,
	} {
		for _, folder := range []string{"incarnations", "specs", "manifests", "checks", "extensions"} {
			files, err := filepath.Glob(filepath.Join(w.Store, folder, "*"))
			require.NoError(t, err)
			require.NotEmpty(t, files, folder)
			for _, file := range files {
				require.NoError(t, harm(file))
			}
			w.Publish()
			for _, file := range files {
				data, err := os.ReadFile(file)
				require.NoError(t, err, "%s %s", name, folder)
				sum := sha256.Sum256(data)
				require.Equal(t, filepath.Base(file), hex.EncodeToString(sum[:]), "%s %s", name, folder)
			}
		}
	}
}
