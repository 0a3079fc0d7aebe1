package origin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	gitconfig "github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/converge-engine/converge/entities/protocol"
)

// Limits of requests to a git server.
const (
	listTimeout  = 30 * time.Second
	fetchTimeout = 5 * time.Minute
	fetchDepth   = 50 // commits: a likely distance between two incarnations; if it is longer, all commits that are listed are fetched
	// deeperTimeout is for a long history: the publication continues without it.
	deeperTimeout = time.Minute
	bigObject     = 1 << 20
)

// fetched is the name of a fetched commit in the local repository.
const fetched = plumbing.ReferenceName("refs/heads/fetched")

// repository is a ref of a git repository, and a directory in it.
type repository struct {
	name  string // as the user wrote it
	url   string // without path and ref
	local string // its path, if it is a directory of this machine
	ref   string // branch, tag or commit; empty: the default branch
	path  string // of the configuration, with slashes; empty: the root
	cache cacheDir
}

// parseGit reads URL//PATH?ref=REF.
func parseGit(text string) (Source, error) {
	invalid := func(what string) error {
		return fmt.Errorf("%s%s: %s; expected git::https://HOST/REPOSITORY//PATH?ref=REF, or ssh:// or file:// instead", gitPrefix, withoutSecrets(text), what)
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, invalid("not a URL")
	}
	ref, wrong := refOf(u)
	_, secret := u.User.Password()
	switch {
	case wrong != "":
		return nil, invalid(wrong)
	case secret || u.User != nil && u.Scheme != "ssh":
		return nil, invalid("a password or token in it would be visible to others; put it into ~/.netrc")
	case !reachable(u):
		return nil, invalid("expected the scheme https, ssh or file")
	}
	base, subpath, _ := strings.Cut(u.Path, "//")
	if subpath = strings.Trim(subpath, "/"); subpath != "" && (!filepath.IsLocal(subpath) || path.Clean(subpath) != subpath) || strings.Trim(base, "/") == "" {
		return nil, invalid("the path is invalid")
	}
	r := &repository{name: gitPrefix + text, ref: ref, path: subpath}
	u.Path, u.RawPath, u.RawQuery = base, "", ""
	if r.url = u.String(); u.Scheme == "file" {
		r.local = filepath.FromSlash(base)
	}
	r.cache, err = cacheDirOf(r.name)
	boundHTTP()
	return r, err
}

// refOf returns the ref in the query of a URL, or what is wrong with the query. url.Query would drop what it cannot parse, and with it the
// ref.
func refOf(u *url.URL) (ref, wrong string) {
	query, err := url.ParseQuery(u.RawQuery)
	refs := query["ref"]
	delete(query, "ref")
	switch {
	case err != nil || len(query) > 0 || len(refs) > 1 || u.Fragment != "":
		return "", "only one parameter is allowed, ref"
	case len(refs) == 0:
		return "", ""
	case refs[0] == "":
		return "", "the parameter ref is empty"
	}
	return refs[0], ""
}

// withoutSecrets removes user and password from a possible URL.
func withoutSecrets(text string) string {
	scheme, rest, is := strings.Cut(text, "://")
	if at := strings.LastIndex(rest, "@"); is && at >= 0 {
		return scheme + "://…" + rest[at:]
	}
	return text
}

