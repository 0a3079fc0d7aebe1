package origin

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
)

// gitTimeout is the timeout for all calls of git: a slow disk or a hook must not delay a publication.
const gitTimeout = 3 * time.Second

// Of is the origin of a directory's configuration. In a git repository with a remote it is repository//path, the same in every clone;
// otherwise the absolute path. Without git, or when git does not answer in time, only the path is set.
func Of(ctx context.Context, dir string) protocol.Origin {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		absolute = dir
	}
	origin := protocol.Origin{Path: absolute}
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	git := func(args ...string) (string, bool) {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", absolute}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C")
		cmd.WaitDelay = time.Second
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err == nil
	}
	prefix, ok := git("rev-parse", "--show-prefix")
	if !ok {
		return origin
	}
	if remote, ok := git("remote", "get-url", "origin"); ok {
		if repository := repositoryOf(remote); repository != "" {
			origin.Path = repository + "//" + path.Clean("/" + prefix)[1:]
		}
	}
	origin.Commit, _ = git("rev-parse", "--verify", "HEAD")
	changes, ok := git("status", "--porcelain", "--", ".", ":(exclude).converge")
	origin.Dirty = ok && changes != ""
	return origin
}

var scpLike = regexp.MustCompile(`^(?:[^@/]+@)?([^:/]+):(.+)$`)

// repositoryOf is the same name for all URLs of a repository, without user or password: git@github.com:acme/shop.git and
// https://token@github.com/acme/shop are github.com/acme/shop.
func repositoryOf(remote string) string {
	host, where := "", ""
	if strings.Contains(remote, "://") {
		u, err := url.Parse(remote)
		if err != nil || u.Host == "" {
			return "" // a file of this machine
		}
		host, where = u.Hostname(), u.Path
	} else if m := scpLike.FindStringSubmatch(remote); m != nil {
		host, where = m[1], m[2]
	} else {
		return "" // a path, which has no meaning on another machine
	}
	return host + "/" + strings.TrimSuffix(strings.Trim(where, "/"), ".git")
}
