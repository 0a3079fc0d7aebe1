package tests

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// shopOfSix are services whose payloads all use a constant of the channel.
var shopOfSix = []string{"api", "cart", "mail", "pay", "stock", "web"}

func sixServices(steps, zone string) string {
	text := `apiVersion: converge/v1
kind: Application
name: APP
configRollout: {steps: ` + steps + `}
releaseChannels: [{name: production, runtimes: [{name: APP-rt}], constants: {zone: ` + zone + `}}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
`
	for _, name := range shopOfSix {
		text += fmt.Sprintf("---\n{apiVersion: converge/v1, kind: Service, name: %s, custom: {env: {ZONE: \"${{ constants.zone }}\"}}}\n", name)
	}
	return text
}

// A configuration that is bad for every service stops at the first, and nobody else gets it but by a bypass. A newer one goes to one, and
// then, whatever becomes of the worker meanwhile, to the rest once the pause is over.
func TestConfigurationInSteps_D24_B9_A15(t *testing.T) {
	t.Parallel()
	w := &world{shared.OwnServer(t, 0)}
	const slowly = "[{services: 1}, {pause: 1h}, {services: 50%}]"
	w.Write(sixServices(slowly, "one"))
	w.Publish()
	for _, name := range shopOfSix {
		w.Release(name, "v1")
		w.Fake.At(w.App, name, "production").Break("v1-i2", "no such zone")
	}
	for _, name := range shopOfSix {
		w.Await(name, "production CONVERGED v1")
	}

	w.Write(sixServices(slowly, "two"))
	w.Publish()
	w.Await("api", "production ROLLED_BACK v1")
	stopped := fmt.Sprintf("config-rollout/services: 1 of 6 services failed with incarnation 2: %s/api; held until they are fixed or a newer configuration is published", w.App)
	for _, name := range shopOfSix[1:] {
		waitsFor(w.World, name, stopped)
		require.Equal(t, 1, w.Fake.At(w.App, name, "production").Applies(), name)
	}
	require.Contains(t, w.explain("web"), "1 of 6 services failed with incarnation 2")
	w.Fake.At(w.App, "pay", "production").Break("v1-i2", "")
	w.Act("pay", protocol.Bypass, `{"by":"bob","version":"v1-i2","channel":"production","condition":"config-rollout/services","reason":"it has the zone"}`)
	w.Await("pay", "production CONVERGED v1-i2")
	w.Release("mail", "v2")
	w.Await("mail", "production CONVERGED v2")

	w.Write(sixServices(slowly, "three"))
	w.Publish()
	w.Await("api", "production CONVERGED v1-i3")
	waitsFor(w.World, "web", "config-rollout/services: 1 of 6 services have incarnation 3; next 2 at ")
	w.StopWorker()
	w.StartWorker()
	w.Write(sixServices("[{services: 1}, {pause: 1s}, {services: 50%}]", "three"))
	w.Publish()
	for _, name := range shopOfSix {
		want := "v1-i3"
		if name == "mail" {
			want = "v2-i3"
		}
		s := w.Await(name, "production CONVERGED "+want)
		for _, r := range s.Releases {
			require.False(t, r.Version == "v1-i2" && name != "api" && name != "pay" && r.Phases["production"] != "skipped", "%s: %v", name, r.Phases)
		}
	}
	require.Empty(t, w.Fake.Overlaps())
	require.Equal(t, stage.Channels(w.Status("api")), "production CONVERGED v1-i3")
}
