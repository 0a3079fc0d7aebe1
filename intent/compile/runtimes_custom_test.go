package compile_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/intenttest"
)

// A configuration that was written for another deployer of such runtimes means the same in its own spelling.
func TestCommandSpellingsAreEquivalent_C1_C3(t *testing.T) {
	const shop = `apiVersion: converge/v1
kind: Application
name: shop
releaseChannels: [{name: prod, runtimes: [{name: edge}]}]
---
apiVersion: converge/v1
kind: Service
name: web
---
apiVersion: converge/v1
kind: Runtime
name: edge
custom:
`
	compiled := func(custom string) any { return intenttest.Text(t, shop+custom).Runtimes[0].Custom }
	require.Equal(t,
		compiled("  apply: {command: [a, b]}\n  fetch: {command: [f], mode: structured, timeout: 1m}\n  remove: {command: [r]}\n  plan: {command: [p]}\n  watch: {command: [w]}\n"),
		compiled("  apply: {program: {cmd: [a, b]}}\n  fetch: {program: {cmd: [f]}, fetchMode: STRUCTURED_OUTPUT, timeout: 1m}\n  remove: {program: {cmd: [r]}}\n  plan: {program: {cmd: [p]}}\n  watch: {program: {cmd: [w]}}\n"))
	require.Equal(t,
		compiled("  apply: {command: [a]}\n  fetch: {command: [f], mode: exitCode}\n"),
		compiled("  apply: {program: {cmd: [a]}}\n  fetch: {program: {cmd: [f]}}\n"))
}
