package origin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes/custom"
)

// Limits of a command that generates a configuration.
const (
	commandTimeout = time.Minute
	maxPrinted     = 1_000_000 // bytes, as for one file of a configuration
	maxGenerated   = 64 << 20  // bytes of the files that it writes
)

// outputVariable names the directory that a command may write files to.
const outputVariable = "CONVERGE_OUTPUT"

// printedFile contains the standard output of a command.
const printedFile = "stdout.converge.yaml"

// command is a source whose configuration is the output of a command.
type command struct {
	name  string
	argv  []string
	dir   string // working directory
	cache cacheDir
}

// parseCommand splits text at spaces. No shell is involved.
func parseCommand(text string) (Source, error) {
	argv := strings.Fields(text)
	if len(argv) == 0 {
		return nil, errors.New("exec:: without a command; expected exec::COMMAND ARGUMENT…")
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	c := &command{name: commandPrefix + text, argv: argv, dir: dir}
	c.cache, err = cacheDirOf(c.origin())
	return c, err
}

func (c *command) String() string { return c.name }

// origin is equal for equal words in the same directory.
func (c *command) origin() string { return c.name + " in " + c.dir }

// Newest runs the command, because there is no other way to know.
func (c *command) Newest(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "converge-output-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // in the system's directory for temporary files
	return c.run(ctx, dir)
}

// Fetch runs the command again, and keeps its output.
func (c *command) Fetch(ctx context.Context, _ Since) (tree Tree, err error) {
	tree.Root, err = c.cache.replace(func(dir string) error {
		tree.State, err = c.run(ctx, dir)
		return err
	})
	tree.Dir, tree.Origin = tree.Root, protocol.Origin{Path: c.origin()}
	return tree, err
}

// run makes the command write into an empty directory, and returns a digest of the content.
func (c *command) run(ctx context.Context, dir string) (string, error) {
	stdout, stderr, code, err := custom.RunTool(ctx, custom.Tool{
		ErrorPrefix: c.name, Dir: c.dir, Argv: c.argv, Env: map[string]string{outputVariable: dir}, Timeout: commandTimeout, Limit: maxPrinted,
	})
	if err != nil {
		return "", err
	}
	if code != 0 {
		return "", fmt.Errorf("%s exited %d%s", c.name, code, lastLine(stderr))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close() // all data is written
	if len(stdout) > 0 {
		file, err := root.OpenFile(printedFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return "", fmt.Errorf("store the output of %s: %w", c.name, err)
		}
		_, err = file.Write(stdout)
		if err := errors.Join(err, file.Close()); err != nil {
			return "", err
		}
	}
	state, err := digest(root)
	if err != nil {
		return "", fmt.Errorf("read the files of %s: %w", c.name, err)
	}
	return state, nil
}

func lastLine(output []byte) string {
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return ": " + last
	}
	return ""
}

// digest covers all files below a directory. Links and other special files are refused.
func digest(root *os.Root) (string, error) {
	sum, left := sha256.New(), int64(maxGenerated)
	err := fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if !entry.Type().IsRegular() {
			return fmt.Errorf("%s is not a regular file", name)
		}
		file, err := root.Open(filepath.FromSlash(name))
		if err != nil {
			return err
		}
		defer file.Close() // opened for reading only
		content := sha256.New()
		n, err := io.Copy(content, io.LimitReader(file, left+1))
		if left -= n; err == nil && left < 0 {
			err = fmt.Errorf("the files exceed %d MiB", maxGenerated>>20)
		}
		if err == nil {
			_, err = fmt.Fprintf(sum, "%q %x\n", name, content.Sum(nil))
		}
		return err
	})
	return fmt.Sprintf("%x", sum.Sum(nil)), err
}
