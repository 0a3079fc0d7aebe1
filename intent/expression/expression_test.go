package expression

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
)

func input() entities.CheckInput {
	return entities.CheckInput{
		Application: "shop", Service: "web", Channel: "prod",
		Release:  entities.CheckRelease{Version: "v2", FullVersion: "v2-i7", Incarnation: 7, By: "ci", At: time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)},
		Phases:   map[string]string{"staging": "succeeded", "prod": "in progress"},
		Channels: []entities.CheckChannel{{Name: "staging", Status: "CONVERGED"}, {Name: "prod", Status: "CONVERGING"}},
		Objects: []entities.Object{{
			Name: "web", Type: "Deployment", Status: entities.ObjectSucceeded,
			Versions: []entities.ObjectVersion{{Version: "v2-i7", Active: true, Replicas: 3, AvailableReplicas: 2}},
		}},
		Addons:        map[string]entities.Addon{"oncall": {Type: "example.com/oncall", Value: map[string]any{"team": "checkout", "level": 2.0}}},
		OmittedAddons: 1,
	}
}

func TestExpressionIsEvaluatedOnTheInput_A20(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`objects.all(o, o.status == "SUCCEEDED")`:                                    true,
		`objects.all(o, o.versions.all(v, v.availableReplicas == v.replicas))`:       false,
		`phases["staging"] == "succeeded" && channel == "prod"`:                      true,
		`channels.exists(c, c.name == "staging" && c.status == "CONVERGED")`:         true,
		`release.by == "ci" && release.version.matches("^v[0-9]+$")`:                 true,
		`release.at.getHours() < 8`:                                                  false,
		`objects.exists(o, o.name == "web" && o.message == "") && omitted == 0`:      true,
		"// of several lines\nrelease.incarnation > 6 &&\n  serviceId == \"\"\n":     true,
		`addons.oncall.type == "example.com/oncall" && omittedAddons == 1`:           true,
		`addons.oncall.value.team == "checkout" && addons.oncall.value.level < 3`:    true,
		`has(addons.slo) || has(addons.oncall.value.pager)`:                          false,
		`objects.exists(o, o.objectType == "CronJob" && !has(o.versions[0].active))`: false,
	} {
		got, err := Evaluate(t.Context(), text, input())
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

// What people see as JSON is what expressions are about.
func TestExpressionsSeeAllFieldsOfTheInput_A20(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(input())
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(data, &fields))
	require.Equal(t, slices.Sorted(maps.Keys(fields)), slices.Sorted(maps.Keys(variables(input()))))
}

func TestInvalidExpressions_A20(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`relase.version == "v2"`:                       "column 1: undeclared reference to 'relase' (did you mean 'release'?)",
		"channel == 'prod' &&\n  release.vers == 'v2'": "line 2, column 10: undefined field 'vers'",
		`release.version`:                              "it yields string, not true or false",
		`release.incarnation == "7"`:                   "column 21: found no matching overload for '_==_' applied to '(int, string)'",
		`version == "${{ version }}" && (`:             "column 33: Syntax error: …",
		strings.Repeat("true && ", 2000) + "true":      "it has 16004 bytes, and the limit is 8192",
	} {
		err := Check(text)
		require.Error(t, err, text)
		prefix, isPrefix := strings.CutSuffix(want, "…")
		if isPrefix {
			require.Contains(t, err.Error(), prefix)
		} else {
			require.EqualError(t, err, want)
		}
	}
}

// It can neither go on for ever nor ask for what is not there.
func TestExpressionIsBounded_A20_D16(t *testing.T) {
	t.Parallel()
	in := input()
	in.Objects = slices.Repeat(in.Objects, 300)
	costly := `objects.all(a, objects.all(b, objects.all(c, a.name == b.name && b.name == c.name)))`
	_, err := Evaluate(t.Context(), costly, in)
	require.ErrorContains(t, err, "cost limit exceeded")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Evaluate(over, costly, in)
	require.ErrorContains(t, err, "interrupted")
	_, err = Evaluate(t.Context(), `objects[7].name == "web"`, input())
	require.EqualError(t, err, "the expression: index out of bounds: 7")
	_, err = Evaluate(t.Context(), `phases["nowhere"] == "succeeded"`, input())
	require.EqualError(t, err, "the expression: no such key: nowhere")
}

// It shows something under the race detector only, as `make race` runs it.
func TestManyExpressionsAtOnce_A20(t *testing.T) {
	t.Parallel()
	env, err := newEnvironment()
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, err := compileIn(env, `objects.all(o, o.versions.exists(v, v.replicas > 1))`)
			assert.NoError(t, err)
		})
		all.Go(func() {
			_, err := compileIn(env, `objects.all(o, o.versions.exists(v, w.replicas > 1))`)
			assert.ErrorContains(t, err, "undeclared reference to 'w'")
		})
	}
	all.Wait()
}
