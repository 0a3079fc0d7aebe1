package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// Verbs on more than one service send one act to the workflow for all of them, after a confirmation. Invalid combinations send no act.
func TestVerbsOnWiderScopes_A16_A17_A24(t *testing.T) {
	web := webStatus("staging CONVERGED v9 v9 succeeded")
	web.Channels[0].Runtime = "edge"
	for _, tt := range []struct {
		line, want string
		sent       []string
		code       int
	}{
		{
			line: "pause shop --yes --reason drill", want: "done\n",
			sent: []string{`application/shop pause {"by":"alice","requestId":"ID","reason":"drill"}`},
		},
		{line: "resume shop --yes", want: "done\n", sent: []string{`application/shop resume {"by":"alice","requestId":"ID"}`}},
		{
			line: "runtime pause edge --yes", want: "done\n",
			sent: []string{`runtime/edge start {"runtime":"edge","adopt":true}`, `runtime/edge pause {"by":"alice","requestId":"ID"}`},
		},
		{line: "runtime pause edge", code: 1, want: "! converge: pause everything on runtime edge requires --yes when not running interactively\n"},
		{line: "runtime pause edg --yes", code: 1, want: "! converge: no service uses runtime edg; did you mean edge?\n"},
		{
			line: "runtime resume edge --yes", code: 1, want: "! converge: resume runtime/edge: not found\n",
			sent: []string{`runtime/edge resume {"by":"alice","requestId":"ID"}`},
		},
		{
			line: "pause --all --yes --reason drill", want: "done\n",
			sent: []string{`installation pause {"by":"alice","requestId":"ID","reason":"drill"}`},
		},
		{line: "resume --all --yes", want: "done\n", sent: []string{`installation resume {"by":"alice","requestId":"ID"}`}},
		{line: "pause --all", code: 1, want: "! converge: pause all services of all applications requires --yes when not running interactively\n"},
		{line: "pause --all shop", code: 1, want: "! converge: --all takes no arguments and no --channel\n"},
		{line: "channel refresh runtime/edge", code: 1, want: "! converge: runtime/edge is a runtime; expected a service or an application; see: converge runtime --help\n"},
		{
			line: "config pin shop 41 --yes -o json", want: "{\n  \"message\": \"done\",\n  \"name\": \"shop\"\n}\n",
			sent: []string{`application/shop pin {"by":"alice","requestId":"ID","incarnation":41}`},
		},
		{line: "config pin shop v2 --yes", code: 1, want: "! converge: incarnation \"v2\": expected a number, such as 41; see: converge config list shop\n"},
		{line: "pause runtime/edge", code: 1, want: "! converge: runtime/edge is a runtime; expected a service or an application; see: converge runtime --help\n"},
		{line: "pause --all --except shop --yes", want: "done\n", sent: []string{`installation pause {"by":"alice","requestId":"ID","except":["shop"]}`}},
		{line: "pause --all --except shpo --yes", code: 1, want: "! converge: --except shpo: no such application; did you mean shop?\n"},
		{line: "pause --except shop --yes", code: 1, want: "! converge: --except requires --all\n"},
		{line: "config unpin shop --yes", want: "done\n", sent: []string{`application/shop unpin {"by":"alice","requestId":"ID"}`}},
		{line: "channel unpin shop/web staging", want: "done\n", sent: []string{`service/shop/web unpin {"by":"alice","requestId":"ID","channel":"staging"}`}},
		{line: "channel delete shop/web --yes --reason over", want: "done\n", sent: []string{`service/shop/web delete {"by":"alice","requestId":"ID","reason":"over"}`}},
		{line: "channel delete shop/web", code: 1, want: "! converge: delete everything that shop/web runs requires --yes when not running interactively\n"},
		{line: "channel delete shop/wob --yes", code: 1, want: "! converge: no service shop/wob; did you mean shop/web?\n", sent: []string{`service/shop/wob delete {"by":"alice","requestId":"ID"}`}},
	} {
		t.Run(tt.line, func(t *testing.T) {
			api := &fakeAPI{answer: protocol.Answer{Message: "done"}, statuses: map[string][]any{
				"application/shop": {web}, "installation": {web}, "service/shop/web": {web}, "service/shop/api": {web},
			}}
			c := newConsole(t, api)
			code, output := c.run(t, tt.line)
			require.Equal(t, tt.want, output)
			require.Equal(t, tt.code, code)
			require.Equal(t, tt.sent, api.updates)
		})
	}
}

// A deletion that would be refused is refused before the question.
func TestDeleteAsksOnlyForWhatCanBeDeleted(t *testing.T) {
	declared := state.State{Application: "shop", Service: "web", Spec: &entities.Spec{Application: "shop", Service: "web", Channels: []entities.ChannelSpec{{Name: "prod"}}}}
	c := newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {declared}}})
	c.CanPrompt = true
	code, output := c.run(t, "channel delete shop/web")
	require.Equal(t, outcome.Error, code)
	require.Equal(t, "! converge: refused: shop/web is still declared; remove it from the configuration, publish that, and delete it then\n", output)
	require.Empty(t, c.api.updates)

	declared.Spec.Channels = nil
	c = newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {declared}}, answer: protocol.Answer{Message: "done"}})
	c.CanPrompt, c.In = true, strings.NewReader("y\n")
	code, output = c.run(t, "channel delete shop/web")
	require.Equal(t, outcome.Done, code, output)
	require.Equal(t, "done\n! delete everything that shop/web runs? [y/N] ", output)
	require.Len(t, c.api.updates, 1)
}
