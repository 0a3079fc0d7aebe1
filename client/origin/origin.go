// Package origin fetches configurations from their sources: a directory, a git repository, an OCI registry, or a command that prints them.
//
// It runs nothing that a source contains: no hooks, no filters, no submodules. A command source runs the command that the user specified.
// It decides nothing, publishes nothing, and shows no credentials.
package origin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
)

// Source is the source of an application's configuration. It is not safe for concurrent use. Failed calls may be retried.
type Source interface {
	// String is the name that the user gave it, without secrets.
	String() string
	// Newest identifies the newest state: it changes when the content changes. A call is cheap while nothing changes.
	Newest(ctx context.Context) (state string, err error)
	// Fetch downloads the newest state. Causes are the commits after the one that since returns; since may be nil. A tree is unchanged at
	// least until the next Fetch.
	Fetch(ctx context.Context, since Since) (Tree, error)
}

// Since returns the commit of the configuration in a directory that was published last; empty: none.
type Since func(dir string) (commit string)

// Tree is one state of a source, as files.
type Tree struct {
	State string // as Newest names it
	Dir   string // of the configuration, absolute
	// Root is the directory outside of which nothing is read; empty: the tree is the user's own, and libraries are next to it.
	Root   string
	Origin protocol.Origin
	Causes []string // newest first, at most MaxCauses
	// Commits are all commits since the last published one; nil: no repository is known.
	Commits *protocol.Commits
}

// Limits of causes: those of many incarnations are in the state of a workflow.
const (
	MaxCauses = 6
	maxCause  = 100 // characters
)

// Causes limits a list of causes, newest first; more means that the list is incomplete.
func Causes(all []string, more bool) []string {
	if len(all) > MaxCauses || more && len(all) == MaxCauses {
		hidden := len(all) - (MaxCauses - 1)
		rest := fmt.Sprintf("and %d more", hidden)
		if more {
			rest = "and more"
		}
		all = append(all[:MaxCauses-1:MaxCauses-1], rest)
	}
	out := make([]string, 0, len(all))
	for _, cause := range all {
		out = append(out, clip(cause, maxCause))
	}
	return out
}

// Prefixes of sources that are not directories.
const (
	gitPrefix     = "git::"
	commandPrefix = "exec::"

	artifactPrefix = "oci://"
)

// Parse parses the name of a source: git::URL//PATH?ref=REF, oci://HOST/REPOSITORY:TAG//PATH, exec::COMMAND ARGUMENT…, or a directory.
func Parse(text string) (Source, error) {
	if url, is := strings.CutPrefix(text, gitPrefix); is {
		return parseGit(url)
	}
	if command, is := strings.CutPrefix(text, commandPrefix); is {
		return parseCommand(command)
	}
	if reference, is := strings.CutPrefix(text, artifactPrefix); is {
		return parseArtifact(reference)
	}
	if strings.Contains(text, "://") || scpLike.MatchString(text) && !exists(text) {
		return nil, fmt.Errorf("%s is not a directory; a git repository is named git::https://HOST/REPOSITORY//PATH?ref=REF, or git::ssh://git@HOST/…", withoutSecrets(text))
	}
	absolute, err := filepath.Abs(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	return directory{name: text, dir: absolute}, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
