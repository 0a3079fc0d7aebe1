package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
)

// Names of services, channels, versions, topics, conditions and runtimes come from the server, and values of flags from the program.
func TestShellCompletion(t *testing.T) {
	s := webStatus("staging CONVERGED v9 v9 succeeded, prod PRECONDITIONS v8 v8 pending")
	s.Channels[0].Runtime, s.Channels[1].Runtime = "edge", "cluster"
	s.Channels[1].Desired = "v9"
	s.Channels[1].Conditions = []protocol.ConditionStatus{
		{ID: "go-live", Kind: "approval", Subject: "go-live", Verdict: "WAIT", Code: "open", Bypassable: true},
		{ID: "staging-stable", Kind: "channel-stable", Verdict: "PASS"},
	}
	for line, want := range map[string]string{
		"release ":                               "shop shop/web",
		"release shop/w":                         "shop/web",
		"release blog/":                          "",
		"release shop/web ":                      "v9",
		"status ":                                "shop shop/web",
		"explain shop/web ":                      "prod staging",
		"channel pin shop/web p":                 "prod",
		"channel pin shop/web --channel ":        "prod staging",
		"rollback shop/web -c st":                "staging",
		"pause shop/web ":                        "prod staging",
		"approve shop/web v9 ":                   "go-live",
		"approve shop/web v8 ":                   "",
		"bypass shop/web v9 prod ":               "go-live",
		"bypass shop/web v9 staging ":            "",
		"runtime pause ":                         "cluster edge",
		"run start ":                             "shop",
		"logs shop/web --kind ":                  "apply extension fetch",
		"status --output ":                       "json text yaml",
		"release shop/web v9 --strategy ":        "immediate latest train",
		"history shop/web prod ":                 "", // takes no more
		"explain shop/none ":                     "",
		"release --address 127.0.0.1:1 shop/web": "shop/web",
	} {
		c := newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {s}, "application/shop": {protocol.ApplicationStatus{}}}})
		words := strings.Split(line, " ")
		require.Equal(t, outcome.Done, run(t.Context(), c.Factory, append([]string{"__complete"}, words...)), line)
		var got []string
		for l := range strings.Lines(c.out.String()) {
			if l = strings.TrimSpace(l); !strings.HasPrefix(l, ":") {
				got = append(got, l)
			}
		}
		require.ElementsMatch(t, strings.Fields(want), got, line)
		require.Empty(t, c.api.updates, line)
	}
}

// Without a server that answers there is no completion, within its timeout.
func TestCompletionHasATimeout(t *testing.T) {
	c := newConsole(t, nil)
	c.Dial = func(ctx context.Context, _ connection.Settings) (connection.API, error) {
		limit, ok := ctx.Deadline()
		require.True(t, ok)
		require.LessOrEqual(t, time.Until(limit), completionTimeout)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	code, output := c.run(t, "__complete release shop/")
	require.Equal(t, outcome.Done, code)
	require.Equal(t, ":4\n", strings.SplitAfter(output, "! ")[0][:3], output)
}

// Every table of completions names commands and flags that exist.
func TestCompletionsExist(t *testing.T) {
	root := newRoot(newConsole(t, nil).Factory)
	for name := range flagValues {
		path, flag, ok := strings.Cut(name, "/")
		if !ok {
			require.NotNil(t, root.PersistentFlags().Lookup(name), name)
			continue
		}
		cmd, rest, err := root.Find(strings.Fields(path))
		require.NoError(t, err)
		require.Empty(t, rest, name)
		require.NotNil(t, cmd.Flags().Lookup(flag), name)
	}
	used := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, form := range usageForms(cmd) {
			for _, word := range form {
				for _, p := range strings.Split(strings.Trim(word, "[]."), "|") {
					used[p] = true
				}
			}
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root)
	for placeholder := range completers {
		require.True(t, used[placeholder], placeholder)
	}
}
