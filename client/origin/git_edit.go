package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5"
	gitconfig "github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/converge-engine/converge/intent/edit"
)

// editTries is how often an edit is tried in case of concurrent pushes.
const editTries = 10

// edited is the name of an edit's commit before it is pushed.
const edited = plumbing.ReferenceName("refs/heads/edited")

// errMoved means that another client pushed.
var errMoved = errors.New("it was changed by another push")

// Edit commits the edit to the branch, and pushes it. It runs neither hooks nor filters.
func (r *repository) Edit(ctx context.Context, e Edit) (Edited, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	for range editTries {
		done, err := r.edit(ctx, e)
		if !errors.Is(err, errMoved) {
			return done, r.wrapError("edit", err)
		}
		e.Expected = &done.Before
	}
	return Edited{}, r.wrapError("edit", fmt.Errorf("%w, %d times", errMoved, editTries))
}

func (r *repository) edit(ctx context.Context, e Edit) (done Edited, err error) {
	scratch, err := os.MkdirTemp("", "converge-git-")
	if err != nil {
		return done, err
	}
	defer func() { _ = os.RemoveAll(scratch) }() // in the system's directory for temporary files
	objects, files := filepath.Join(scratch, "objects"), filepath.Join(scratch, "files")
	if err := errors.Join(os.Mkdir(objects, 0o700), os.Mkdir(files, 0o700)); err != nil {
		return done, err
	}
	branch, err := r.branch(ctx)
	if err != nil {
		return done, err
	}
	repo, hash, err := r.download(ctx, objects, fetchDepth)
	if err != nil {
		return done, err
	}
	base, err := commitOf(repo, hash)
	if err != nil {
		return done, err
	}
	if err := checkOut(ctx, base, files, r.path); err != nil {
		return done, err
	}
	tree := Tree{State: base.Hash.String(), Dir: filepath.Join(files, filepath.FromSlash(r.path)), Root: files}
	change, err := edit.Set(os.DirFS(tree.Dir), e.Path, e.Value)
	if err != nil {
		return done, err
	}
	done = Edited{File: change.File, Before: change.Before, After: change.After}
	switch {
	case e.Expected != nil && *e.Expected != change.Before:
		return done, &ChangedError{Path: e.Path, Expected: *e.Expected, Actual: change.Before}
	case change.Before == change.After:
		return done, nil
	}
	commit, err := commitFile(repo, base, path.Join(r.path, change.File), change.Text, e)
	if err != nil {
		return done, err
	}
	if e.Check != nil {
		if err := os.WriteFile(filepath.Join(tree.Dir, filepath.FromSlash(change.File)), change.Text, 0o600); err != nil {
			return done, err
		}
		if err := e.Check(ctx, tree); err != nil {
			return done, err
		}
	}
	done.Commit = commit.String()
	return done, r.push(ctx, repo, branch, base.Hash, commit)
}

// branch is the full name of the source's branch.
func (r *repository) branch(ctx context.Context) (name plumbing.ReferenceName, err error) {
	if r.local == "" {
		name, _, err = r.list(ctx)
	} else {
		name, err = r.localBranch()
	}
	if err == nil && !name.IsBranch() {
		err = fmt.Errorf("%s is not a branch: name one with ?ref=REF", r.ref)
	}
	return name, err
}

// localBranch is the branch of a repository of this machine. A branch that is checked out is refused, as by git push.
func (r *repository) localBranch() (plumbing.ReferenceName, error) {
	repo, err := git.PlainOpenWithOptions(r.local, &git.PlainOpenOptions{EnableDotGitCommonDir: true})
	if err != nil {
		return "", err
	}
	head, err := repo.Reference(plumbing.HEAD, false)
	if err != nil {
		return "", err
	}
	config, err := repo.Config()
	if err != nil {
		return "", err
	}
	name := plumbing.NewBranchReferenceName(r.ref)
	if r.ref == "" {
		name = head.Target()
	}
	if _, err := repo.Reference(name, true); err != nil {
		return "", fmt.Errorf("it has no branch %s: %w", name.Short(), err)
	}
	if !config.Core.IsBare && head.Target() == name {
		return "", fmt.Errorf("%s is checked out in %s: edit its files there", name.Short(), r.local)
	}
	return name, nil
}

