package origin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// runGit runs git in a directory that the test made.
func runGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{
		"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-c", "protocol.file.allow=always",
	}, args...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// committedTree is a work tree with one commit.
func committedTree(t *testing.T) string {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	dir := t.TempDir()
	for name, content := range map[string]string{
		"deploy/converge.yaml": "a", "deploy/sub/app.yaml": "b", "deploy/kept.log": "c", "other/file": "d",
		".gitignore": "*.log\n", "deploy/.gitignore": "# ours\nbuild/\n/top\n!good.log\n", "deploy/build/kept": "e",
	} {
		writeFile(t, dir, name, content)
	}
	writeScript(t, filepath.Join(dir, "deploy", "apply"), "true")
	require.NoError(t, os.Symlink("converge.yaml", filepath.Join(dir, "deploy", "link")))
	runGit(t, dir, "init", "-q")
	runGit(t, dir, "add", "-f", ".")
	runGit(t, dir, "commit", "-q", "-m", "a")
	return dir
}

// A directory is modified when git says that it is.
func TestModifiedIsWhatGitReports_G4(t *testing.T) {
	in := func(name ...string) string { return filepath.Join(append([]string{"deploy"}, name...)...) }
	write := func(name, content string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { writeFile(t, dir, name, content) }
	}
	for name, change := range map[string]func(t *testing.T, dir string){
		"nothing":                     func(*testing.T, string) {},
		"changed":                     write(in("converge.yaml"), "A"),
		"longer":                      write(in("converge.yaml"), "aa"),
		"written again":               write(in("converge.yaml"), "a"),
		"new":                         write(in("new.yaml"), ""),
		"new below":                   write(in("more", "new.yaml"), ""),
		"ignored":                     write(in("new.log"), ""),
		"ignored below":               write(in("sub", "new.log"), ""),
		"not ignored after all":       write(in("good.log"), ""),
		"ignored directory":           write(in("build", "out"), ""),
		"ignored at the top only":     write(in("sub", "top"), ""),
		"ignored at the top":          write(in("top"), ""),
		"committed, though ignored":   write(in("kept.log"), "C"),
		"committed in an ignored one": write(in("build", "kept"), "E"),
		"elsewhere":                   write("other/file", "D"),
		"excluded": func(t *testing.T, dir string) {
			writeFile(t, dir, ".git/info/exclude", "mine\n")
			writeFile(t, dir, in("mine"), "")
		},
		"own state":                  write(in(".converge", "db"), ""),
		"state of another directory": write(in("sub", ".converge", "db"), ""),
		"an empty directory":         func(t *testing.T, dir string) { require.NoError(t, os.Mkdir(filepath.Join(dir, in("empty")), 0o700)) },
		"removed": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, in("sub", "app.yaml"))))
		},
		"not executable any more": func(t *testing.T, dir string) { require.NoError(t, os.Chmod(filepath.Join(dir, in("apply")), 0o600)) },
		"executable, not compared": func(t *testing.T, dir string) {
			runGit(t, dir, "config", "core.fileMode", "false")
			require.NoError(t, os.Chmod(filepath.Join(dir, in("apply")), 0o600))
		},
		"a link elsewhere": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, in("link"))))
			require.NoError(t, os.Symlink("sub", filepath.Join(dir, in("link"))))
		},
		"a file in the place of a link": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, in("link"))))
			writeFile(t, dir, in("link"), "converge.yaml")
		},
		"a pipe in the place of a file": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, in("converge.yaml"))))
			require.NoError(t, syscall.Mkfifo(filepath.Join(dir, in("converge.yaml")), 0o600))
		},
		"another repository": func(t *testing.T, dir string) { runGit(t, dir, "clone", "-q", ".", in("clone")) },
		"a submodule": func(t *testing.T, dir string) {
			runGit(t, dir, "submodule", "--quiet", "add", "file://"+committedTree(t), in("module"))
			runGit(t, dir, "commit", "-q", "-m", "with a module")
		},
		"a sparse checkout": func(t *testing.T, dir string) { runGit(t, dir, "sparse-checkout", "set", "other") },
		"staged":            func(t *testing.T, dir string) { writeFile(t, dir, in("new.yaml"), ""); runGit(t, dir, "add", ".") },
		"a linked work tree": func(t *testing.T, dir string) {
			runGit(t, dir, "worktree", "add", "-q", filepath.Join(dir, "deploy", "tree"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := committedTree(t)
			change(t, dir)
			for _, part := range []string{"deploy", ""} {
				if _, err := os.Stat(filepath.Join(dir, part)); err != nil {
					continue // left out by the sparse checkout
				}
				want := runGit(t, dir, "status", "--porcelain", "--", filepath.Join(".", part), ":(exclude)"+filepath.Join(part, ".converge"))
				got := Of(t.Context(), filepath.Join(dir, part))
				require.Equal(t, strings.TrimSpace(runGit(t, dir, "rev-parse", "HEAD")), got.Commit)
				require.Equal(t, want != "", got.Dirty, "%q: %s", part, want)
			}
		})
	}
}

