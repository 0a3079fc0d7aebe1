package tests

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// In a browser, the root of the Web UI of dev shows the services in a saved view with the columns of Converge.
func TestWebUIOpensTheServices_I1(t *testing.T) {
	stage.Long(t, "builds the programs and runs a browser")
	t.Parallel()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no browser here: make chromium")
	}
	d := shared.DevOfInit(t)
	d.Start()
	d.Await("shop/hello", "staging CONVERGED v1, production CONVERGED v1")
	printed := regexp.MustCompile(`Web UI +(http://\S+)`).FindStringSubmatch(d.Output())
	require.NotNil(t, printed, d.Output())
	address := printed[1]
	profile := t.TempDir()
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		page, err := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+profile,
			"--virtual-time-budget=20000", "--dump-dom", address+"/").Output()
		if err != nil {
			return false, err.Error()
		}
		for _, want := range []string{"Services of Converge", "service/shop/hello", protocol.AttrStatus, protocol.AttrVersion, protocol.AttrWaitingFor, protocol.AttrApplication} {
			if !strings.Contains(string(page), want) {
				return false, "the page lacks " + want
			}
		}
		return true, ""
	})
}
