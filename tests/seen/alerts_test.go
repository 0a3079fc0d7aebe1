package seen

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/monitoringtest"
)

const alerts = "../../deploy/prometheus/converge.yaml"

// Each alert is of metrics that are documented, and is in the table of the page that it sends people to.
func TestAlertsAreDocumented_F10(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(alerts)
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/observing.md")
	require.NoError(t, err)
	known := documented(t)
	ours := regexp.MustCompile(`\bconverge_[a-z_]+\b`).FindAllString(string(data), -1)
	require.NotEmpty(t, ours)
	for _, name := range ours {
		require.Contains(t, known, strings.TrimSuffix(name, "_count"))
	}
	for _, name := range regexp.MustCompile(`\btemporal_[a-z_]+\b`).FindAllString(string(data), -1) {
		require.Contains(t, string(page), strings.TrimSuffix(name, "_bucket"))
	}
	names := regexp.MustCompile(`(?m)alert: (\w+)$`).FindAllStringSubmatch(string(data), -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.Contains(t, string(page), "| `"+name[1]+"` |")
	}
}

// Prometheus' own tool takes the alerts, and has each of them when nothing is well, and none when all is.
func TestAlerts_F10(t *testing.T) {
	t.Parallel()
	promtool := monitoringtest.Program(t, "promtool")
	for _, arguments := range [][]string{{"check", "rules", alerts}, {"test", "rules", "testdata/alerts.yaml"}} {
		said, err := exec.CommandContext(t.Context(), promtool, arguments...).CombinedOutput()
		require.NoError(t, err, "%s", said)
	}
}
