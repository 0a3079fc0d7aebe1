package compile_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

// A variable that a container names twice is what it is named as last, as kubectl has it; which is said, where it stands. What the
// names and values of others are in nobody looks.
func TestTheLastVariableOfANameCounts_H1(t *testing.T) {
	compiled := intenttest.Text(t, cluster("kubernetes: {manifests: [a.yaml]}"), "a.yaml", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      containers:
      - name: web
        env:
        - {name: MODE, value: "${{ constants.zone }}"}
        - {name: LEVEL, value: info}
        - {name: MODE, value: fast}
---
{apiVersion: example.com/v1, kind: Agent, metadata: {name: a}, spec: {containers: [{env: [{name: A, value: b}, {name: A, value: c}]}]}}
`)
	require.Equal(t, []string{`a.yaml:11: Deployment/web spec.template.spec.containers[0].env[0]: "MODE" is given twice, and the last one is used`}, compiled.Warnings)
	objects := objectsOf(t, compiled, "prod", incarnation.RenderInput{Version: "v1"})
	require.Contains(t, strings.Join(objects, "\n"), `"env":[{"name":"LEVEL","value":"info"},{"name":"MODE","value":"fast"}]`)
	require.Contains(t, strings.Join(objects, "\n"), `"env":[{"name":"A","value":"b"},{"name":"A","value":"c"}]`)
	payloads, err := incarnation.Render(compiled.Incarnation, "web", incarnation.RenderInput{Version: "v1"})
	require.NoError(t, err)
	require.Empty(t, payloads["prod"].Kubernetes.Values, "an overridden variable uses no parameter")
}
