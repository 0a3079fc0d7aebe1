package tests

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/verb"
	"github.com/converge-engine/converge/intent/config"
)

// What a grant may name in a configuration is what the table of verbs says can be granted. (That the CLI has a command
// for each verb is held in cmd/converge, and docs/protocol.md in docs_test.go.)
func TestGrantsNameTheVerbsOfTheTable(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, verb.Grantable(), config.Verbs(nil).Choices())
}
