package intent

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whole renderings of a chart with manifests and of a kustomization, as a cluster gets them.
func TestChartAndKustomization_D8(t *testing.T) {
	compiled := compileDir(t, "testdata/kubernetes")
	for _, service := range []string{"web", "api"} {
		payloads, err := Render(compiled.Incarnation, service, RenderInput{Version: "v7", FullVersion: "v7-i3"})
		require.NoError(t, err)
		for _, channel := range []string{"staging", "prod"} {
			text := strings.Join(filled(t, compiled, payloads[channel]), "\n") + "\n"
			require.NotContains(t, text, "${{")
			golden(t, filepath.Join("kubernetes", service+"-"+channel+".golden"), []byte(text))
		}
	}
}
