package seen

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/monitoringtest"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker/embedded"
)

// queries are those of deploy/grafana/converge.json by the titles of their panels, as Grafana would send them.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	data, err := os.ReadFile("../../deploy/grafana/converge.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(data, &dashboard))
	all := map[string][]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], strings.ReplaceAll(target.Expr, "$__rate_interval", "1m"))
		}
	}
	require.NotEmpty(t, all)
	return all
}

// silent are the panels that are empty after a release in which nothing fails and nobody ends anything.
var silent = []string{"Readings that fail", "Store requests that fail", "Hints"}

// Each metric of the dashboard is one that a worker serves after a release, or one of ours that is documented; a real Prometheus, which
// scrapes that worker, takes each query, and has an answer to all but those of what did not happen.
func TestDashboard_F10(t *testing.T) {
	stage.Long(t, "a minute")
	t.Parallel()
	w := shared.Unserved(t, embedded.Options{})
	worker, _ := monitored(t, w)
	w.Write(guarded + stage.Web)
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	asked := queries(t)
	names := regexp.MustCompile(`\b(converge|temporal|process|go)_[a-z_]+\b`)
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // some are of what happens a little later
		known := documented(t)
		for name := range metricsAt(t, worker) {
			known[name] = nil
		}
		for title, all := range asked {
			for _, query := range all {
				require.NotEmpty(t, names.FindAllString(query, -1), title)
				for _, name := range names.FindAllString(query, -1) {
					_, itself := known[name]
					_, histogram := known[regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")]
					if !itself && !histogram {
						return false, title + ": no worker serves " + name
					}
				}
			}
		}
		return true, ""
	})

	stack := monitoringtest.Start(t, map[string]string{"worker": strings.TrimPrefix(worker, "http://")})
	for title, all := range asked {
		for _, query := range all {
			temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
				status, samples, text := evaluated(t, stack, query)
				require.Equal(t, "success", status, "%s: %s: %s", title, query, text)
				return samples > 0 || slices.Contains(silent, title), title + ": " + query
			})
		}
	}
	status, _, _ := evaluated(t, stack, "sum(rate(converge_decisions_total)")
	require.Equal(t, "error", status, "Prometheus says what is no query")
}

// evaluated is what Prometheus makes of a query.
func evaluated(t *testing.T, stack *monitoringtest.Stack, query string) (status string, samples int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, stack.Prometheus+"/api/v1/query?query="+url.QueryEscape(query), nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []any }
	}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
	return answer.Status, len(answer.Data.Result), answer.Error
}
