package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/view"
)

// However long the server's message is, its last clause is in explain, once for the channel, in the status as JSON (also shortened for older clients), and in the
// journal.
func TestTheCauseOfALongRefusalIsShownEverywhere_D18(t *testing.T) {
	t.Parallel()
	labels := make([]string, 30)
	for n := range labels {
		labels[n] = "example.com/label" + strings.Repeat("x", n) + ": a-value-that-is-as-long-as-a-value-may-be-" + strings.Repeat("y", 15)
	}
	long := strings.Join(labels, ", ")
	ports := make([]string, 20)
	for n := range ports {
		ports[n] = fmt.Sprintf("{name: p%d, port: %d}", n, 80000+n)
	}
	for name, row := range map[string]struct{ object, says string }{
		"a long value": {
			object: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {" + long + "}}, spec: {containers: [{name: c, image: web}]}}}}",
			says:   "`selector` does not match template `labels`",
		},
		"a long list of faults": {
			object: "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [" + strings.Join(ports, ", ") + "], type: Wrong}}",
			says:   `supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _, _ := newGatedWorld(t, row.object)
			w.Publish()
			s := w.AwaitThat("web", "FAILED", func(s protocol.Status) bool { return channelOf(s, "staging").Status == "FAILED" })
			staging, _, _ := strings.Cut(w.explained(), "web production ") // the next channel waits for this one, and the journal follows
			require.Equal(t, 1, strings.Count(staging, row.says), "once: %s", staging)
			for what, status := range map[string]protocol.Status{"status": s, "shortened status": view.Shorten(s)} {
				channel := channelOf(status, "staging")
				require.NotEmpty(t, channel.Reasons, what)
				require.Contains(t, channel.Reasons[0].Text, row.says, what)
			}
			journal, err := json.Marshal(s.Journal)
			require.NoError(t, err)
			require.Contains(t, strings.ReplaceAll(string(journal), `\"`, `"`), row.says)
		})
	}
}
