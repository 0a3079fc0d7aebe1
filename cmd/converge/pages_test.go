package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// The pages of docs/cli are the help texts of the program: one page for each command at the top, with those under it, and an index.
// `make generated` writes them.
func TestCommandPages(t *testing.T) {
	dir := filepath.Join("..", "..", "docs", "cli")
	root := newRoot(newFactory())
	root.InitDefaultCompletionCmd()
	pages := map[string]string{"README.md": indexPage(root)}
	for _, c := range pagesOf(root) {
		pages[c.Name()+".md"] = commandPage(c)
	}
	if *update {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.Mkdir(dir, 0o755))
		for name, text := range pages {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
	}
	found, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, found, len(pages))
	for name, want := range pages {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, string(got), "docs/cli/%s differs from the help of the program; run: make generated", name)
	}
}

// pagesOf returns the commands that have a page, or a section of one.
func pagesOf(c *cobra.Command) (all []*cobra.Command) {
	for _, c := range c.Commands() {
		if c.Name() != "help" && c.Name() != "completion" {
			all = append(all, c)
		}
	}
	return all
}

const generatedNote = "<!-- Written by `go generate ./cmd/converge` from the help of the program. -->\n\n"

func indexPage(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s# Commands\n\n%s\n", generatedNote, proseOf(root.Long))
	for _, group := range root.Groups() {
		fmt.Fprintf(&b, "\n## %s\n\n| command | |\n|---|---|\n", strings.TrimSuffix(group.Title, ":"))
		for _, c := range pagesOf(root) {
			if c.GroupID == group.ID {
				fmt.Fprintf(&b, "| [%s](%s.md) | %s |\n", c.Name(), c.Name(), escapeCell(c.Short))
			}
		}
	}
	fmt.Fprintf(&b, "\n## Flags of every command\n\n```text\n%s```\n\n%s\n\n%s\n", root.PersistentFlags().FlagUsages(), proseOf(exitFooter), completionText)
	return b.String()
}

func commandPage(c *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s# %s\n\n", generatedNote, c.CommandPath())
	describe(&b, c)
	for _, sub := range sectionsOf(c) {
		fmt.Fprintf(&b, "\n## %s\n\n", sub.CommandPath())
		describe(&b, sub)
	}
	return b.String()
}

// sectionsOf returns all commands under one, each group before its own.
func sectionsOf(c *cobra.Command) (all []*cobra.Command) {
	for _, sub := range pagesOf(c) {
		all = append(all, sub)
		all = append(all, sectionsOf(sub)...)
	}
	return all
}

func describe(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "%s\n", proseOf(first(c.Long, c.Short)))
	if c.HasSubCommands() {
		b.WriteString("\n| command | |\n|---|---|\n")
		for _, sub := range pagesOf(c) {
			fmt.Fprintf(b, "| [%s](#%s) | %s |\n", sub.Name(), strings.ReplaceAll(sub.CommandPath(), " ", "-"), escapeCell(sub.Short))
		}
		return
	}
	fmt.Fprintf(b, "\n```text\n%s\n", c.UseLine())
	if len(c.Aliases) > 0 {
		fmt.Fprintf(b, "\nalso: %s\n", strings.Join(c.Aliases, ", "))
	}
	if flags := c.LocalFlags().FlagUsages(); flags != "" {
		fmt.Fprintf(b, "\n%s", flags)
	}
	b.WriteString("```\n")
	if c.Example != "" {
		fmt.Fprintf(b, "\n```\n%s\n```\n", unindent(c.Example))
	}
}

// proseOf is a text of the help in Markdown.
func proseOf(text string) string {
	return strings.NewReplacer("*", `\*`, "_", `\_`, "<", `\<`).Replace(text)
}

func escapeCell(text string) string { return strings.ReplaceAll(proseOf(text), "|", `\|`) }

func unindent(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}

// completionText says how a shell completes names.
const completionText = `Every command with a release channel as an argument accepts --channel instead.

converge completion bash, zsh or fish prints a script for that shell, which its --help says how to load. It completes
commands and flags, and asks the server for names: services, release channels, versions, approvals that can be given,
conditions that can be bypassed, runtimes.`
