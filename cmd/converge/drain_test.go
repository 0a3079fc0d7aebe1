package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// A drain is sent to the workflow of a runtime in use, after a confirmation. A dry run lists which instances would leave in which
// order, and which exist nowhere else.
func TestDrainCommands_A16(t *testing.T) {
	web := protocol.Placement{Service: "service/shop/web", Instances: []protocol.InstancePlacement{
		{Name: "prod/eu", Channel: "prod", Runtime: "eu", Running: true, RequiredServices: []string{"service/shop/api"}},
		{Name: "prod/us", Channel: "prod", Runtime: "us", Running: true},
		{Name: "lab", Channel: "lab", Runtime: "eu", Running: true, KeepReason: "its channel is report-only"},
	}}
	api := protocol.Placement{Service: "service/shop/api", Instances: []protocol.InstancePlacement{
		{Name: "prod", Channel: "prod", Runtime: "eu", Running: true},
	}}
	for _, tt := range []struct {
		line, want string
		sent       []string
		code       int
	}{
		{line: "runtime drain eu --dry-run", want: `1. shop/web prod/eu
1. shop/web lab: stays: its channel is report-only
2. shop/api prod
no instance would remain of shop/api prod: refused without --force
`},
		{line: "runtime drain eu", code: 1, want: "! converge: drain runtime eu, which removes 2 services from it requires --yes when not running interactively\n"},
		{line: "runtime drain edge --yes", code: 1, want: "! converge: no service uses runtime edge; there are eu, us\n"},
		{
			line: "runtime drain eu --yes --reason nodes", want: "done\n",
			sent: []string{`runtime/eu start {"runtime":"eu","adopt":true}`, `runtime/eu drain {"by":"alice","requestId":"ID","reason":"nodes"}`},
		},
		{line: "runtime restore eu", code: 1, want: "! converge: restore runtime/eu: not found\n", sent: []string{`runtime/eu restore {"by":"alice","requestId":"ID"}`}},
	} {
		t.Run(tt.line, func(t *testing.T) {
			fake := &fakeAPI{answer: protocol.Answer{Message: "done"}, statuses: map[string][]any{web.Service: {web}, api.Service: {api}}}
			code, output := newConsole(t, fake).run(t, tt.line)
			require.Equal(t, tt.want, output)
			require.Equal(t, tt.code, code)
			require.Equal(t, tt.sent, fake.updates)
		})
	}
}
