package origin

import (
	"context"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/config"
	"golang.org/x/sync/singleflight"

	"github.com/converge-engine/converge/entities/protocol"
)

// repositoryTimeout is the limit for reading the repository of a directory: a slow disk must not delay a publication.
const repositoryTimeout = 3 * time.Second

var reading singleflight.Group // by directory

// Of is the origin of a directory's configuration. In a git repository with a remote it is repository//path, the same in every clone;
// otherwise the absolute path. If the repository cannot be read in time, only the path is set.
func Of(ctx context.Context, dir string) protocol.Origin {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		absolute = dir
	}
	ctx, cancel := context.WithTimeout(ctx, repositoryTimeout)
	defer cancel()
	// A read of the file system cannot be cancelled. One that hangs is shared, so that a process that reads again does not collect them. It
	// does not end with the caller that began it: others may wait for it.
	read := reading.DoChan(absolute, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), repositoryTimeout)
		defer cancel()
		return originOf(ctx, absolute), nil
	})
	select {
	case r := <-read:
		return r.Val.(protocol.Origin)
	case <-ctx.Done():
		return protocol.Origin{Path: absolute}
	}
}

func originOf(ctx context.Context, dir string) protocol.Origin {
	origin := protocol.Origin{Path: dir}
	tree, err := openWorkTree(dir)
	if err != nil {
		return origin
	}
	if repository := repositoryOf(tree.remoteURL()); repository != "" {
		origin.Path = repository + "//" + tree.within
	}
	if !tree.readable {
		return origin
	}
	head, err := tree.repo.Head()
	if err == nil {
		origin.Commit = head.Hash().String()
	}
	origin.Dirty, _ = tree.modified(ctx, origin.Commit) // a tree that cannot be read counts as unmodified
	return origin
}

// remoteURL is the URL of the remote "origin", after the user's own rewriting of URLs; "" if there is none.
func (t *workTree) remoteURL() string {
	local, err := t.repo.Config()
	if err != nil || local.Remotes["origin"] == nil || len(local.Remotes["origin"].URLs) == 0 {
		return ""
	}
	remote := local.Remotes["origin"].URLs[0]
	user, err := config.LoadConfig(config.GlobalScope)
	if err != nil {
		return remote
	}
	prefix, rule := "", (*config.URL)(nil)
	for _, u := range user.URLs {
		if old := u.InsteadOf; strings.HasPrefix(remote, old) && len(old) > len(prefix) {
			prefix, rule = old, u
		}
	}
	if rule == nil {
		return remote
	}
	return rule.ApplyInsteadOf(remote)
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
