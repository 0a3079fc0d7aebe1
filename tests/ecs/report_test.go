package ecs_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// In a channel that only reports no call to ECS writes, for a release, by drift, or for what people ask for.
func TestOnlyReadsWhereItIsOnlyReported_A25(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(w.Dir, "converge.yaml")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	w.Write(strings.NewReplacer("- {name: staging,", "- {enforcement: report, name: staging,", "- {name: production,", "- {enforcement: report, name: production,").Replace(string(data)))
	w.Publish()
	w.AwaitThat("web", "report only", func(s protocol.Status) bool { return s.Channels[0].ReportOnly && s.Channels[1].ReportOnly })
	w.aws.ResetCalls()

	w.Release("web", "v2")
	w.explained("Converge would apply v2")
	w.count("production", 5) // by hand, the one write
	w.explained("Converge would repair it to v1")
	w.Act("web", protocol.Rollback, `{"by":"test","channel":"staging","reason":"bad"}`)
	w.Await("web", "staging ROLLED_BACK v1, production DEGRADED v1")
	w.Act("web", protocol.Retry, `{"by":"test","version":"v2","channel":"staging"}`)
	w.explained("Converge would apply v2")
	for call := range w.aws.Calls() {
		reads := slices.ContainsFunc([]string{"Describe", "List"}, func(verb string) bool { return strings.HasPrefix(call, verb) })
		require.True(t, reads || call == "UpdateService", call)
	}
	require.Equal(t, 1, w.aws.Calls()["UpdateService"], "that by hand")
	require.Equal(t, int32(5), w.desired("production"))
}