// commitFile makes a commit in which one file differs from the base.
func commitFile(repo *git.Repository, base *object.Commit, name string, text []byte, e Edit) (plumbing.Hash, error) {
	blob := repo.Storer.NewEncodedObject()
	blob.SetType(plumbing.BlobObject)
	w, err := blob.Writer()
	if err == nil {
		_, err = w.Write(text)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return plumbing.ZeroHash, err
	}
	file, err := repo.Storer.SetEncodedObject(blob)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	tree, err := base.Tree()
	if err != nil {
		return plumbing.ZeroHash, err
	}
	root, err := withFile(repo, tree, strings.Split(name, "/"), file)
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("%s: %w", name, err)
	}
	who := object.Signature{Name: e.Author, Email: e.Email, When: time.Now()}
	return store(repo, &object.Commit{Author: who, Committer: who, Message: e.Message, TreeHash: root, ParentHashes: []plumbing.Hash{base.Hash}})
}

// withFile writes a tree with a new content for the file at a path; modes and all other entries are unchanged.
func withFile(repo *git.Repository, tree *object.Tree, at []string, file plumbing.Hash) (plumbing.Hash, error) {
	i := slices.IndexFunc(tree.Entries, func(e object.TreeEntry) bool { return e.Name == at[0] })
	if i < 0 {
		return plumbing.ZeroHash, io.ErrUnexpectedEOF
	}
	entries := slices.Clone(tree.Entries)
	switch entry := &entries[i]; {
	case len(at) == 1 && (entry.Mode == filemode.Regular || entry.Mode == filemode.Executable || entry.Mode == filemode.Deprecated):
		entry.Hash = file
	case len(at) > 1 && entry.Mode == filemode.Dir:
		inner, err := repo.TreeObject(entry.Hash)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		if entry.Hash, err = withFile(repo, inner, at[1:], file); err != nil {
			return plumbing.ZeroHash, err
		}
	default:
		return plumbing.ZeroHash, errors.New("it is a link, and links are not followed")
	}
	return store(repo, &object.Tree{Entries: entries})
}

// encoder is a commit or a tree.
type encoder interface {
	Encode(o plumbing.EncodedObject) error
}

func store(repo *git.Repository, o encoder) (plumbing.Hash, error) {
	encoded := repo.Storer.NewEncodedObject()
	if err := o.Encode(encoded); err != nil {
		return plumbing.ZeroHash, err
	}
	return repo.Storer.SetEncodedObject(encoded)
}

// push moves the branch to the commit, if it is still at the base.
func (r *repository) push(ctx context.Context, repo *git.Repository, branch plumbing.ReferenceName, base, commit plumbing.Hash) error {
	if r.local != "" {
		err := repo.Storer.CheckAndSetReference(plumbing.NewHashReference(branch, commit), plumbing.NewHashReference(branch, base))
		if _, remoteHead, _ := r.open(); err != nil && remoteHead != base {
			return errMoved
		}
		return err
	}
	if err := repo.Storer.SetReference(plumbing.NewHashReference(edited, commit)); err != nil {
		return err
	}
	auth, err := r.auth()
	if err != nil {
		return err
	}
	err = git.NewRemote(repo.Storer, r.remote()).PushContext(ctx, &git.PushOptions{
		RemoteName: "origin", Auth: auth, RefSpecs: []gitconfig.RefSpec{gitconfig.RefSpec(string(edited) + ":" + string(branch))},
		RequireRemoteRefs: []gitconfig.RefSpec{gitconfig.RefSpec(base.String() + ":" + string(branch))},
	})
	if err == nil {
		return nil
	}
	_, remoteHead, listed := r.list(ctx)
	switch {
	case listed == nil && remoteHead == commit: // the answer was lost
		return nil
	case listed == nil && remoteHead != base:
		return errMoved
	}
	return fmt.Errorf("push: %w", err)
}
