package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

// Every verb for users has a command with the same name. Verbs that only workflows send have none, and publishing is called apply, as
// in other tools.
func TestEveryVerbHasACommand(t *testing.T) {
	commands := map[string]bool{}
	for _, c := range newRoot(newFactory()).Commands() {
		commands[c.Name()] = true
	}
	for _, c := range newCmdRollout(newFactory()).Commands() {
		commands[c.Name()] = true
	}
	admin := map[string]bool{protocol.Configure: true, protocol.PublishLibrary: true} // converge admin rules, converge library publish
	without := map[string]bool{protocol.SignalLease: true, protocol.SignalKeep: true, protocol.Grant: true, protocol.Reserve: true, protocol.Conclude: true}
	checked := 0
	for _, table := range [][]verb.Row{verb.Service(), verb.Application(), verb.Runtime(), verb.Installation()} {
		for _, row := range table {
			name := row.Name
			if name == protocol.Publish {
				name = "apply"
			}
			require.NotEqual(t, without[name] || admin[name], commands[name], name)
			checked++
		}
	}
	require.NotZero(t, checked)
}
