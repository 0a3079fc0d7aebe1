// Package origin brings configurations from where they are written: a directory, a git repository, an
// OCI registry, or a command that prints them.
//
// Nothing that a source contains is run: no hooks, no filters, no submodules. What a command source runs is what the person named
// who gave it. It decides nothing, publishes nothing, and says no credentials.
package origin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
)

// Source is where the configuration of an application comes from. It can be asked by one at a time. What fails may be tried again.
type Source interface {
	// String is what the person calls it; no secret is in it.
	String() string
	// Newest names the newest state: it is another name once the content is another. Asking costs little while nothing changes.
	Newest(ctx context.Context) (state string, err error)
	// Fetch brings the newest state here. Causes are what came after the commit that since names, which may be nil. A tree stays as it
	// is at least until the next is fetched.
	Fetch(ctx context.Context, since Since) (Tree, error)
}

// Since says which commit of the configuration in a directory was published last; empty: none.
type Since func(dir string) (commit string)

// Tree is one state of a source, as files.
type Tree struct {
	State string // as Newest names it
	Dir   string // of the configuration, absolute
	// Root is the directory outside of which nothing is read; empty: the tree is a person's own, and libraries lie beside it.
	Root   string
	Origin protocol.Origin
	Causes []string // newest first, at most MaxCauses
	// Commits are all commits since the one that was published last; nil: no repository is known.
	Commits *protocol.Commits
}

// Bounds of causes: those of many incarnations lie in the state of a workflow.
const (
	MaxCauses = 6
	maxCause  = 100 // characters
)

// Causes bounds a list of causes, newest first, of which there may be more than are listed.
func Causes(all []string, more bool) []string {
	if len(all) > MaxCauses || more && len(all) == MaxCauses {
		hidden := len(all) - (MaxCauses - 1)
		and := fmt.Sprintf("and %d more", hidden)
		if more {
			and = "and more"
		}
		all = append(all[:MaxCauses-1:MaxCauses-1], and)
	}
	out := make([]string, 0, len(all))
	for _, cause := range all {
		out = append(out, line(cause, maxCause))
	}
	return out
}

// Beginnings of what names a source that is no directory.
const (
	gitPrefix     = "git::"
	commandPrefix = "exec::"

	artifactPrefix = "oci://"
)

// Parse reads how a person names a source: git::URL//PATH?ref=REF, oci://HOST/REPOSITORY:TAG//PATH, exec::COMMAND ARGUMENT…, or a
// directory.
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
		return nil, fmt.Errorf("%s is no directory; a git repository is named git::https://HOST/REPOSITORY//PATH?ref=REF, or git::ssh://git@HOST/…", withoutSecrets(text))
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