// A linked work tree, and a directory behind a link, have the origin of the repository.
func TestOriginOfOtherWorkTrees(t *testing.T) {
	dir := committedTree(t)
	for format, args := range map[string][]string{"partial": {"--filter=blob:none"}, "shallow": {"--depth=1"}} {
		runGit(t, dir, "config", "uploadpack.allowFilter", "true")
		clone := filepath.Join(t.TempDir(), format)
		runGit(t, dir, append([]string{"clone", "-q", "file://" + dir, clone}, args...)...)
		runGit(t, clone, "remote", "set-url", "origin", "https://git.acme.dev/acme/mono")
		origin := Of(t.Context(), filepath.Join(clone, "deploy"))
		require.Equal(t, protocol.Origin{Path: "git.acme.dev/acme/mono//deploy", Commit: origin.Commit}, origin, format)
		require.Len(t, origin.Commit, 40)
	}
	runGit(t, dir, "remote", "add", "origin", "shop:mono.git")
	writeFile(t, os.Getenv("HOME"), ".gitconfig", "[url \"https://git.acme.dev/acme/\"]\n\tinsteadOf = shop:\n")
	want := Of(t.Context(), filepath.Join(dir, "deploy"))
	require.Equal(t, protocol.Origin{Path: "git.acme.dev/acme/mono//deploy", Commit: want.Commit}, want)
	linked := filepath.Join(t.TempDir(), "linked")
	runGit(t, dir, "worktree", "add", "-q", linked)
	require.Equal(t, want, Of(t.Context(), filepath.Join(linked, "deploy")))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(filepath.Join(dir, "deploy"), link))
	require.Equal(t, want, Of(t.Context(), link))
}

// A directory that looks like a bare repository, or whose repository names programs, starts none.
func TestNothingOfADirectoryIsRun_G4(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "ran")
	dir := committedTree(t)
	hostile := "[core]\n\trepositoryformatversion = 0\n\tworktree = .\n\tfsmonitor = touch " + mark + "\n\tsshCommand = touch " + mark +
		"\n[alias]\n\tstatus = !touch " + mark + "\n[filter \"evil\"]\n\tclean = touch " + mark + "\n\tsmudge = touch " + mark + "\n"
	bare := filepath.Join(dir, "deploy")
	for name, content := range map[string]string{"HEAD": "ref: refs/heads/main\n", "config": hostile, "objects/info/x": "", "refs/heads/x": ""} {
		writeFile(t, bare, name, content)
	}
	origin := Of(t.Context(), bare)
	require.NoFileExists(t, mark)
	require.Len(t, origin.Commit, 40, "the repository around it")

	other := committedTree(t)
	writeFile(t, other, ".git/config", hostile+"[include]\n\tpath = ../evil.config\n")
	writeFile(t, other, "evil.config", hostile)
	writeFile(t, other, "deploy/.gitattributes", "* filter=evil\n")
	writeFile(t, other, "deploy/converge.yaml", "changed")
	for _, hook := range []string{"post-index-change", "fsmonitor-watchman", "reference-transaction"} {
		writeScript(t, filepath.Join(other, ".git", "hooks", hook), "touch "+mark)
	}
	origin = Of(t.Context(), filepath.Join(other, "deploy"))
	require.True(t, origin.Dirty)
	require.NotNil(t, CommitsIn(filepath.Join(other, "deploy"), origin.Commit, ""))
	require.NoFileExists(t, mark)
}

// A repository that cannot be read in time, or that is damaged, delays nothing.
func TestUnreadableRepositoryHasNoOrigin(t *testing.T) {
	for name, file := range map[string]string{"a pipe": "HEAD", "a pipe as configuration": "config"} {
		t.Run(name, func(t *testing.T) {
			dir := committedTree(t)
			require.NoError(t, os.Remove(filepath.Join(dir, ".git", file)))
			require.NoError(t, syscall.Mkfifo(filepath.Join(dir, ".git", file), 0o600))
			t.Cleanup(func() { // ends the reading
				pipe, err := os.OpenFile(filepath.Join(dir, ".git", file), os.O_RDWR, 0)
				require.NoError(t, err)
				require.NoError(t, pipe.Close())
			})
			require.Equal(t, protocol.Origin{Path: dir}, Of(t.Context(), dir))
		})
	}
	other := t.TempDir()
	runGit(t, other, "init", "-q", "--object-format=sha256")
	runGit(t, other, "remote", "add", "origin", "https://git.acme.dev/acme/mono")
	require.Equal(t, protocol.Origin{Path: "git.acme.dev/acme/mono//"}, Of(t.Context(), other), "of its own format")
	dir := committedTree(t)
	writeFile(t, dir, ".git/config", "[core")
	require.Equal(t, protocol.Origin{Path: dir}, Of(t.Context(), dir))
}