// reachable reports whether a URL uses an encrypted transport, or is on this machine.
func reachable(u *url.URL) bool {
	switch u.Scheme {
	case "https", "ssh":
		return u.Host != ""
	case "file":
		return u.Host == ""
	}
	return u.Scheme == "http" && loopback(u.Hostname())
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (r *repository) String() string { return r.name }

// Newest reads only the list of refs.
func (r *repository) Newest(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if r.local != "" {
		_, commit, err := r.open()
		return commit.String(), r.wrapError("read", err)
	}
	_, commit, err := r.list(ctx)
	return commit.String(), r.wrapError("list", err)
}

// wrapError adds the operation to an error.
func (r *repository) wrapError(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", doing, r.name, err)
}

// open opens a repository of this machine and finds the commit of the ref.
func (r *repository) open() (*git.Repository, plumbing.Hash, error) {
	repo, err := git.PlainOpenWithOptions(r.local, &git.PlainOpenOptions{EnableDotGitCommonDir: true})
	if err != nil {
		return nil, plumbing.ZeroHash, err
	}
	refs, err := repo.References()
	if err != nil {
		return nil, plumbing.ZeroHash, err
	}
	var all []*plumbing.Reference
	if err := refs.ForEach(func(ref *plumbing.Reference) error { all = append(all, ref); return nil }); err != nil {
		return nil, plumbing.ZeroHash, err
	}
	found, err := r.find(all)
	if err != nil {
		return nil, plumbing.ZeroHash, err
	}
	commit, err := commitOf(repo, found.Hash())
	if err != nil {
		return nil, plumbing.ZeroHash, err
	}
	return repo, commit.Hash, nil
}

// list reads the refs of the server.
func (r *repository) list(ctx context.Context) (name plumbing.ReferenceName, commit plumbing.Hash, err error) {
	if plumbing.IsHash(r.ref) {
		return "", plumbing.NewHash(r.ref), nil
	}
	auth, err := r.auth()
	if err != nil {
		return "", commit, err
	}
	refs, err := git.NewRemote(nil, r.remote()).ListContext(ctx, &git.ListOptions{Auth: auth, PeelingOption: git.AppendPeeled})
	if err != nil {
		return "", commit, err
	}
	found, err := r.find(refs)
	if err != nil {
		return "", commit, err
	}
	commit = found.Hash()
	for _, ref := range refs {
		if ref.Name() == found.Name()+"^{}" { // of an annotated tag
			commit = ref.Hash()
		}
	}
	return found.Name(), commit, nil
}

// find returns the requested ref among all refs.
func (r *repository) find(refs []*plumbing.Reference) (*plumbing.Reference, error) {
	if plumbing.IsHash(r.ref) {
		return plumbing.NewHashReference("", plumbing.NewHash(r.ref)), nil
	}
	byName := map[plumbing.ReferenceName]*plumbing.Reference{}
	for _, ref := range refs {
		byName[ref.Name()] = ref
	}
	names := []plumbing.ReferenceName{plumbing.NewBranchReferenceName(r.ref), plumbing.NewTagReferenceName(r.ref), plumbing.ReferenceName(r.ref)}
	if r.ref == "" {
		names = []plumbing.ReferenceName{plumbing.HEAD}
	}
	for _, name := range names {
		for ref := byName[name]; ref != nil; ref = byName[ref.Target()] {
			if ref.Type() == plumbing.HashReference {
				return ref, nil
			}
		}
	}
	if r.ref == "" {
		return nil, errors.New("it has no default branch; name one: ?ref=REF")
	}
	return nil, fmt.Errorf("it has no branch or tag %s", r.ref)
}

func (r *repository) remote() *gitconfig.RemoteConfig {
	return &gitconfig.RemoteConfig{Name: "origin", URLs: []string{r.url}}
}

// auth is from ~/.netrc for https. For ssh the agent authenticates, and known_hosts verifies hosts.
func (r *repository) auth() (transport.AuthMethod, error) {
	u, err := url.Parse(r.url)
	if err != nil || u.Scheme == "ssh" {
		return nil, err
	}
	return netrc(u.Hostname(), os.Getenv)
}

// Fetch downloads the newest commits, as far back as causes need them, and the files of the newest.
func (r *repository) Fetch(ctx context.Context, since Since) (Tree, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	tree, err := r.fetch(ctx, since)
	return tree, r.wrapError("fetch", err)
}

func (r *repository) fetch(ctx context.Context, since Since) (tree Tree, err error) {
	scratch, err := os.MkdirTemp("", "converge-git-")
	if err != nil {
		return tree, err
	}
	defer func() { _ = os.RemoveAll(scratch) }() // in the system's directory for temporary files
	repo, hash, err := r.download(ctx, scratch, fetchDepth)
	if err != nil {
		return tree, err
	}
	commit, err := commitOf(repo, hash)
	if err != nil {
		return tree, err
	}
	root, err := r.cache.replace(func(dir string) error { return checkOut(ctx, commit, dir, r.path) })
	if err != nil {
		return tree, err
	}
	tree = Tree{
		State: commit.Hash.String(), Dir: filepath.Join(root, filepath.FromSlash(r.path)), Root: root,
		Origin: protocol.Origin{Path: r.origin(), Commit: commit.Hash.String()},
	}
	published := ""
	if since != nil {
		published = since(tree.Dir)
	}
	tree.Commits = commitsOf(repo, commit, published, r.path)
	if tree.Commits.Truncated == cutShallow && since != nil && r.local == "" {
		tree.Commits = r.fetchDeeper(ctx, tree.Commits, published)
	}
	tree.Causes = causesIn(tree.Commits, commit, published)
	return tree, nil
}

// fetchDeeper reads more of the history. If no more is available, it returns found.
func (r *repository) fetchDeeper(ctx context.Context, found *protocol.Commits, published string) *protocol.Commits {
	ctx, cancel := context.WithTimeout(ctx, deeperTimeout)
	defer cancel()
	scratch, err := os.MkdirTemp("", "converge-git-")
	if err != nil {
		return found
	}
	defer func() { _ = os.RemoveAll(scratch) }() // in the system's directory for temporary files
	repo, _, err := r.download(ctx, scratch, protocol.MaxCommits+1)
	if err != nil {
		return found
	}
	commit, err := repo.CommitObject(plumbing.NewHash(found.Commit))
	if err != nil { // replaced by a push in the meantime
		return found
	}
	return commitsOf(repo, commit, published, r.path)
}

// origin is equal to the origin of a clone.
func (r *repository) origin() string {
	if known := repositoryOf(r.url); known != "" && r.local == "" {
		return known + "//" + r.path
	}
	return r.url + "//" + r.path
}

// download returns a repository with the newest commits up to depth, and the newest commit.
func (r *repository) download(ctx context.Context, scratch string, depth int) (*git.Repository, plumbing.Hash, error) {
	if r.local != "" {
		return r.open()
	}
	name, commit, err := r.list(ctx)
	if err != nil {
		return nil, commit, err
	}
	auth, err := r.auth()
	if err != nil {
		return nil, commit, err
	}
	store := filesystem.NewStorageWithOptions(&bounded{Filesystem: osfs.New(scratch), limit: maxDownload}, cache.NewObjectLRU(32*cache.MiByte),
		filesystem.Options{LargeObjectThreshold: bigObject})
	repo, err := git.Init(store, nil)
	if err != nil {
		return nil, commit, err
	}
	wanted := string(name)
	if name == "" {
		wanted = commit.String()
	}
	err = git.NewRemote(store, r.remote()).FetchContext(ctx, &git.FetchOptions{
		RefSpecs: []gitconfig.RefSpec{gitconfig.RefSpec("+" + wanted + ":" + string(fetched))}, Depth: depth, Tags: git.NoTags, Auth: auth,
	})
	if err != nil && !errors.Is(err, git.NoErrAlreadyUpToDate) {
		return nil, commit, err
	}
	ref, err := repo.Reference(fetched, true)
	if err != nil {
		return nil, commit, err
	}
	return repo, ref.Hash(), nil
}
