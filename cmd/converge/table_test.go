package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

// Every verb for users has a command with the same name, except for those that only workflows send. The configuration of the
// installation is admin rules, a library is published with config library publish.
func TestEveryVerbHasACommand(t *testing.T) {
	commands := map[string]bool{}
	var list func(of *cobra.Command)
	list = func(of *cobra.Command) {
		for _, c := range of.Commands() {
			commands[c.Name()] = true
			list(c)
		}
	}
	list(newRoot(newFactory()))
	other := map[string]string{protocol.Configure: "rules", protocol.PublishLibrary: "library"}
	without := map[string]bool{protocol.SignalLease: true, protocol.SignalKeep: true, protocol.Grant: true, protocol.Reserve: true, protocol.Conclude: true}
	checked := 0
	for _, table := range [][]verb.Row{verb.Service(), verb.Application(), verb.Runtime(), verb.Installation()} {
		for _, row := range table {
			name := row.Name
			if other[name] != "" {
				name = other[name]
			}
			require.NotEqual(t, without[name], commands[name], name)
			checked++
		}
	}
	require.NotZero(t, checked)
}
