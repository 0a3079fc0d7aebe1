package secret_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes/secret"
)

// Nothing of the worker's environment is to be had that whoever started it did not name, and a pattern that is wide does
// not mean the worker's own credentials.
func TestOnlyWhatIsAllowedIsRead_G5(t *testing.T) {
	env := func(name string) (string, bool) { return "hunter2", name != "UNSET" }
	for _, row := range []struct{ allowed, name, wrong string }{
		{"", "DB_PASSWORD", "lets nobody have; start it with --allow-env DB_PASSWORD if it should"},
		{"DB_PASSWORD", "DB_PASSWORD", ""},
		{"DB_PASSWORD", "DB_PASSWORD_OLD", "lets nobody have"},
		{"OTHER, DB_*", "DB_PASSWORD", ""},
		{"*", "DB_PASSWORD", ""},
		{"*", "TEMPORAL_API_KEY", "lets nobody have"},
		{"A*,T*,TEMPORAL*", "AWS_SECRET_ACCESS_KEY", "lets nobody have"},
		{"TEMPORAL*", "TEMPORAL_API_KEY", "lets nobody have"},
		{"TEMPORAL_*", "TEMPORAL_API_KEY", ""},
		{"AWS_SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", ""},
		{"*", "KUBECONFIG", "lets nobody have"},
		{"*", "CONVERGE_STORE_KEY", "lets nobody have"},
		{"*", "SOPS_AGE_KEY", "lets nobody have"},
		{"SOPS*", "SOPS_AGE_KEY_FILE", "lets nobody have"},
		{"*", "UNSET", "which is not set there"},
	} {
		allowed, err := secret.ParseAllowed(row.allowed)
		require.NoError(t, err)
		text, err := secret.Resolve(t.Context(), secret.Environment{Allowed: allowed, Lookup: env}, "TOKEN", entities.Value{WorkerEnv: row.name})
		if row.wrong == "" {
			require.NoError(t, err, row)
			require.Equal(t, "hunter2", text)
			continue
		}
		require.ErrorContains(t, err, "TOKEN is to come from the worker's environment variable "+row.name)
		require.ErrorContains(t, err, row.wrong)
		require.NotContains(t, err.Error(), "hunter2")
	}
	for _, wrong := range []string{"A-B", "a b", "**", "*A", "1A", "A=B"} {
		_, err := secret.ParseAllowed(wrong)
		require.Error(t, err, wrong)
	}
	_, err := secret.Resolve(t.Context(), nil, "TOKEN", entities.Value{WorkerEnv: "PATH"})
	require.ErrorContains(t, err, "lets nobody have", "without a source")
}
