// Package histories keeps recorded histories of released versions of the workflows' logic as they were recorded: a file
// beside them, FROZEN, has the digest of each. It knows nothing of what is in them, and imports the standard library only.
package histories

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// frozen is the name of the list. Its lines are those of sha256sum, by path, so that `sha256sum -c FROZEN` reads it too;
// lines that begin with # are for people.
const frozen = "FROZEN"

// Freeze adds the folders of dir that are not frozen yet to the list, and returns them. What the list has stays as it is,
// and nothing is added while something of it does not hold.
func Freeze(dir string) ([]string, error) {
	wrong, err := Check(dir)
	if err != nil {
		return nil, err
	}
	if len(wrong) > 0 {
		return nil, errors.New(strings.Join(wrong, "\n"))
	}
	listed, err := list(dir)
	if err != nil {
		return nil, err
	}
	present, err := digests(dir)
	if err != nil {
		return nil, err
	}
	var added []string
	var lines strings.Builder
	for _, path := range sorted(present) {
		folder := folderOf(path)
		if isFrozen(listed, folder) {
			continue
		}
		if !slices.Contains(added, folder) {
			added = append(added, folder)
		}
		fmt.Fprintf(&lines, "%s  %s\n", present[path], path)
	}
	f, err := os.OpenFile(filepath.Join(dir, frozen), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(lines.String())
	return added, errors.Join(err, f.Close())
}

// Check says what of the frozen folders is not as it was frozen: a line for each file.
func Check(dir string) ([]string, error) {
	listed, err := list(dir)
	if err != nil {
		return nil, err
	}
	present, err := digests(dir)
	if err != nil {
		return nil, err
	}
	var wrong []string
	for _, path := range sorted(listed) {
		if digest, there := present[path]; !there {
			wrong = append(wrong, path+" is frozen and is gone")
		} else if digest != listed[path] {
			wrong = append(wrong, path+" is frozen and has changed")
		}
	}
	for _, path := range sorted(present) {
		if _, there := listed[path]; !there && isFrozen(listed, folderOf(path)) {
			wrong = append(wrong, path+" was added to a frozen folder")
		}
	}
	return wrong, nil
}

// Writable is an error when a folder is frozen; it names the next one.
func Writable(dir, folder string) error {
	listed, err := list(dir)
	if err != nil || !isFrozen(listed, folder) {
		return err
	}
	next := 1
	for path := range listed {
		if n, err := strconv.Atoi(strings.TrimPrefix(folderOf(path), "v")); err == nil {
			next = max(next, n+1)
		}
	}
	return fmt.Errorf("%s is released and frozen: put the change behind workflow.GetVersion and record it into v%d", folder, next)
}

// list reads the digests of frozen files, by path; none without a list.
func list(dir string) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, frozen))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		digest, path, found := strings.Cut(line, "  ")
		if _, twice := listed[path]; !found || twice || len(digest) != 2*sha256.Size || folderOf(path) == path {
			return nil, fmt.Errorf("%s: %q: expected the digest and the path of a file, once each", frozen, line)
		}
		listed[path] = digest
	}
	return listed, nil
}

// digests are those of all files in folders of dir, by path.
func digests(dir string) (map[string]string, error) {
	present := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Dir(path) == filepath.Clean(dir) {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		present[filepath.ToSlash(relative)] = fmt.Sprintf("%x", sha256.Sum256(data))
		return err
	})
	return present, err
}

func isFrozen(listed map[string]string, folder string) bool {
	return slices.ContainsFunc(sorted(listed), func(path string) bool { return folderOf(path) == folder })
}

func folderOf(path string) string {
	folder, _, _ := strings.Cut(path, "/")
	return folder
}

func sorted(m map[string]string) []string {
	paths := make([]string, 0, len(m))
	for path := range m {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}
