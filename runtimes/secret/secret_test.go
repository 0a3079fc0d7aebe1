package secret_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes/secret"
)

// Only the variables that the worker's operator allowed are readable, and a wide pattern does not match the worker's own credentials.
func TestOnlyAllowedVariablesAreRead_G5(t *testing.T) {
	env := func(name string) (string, bool) { return "hunter2", name != "UNSET" }
	for _, row := range []struct{ allowed, name, wrong string }{
		{"", "DB_PASSWORD", "does not allow; to allow it, start the worker with --allow-env DB_PASSWORD"},
		{"DB_PASSWORD", "DB_PASSWORD", ""},
		{"DB_PASSWORD", "DB_PASSWORD_OLD", "does not allow"},
		{"OTHER, DB_*", "DB_PASSWORD", ""},
		{"*", "DB_PASSWORD", ""},
		{"*", "TEMPORAL_API_KEY", "does not allow"},
		{"A*,T*,TEMPORAL*", "AWS_SECRET_ACCESS_KEY", "does not allow"},
		{"TEMPORAL*", "TEMPORAL_API_KEY", "does not allow"},
		{"TEMPORAL_*", "TEMPORAL_API_KEY", ""},
		{"AWS_SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", ""},
		{"*", "KUBECONFIG", "does not allow"},
		{"*", "CONVERGE_STORE_KEY", "does not allow"},
		{"*", "SOPS_AGE_KEY", "does not allow"},
		{"SOPS*", "SOPS_AGE_KEY_FILE", "does not allow"},
		{"*", "UNSET", "which is not set"},
	} {
		allowed, err := secret.ParseAllowed(row.allowed)
		require.NoError(t, err)
		text, err := secret.Resolve(t.Context(), secret.Environment{Allowed: allowed, Lookup: env}, "TOKEN", entities.Value{WorkerEnv: row.name})
		if row.wrong == "" {
			require.NoError(t, err, row)
			require.Equal(t, "hunter2", text)
			continue
		}
		require.ErrorContains(t, err, "TOKEN cannot be resolved from the worker's environment variable "+row.name)
		require.ErrorContains(t, err, row.wrong)
		require.NotContains(t, err.Error(), "hunter2")
	}
	for _, wrong := range []string{"A-B", "a b", "**", "*A", "1A", "A=B"} {
		_, err := secret.ParseAllowed(wrong)
		require.Error(t, err, wrong)
	}
	_, err := secret.Resolve(t.Context(), nil, "TOKEN", entities.Value{WorkerEnv: "PATH"})
	require.ErrorContains(t, err, "does not allow", "without a source")
}
