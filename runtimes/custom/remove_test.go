//go:build unix

package custom

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

func removing(remove *entities.Command) entities.CustomRuntime {
	return entities.CustomRuntime{
		Apply: entities.Command{Argv: []string{"true"}}, Remove: remove,
		Env: map[string]entities.Value{"ZONE": {Literal: "eu"}},
	}
}

func instance() runtimes.Request {
	return runtimes.Request{
		Owner:     runtimes.Owner{Application: "shop", Service: "routes", ID: entities.InstanceID{Channel: "prod", Name: "eu-3"}},
		ServiceID: "id-7", FullVersion: "r3",
		Payload: &entities.Payload{Address: map[string]string{"region": "west"}, Custom: &entities.CustomPayload{Files: map[string]string{"rules.json": "{}"}}},
	}
}

// The command gets the environment and the files of an apply of the current version.
func TestRemoveGetsWhatApplyGets_A24_C7(t *testing.T) {
	dir := t.TempDir()
	rt := newRuntime(t, dir, removing(&entities.Command{Argv: []string{
		"sh", "-c",
		`echo "$PVN_SERVICE $PVN_SERVICE_VERSION $PVN_RELEASE_CHANNEL $PVN_INSTANCE $ZONE $CONVERGE_ADDRESS_REGION $(cat "$CONVERGE_FILES/rules.json")" >got`,
	}}))
	require.NoError(t, rt.Remove(t.Context(), instance()))
	got, err := os.ReadFile(filepath.Join(dir, "got"))
	require.NoError(t, err)
	require.Equal(t, "routes r3 prod eu-3 eu west {}\n", string(got))
}

// Exit codes determine whether a removal is retried.
func TestFailedRemoval_C10(t *testing.T) {
	for _, tt := range []struct {
		name      string
		command   *entities.Command
		permanent bool
		want      string
	}{
		{"no command", nil, true, "runtime local has no remove command"},
		{"any code", &entities.Command{Argv: []string{"sh", "-c", "echo busy >&2; exit 3"}}, false, "sh exited 3: busy"},
		{"a code worth another try", &entities.Command{Argv: []string{"sh", "-c", "exit 75"}, RetryableExitCodes: []int{75}}, false, "sh exited 75"},
		{"another code", &entities.Command{Argv: []string{"sh", "-c", "exit 1"}, RetryableExitCodes: []int{75}}, true, "sh exited 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := newRuntime(t, t.TempDir(), removing(tt.command)).Remove(t.Context(), instance())
			require.EqualError(t, err, tt.want)
			require.Equal(t, tt.permanent, runtimes.IsPermanent(err))
		})
	}
}

// Without an earlier apply no command runs.
func TestRemoveWithoutPayloadRunsNothing(t *testing.T) {
	in := instance()
	in.Payload = nil
	require.NoError(t, newRuntime(t, t.TempDir(), removing(&entities.Command{Argv: []string{"false"}})).Remove(t.Context(), in))
}
