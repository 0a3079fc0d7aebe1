package fakeruntime_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/fakeruntime"
)

// Plan says what an apply would change, and changes nothing.
func TestPlan(t *testing.T) {
	rt := fakeruntime.New(nil)
	web := rt.At("demo", "web", "staging")
	with := func(version string, env map[string]entities.Value) runtimes.Request {
		in := instance(version)
		in.Payload = &entities.Payload{Custom: &entities.CustomPayload{Env: env}}
		return in
	}
	plan := func(in runtimes.Request) []runtimes.Change {
		t.Helper()
		changes, err := rt.Plan(t.Context(), in)
		require.NoError(t, err)
		return changes
	}
	one := with("v1", map[string]entities.Value{"A": {Literal: "a"}, "B": {Literal: "b"}})

	require.Equal(t, []runtimes.Change{{Action: runtimes.ActionCreate, Type: "fake", Name: "web"}}, plan(one))
	require.Empty(t, web.Version(), "nothing was applied")
	_, err := rt.Apply(t.Context(), one)
	require.NoError(t, err)
	require.Empty(t, plan(one))
	require.Equal(t, []runtimes.Change{{Action: runtimes.ActionUpdate, Type: "fake", Name: "web", Fields: []runtimes.FieldChange{
		{Path: "version", Old: `"v1"`, New: `"v2"`}, {Path: "env.A", Old: `"a"`}, {Path: "env.C", New: `""`},
	}}}, plan(with("v2", map[string]entities.Value{"B": {Literal: "b"}, "C": {}})))

	web.SetDrifted(true)
	require.Equal(t, []runtimes.Change{{Action: runtimes.ActionUpdate, Type: "fake", Name: "web"}}, plan(one))
	web.SetPlan(errors.New("the cluster is unavailable"))
	_, err = rt.Plan(t.Context(), one)
	require.EqualError(t, err, "the cluster is unavailable")
	web.ComputePlan()
	require.Len(t, plan(one), 1)
	require.Equal(t, 1, web.Applies())
}
