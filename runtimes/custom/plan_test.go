package custom

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

func planning(script string) entities.CustomRuntime {
	plan := sh(script)
	return entities.CustomRuntime{Apply: sh("false"), Plan: &plan}
}

// A plan gets what apply would get, and says what would change.
func TestPlanCommand(t *testing.T) {
	t.Setenv("DB_PASSWORD", "hunter22")
	def := planning(`cat >&2 "$CONVERGE_FILES/size"; cat <<-END
	{"changes": [
		{"action": "update", "objectType": "Function", "name": "$PVN_SERVICE", "fields": [{"path": "version", "old": "v1", "new": "$PVN_SERVICE_VERSION"}, {"path": "password", "new": "$PASSWORD"}], "later": 1},
		{"action": "refuse", "objectType": "Route", "name": "r", "namespace": "eu", "conflicts": ["somebody else's"], "message": "not ours", "fields": null}
	]}
	END`)
	def.Env = map[string]entities.Value{"PASSWORD": {WorkerEnv: "DB_PASSWORD"}}
	in := web("v2")
	in.Payload.Custom.Files = map[string]string{"size": "big"}
	changes, err := newRuntime(t, t.TempDir(), def).Plan(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, []runtimes.Change{
		{
			Action: runtimes.ActionUpdate, Type: "Function", Name: "web",
			Fields: []runtimes.FieldChange{{Path: "version", Old: "v1", New: "v2"}, {Path: "password", New: "***"}},
		},
		{Action: runtimes.ActionRefuse, Type: "Route", Name: "r", Namespace: "eu", Conflicts: []string{"somebody else's"}, Message: "not ours"},
	}, changes)

	changes, err = newRuntime(t, t.TempDir(), planning(`echo '{"changes": []}'`)).Plan(t.Context(), web("v2"))
	require.NoError(t, err)
	require.Empty(t, changes)
}

// What does not say what would change is no plan in which nothing does.
func TestInvalidPlanOutput(t *testing.T) {
	_, err := newRuntime(t, t.TempDir(), applying("true")).Plan(t.Context(), web("v2"))
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "runtime local has no plan command")

	for _, row := range []struct{ script, code, want string }{
		{`echo broken >&2; exit 2`, runtimes.CodeFetchFailed, "sh exited 2: broken"},
		{`true`, runtimes.CodeMalformed, "line 1, column 1: nothing on stdout"},
		{`echo '[]'`, runtimes.CodeMalformed, `a list; expected an object with "changes"`},
		{`echo '{}'`, runtimes.CodeMalformed, "changes: missing; expected a list ([] when nothing would change)"},
		{`echo '{"changes": [{"action": "delete", "objectType": "F", "name": "f"}]}'`, runtimes.CodeMalformed, `changes[0].action: "delete"; expected create, update, recreate, prune, orphan or refuse`},
		{`echo '{"changes": [{"action": "create", "name": "f"}]}'`, runtimes.CodeMalformed, "changes[0].objectType: missing; expected a string that is not empty"},
		{`echo '{"changes": [{"action": "create", "objectType": "F", "name": "f", "fields": [{}]}]}'`, runtimes.CodeMalformed, "changes[0].fields[0].path: missing"},
		{`echo '{"changes": [{"action": "create", "objectType": "F", "name": "f", "conflicts": [1]}]}'`, runtimes.CodeMalformed, "changes[0].conflicts[0]: the number 1; expected a string"},
		{`no-such-program-here`, runtimes.CodeFetchFailed, "exited 127"},
	} {
		_, err := newRuntime(t, t.TempDir(), planning(row.script)).Plan(t.Context(), web("v2"))
		require.ErrorContains(t, err, row.want, row.script)
		require.Equal(t, row.code, code(t, err), row.script)
	}
}
