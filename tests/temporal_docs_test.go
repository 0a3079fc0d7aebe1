package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/server/common/dynamicconfig"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/worker"
)

// settingsOfServer are the server's settings that docs/temporal.md speaks of, with what the embedded version has when nobody says anything.
func settingsOfServer() map[string]int {
	none := dynamicconfig.NewNoopCollection()
	all := map[string]int{}
	for _, s := range []dynamicconfig.NamespaceTypedSetting[int]{
		dynamicconfig.BlobSizeLimitError, dynamicconfig.MemoSizeLimitError, dynamicconfig.NumPendingChildExecutionsLimitError,
		dynamicconfig.NumPendingActivitiesLimitError, dynamicconfig.NumPendingSignalsLimitError, dynamicconfig.NumPendingCancelRequestsLimitError,
		dynamicconfig.HistorySizeLimitError, dynamicconfig.HistorySizeSuggestContinueAsNew, dynamicconfig.HistoryCountLimitError,
		dynamicconfig.HistoryCountSuggestContinueAsNew, dynamicconfig.MutableStateActivityFailureSizeLimitError,
		dynamicconfig.SearchAttributesNumberOfKeysLimit, dynamicconfig.SearchAttributesSizeOfValueLimit, dynamicconfig.SearchAttributesTotalSizeLimit,
		dynamicconfig.MaxCallbacksPerWorkflow, dynamicconfig.FrontendMaxNamespaceRPSPerInstance,
		dynamicconfig.FrontendMaxConcurrentLongRunningRequestsPerInstance, dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance,
		dynamicconfig.MaximumSignalsPerExecution, dynamicconfig.WorkflowExecutionMaxInFlightUpdates, dynamicconfig.WorkflowExecutionMaxTotalUpdates,
		dynamicconfig.MatchingMaxVersionsInDeployment, dynamicconfig.MatchingMaxDeployments,
	} {
		all[s.Key().String()] = s.Get(none)("any")
	}
	for _, s := range []dynamicconfig.GlobalTypedSetting[int]{
		dynamicconfig.TransactionSizeLimit, dynamicconfig.MutableStateSizeLimitError, dynamicconfig.MaxIDLengthLimit, dynamicconfig.MaximumBufferedEventsBatch,
	} {
		all[s.Key().String()] = s.Get(none)()
	}
	return all
}

// The numbers of docs/temporal.md are those of the server that is embedded, each limit that a test is said to hold names tests that there are,
// and none that is held by no test is left out of what is listed.
func TestDocsTemporalLimits(t *testing.T) {
	t.Parallel()
	require.Greater(t, rowsWithTests(t, "temporal.md", "| limit | setting of the server | default | where Converge meets it |"), 10)
	data, err := os.ReadFile(filepath.Join(repository, "docs", "temporal.md"))
	require.NoError(t, err)
	settings, seen := settingsOfServer(), map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| [^|]+ \\| `([a-zA-Z.]+)` \\| ([0-9,]+)( KiB| MiB)? \\|")
	for _, found := range row.FindAllStringSubmatch(string(data), -1) {
		number, err := strconv.Atoi(strings.ReplaceAll(found[2], ",", ""))
		require.NoError(t, err)
		number <<= map[string]int{"": 0, " KiB": 10, " MiB": 20}[found[3]]
		is, known := settings[strings.ToLower(found[1])]
		if !known {
			is, known = settings[found[1]]
		}
		require.True(t, known, "the server has no setting %s that this test knows", found[1])
		require.Equal(t, is, number, found[1])
		seen[strings.ToLower(found[1])] = true
	}
	for name := range settings {
		require.True(t, seen[strings.ToLower(name)], "docs/temporal.md says nothing of %s", name)
	}
}

// The longest names there may be make ids that the server takes.
func TestIDsFitTheServer(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("n", 63)
	require.Nil(t, config.Name(longest).Check())
	require.NotNil(t, config.Name(longest+"n").Check())
	most := settingsOfServer()[dynamicconfig.MaxIDLengthLimit.Key().String()]
	for _, id := range []string{
		protocol.ServiceID(longest, longest), protocol.ApplicationID(longest), protocol.RuntimeID(longest), protocol.RuntimeTaskQueue(longest),
		protocol.PreviewID(longest, longest, strings.Repeat("i", 64)),
		protocol.ApplyWorkflowID(strings.Join([]string{longest, longest, longest, longest, longest}, "/")),
		protocol.PlanRef{Application: longest, Channel: longest, Name: strings.Repeat("i", 256)}.ID(),
	} {
		require.LessOrEqual(t, len(id), most, id)
	}
}

// Of the search attributes that a namespace has room for Converge takes few, on Temporal Cloud too, which has room for five lists.
func TestSearchAttributesAreFew(t *testing.T) {
	t.Parallel()
	attributes := worker.SearchAttributes()
	require.Len(t, attributes, 6)
	data, err := os.ReadFile(filepath.Join(repository, "docs", "temporal.md"))
	require.NoError(t, err)
	for name, kind := range attributes {
		require.Contains(t, string(data), `--search-attribute "`+name+"="+kind.String()+`"`)
	}
}
