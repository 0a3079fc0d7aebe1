package gates

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/internal/story"
	"github.com/converge-engine/converge/tests/monitoringtest"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// Prometheus and Alertmanager, as processes, watch what the hello example serves.
func TestMonitoredRelease_A19_A20_A22_D19(t *testing.T) {
	t.Parallel()
	monitored(t, "story")
}

func TestComparedRelease_D26_A19_A22(t *testing.T) {
	t.Parallel()
	monitored(t, "compared")
}

func TestComparedByDefault_D26_A22(t *testing.T) {
	t.Parallel()
	monitored(t, "defaults")
}

// monitored plays a story of the hello example under traffic.
func monitored(t *testing.T, name string) {
	t.Helper()
	p := story.New(shared.World(t))
	copied, err := exec.CommandContext(t.Context(), "sh", "-c", "cp -R ../../examples/hello/run ../../examples/hello/web '"+p.Dir+"'").CombinedOutput()
	require.NoError(t, err, string(copied))
	t.Cleanup(func() { // the servers outlive whoever started them
		stop := exec.CommandContext(context.Background(), filepath.Join(p.Dir, "run"), "stop")
		stop.Env = append(os.Environ(), "PVN_SERVICE=web")
		if out, err := stop.CombinedOutput(); err != nil {
			t.Logf("stop: %v: %s", err, out)
		}
	})
	ports := map[string]string{"canary": fmt.Sprint(shared.FreePort(t)), "production": fmt.Sprint(shared.FreePort(t))}
	targets, traffic := map[string]string{}, map[string]*atomic.Bool{}
	for channel, port := range ports {
		targets[channel] = "127.0.0.1:" + port
		traffic[channel] = &atomic.Bool{}
		traffic[channel].Store(true)
		visit(t, "http://127.0.0.1:"+port+"/", traffic[channel])
	}
	stack := monitoringtest.Start(t, targets, monitoringtest.Rule{
		Name: "CanaryFails", Expr: `sum(rate(http_requests_total{channel="canary",code="500"}[2s])) > 1`,
	})
	p.Words["CANARY"], p.Words["PRODUCTION"] = ports["canary"], ports["production"]
	p.Words["PROMETHEUS"], p.Words["ALERTMANAGER"] = stack.Prometheus, stack.Alertmanager
	p.More = map[string]func(string){
		"fires": func(alert string) {
			temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { return stack.Firing(t, alert), alert + " does not fire" })
		},
		"quiet": func(channel string) { traffic[channel].Store(false) },
	}
	p.Play(story.Load(t, "testdata/monitoring")[name])
}

// visit asks for a page every few milliseconds until the test ends, as long as there is to be traffic.
func visit(t *testing.T, url string, on *atomic.Bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			if !on.Load() {
				continue
			}
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return
			}
			if response, err := http.DefaultClient.Do(request); err == nil { // nobody serves at first
				_ = response.Body.Close()
			}
		}
	}()
}
