package sources

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
)

// Chart is a loaded Helm chart. It is never modified.
type Chart struct{ files []*archive.BufferedFile }

// ReadChart reads a chart from a directory of fsys, and also returns the names of the files. It skips files that .helmignore excludes.
// Dependencies that are not in the chart come from the lock; nil has none. A chart is nil if the lock leaves out one of them.
func ReadChart(fsys fs.FS, dir string, locked lockedCharts) (*Chart, []string, error) {
	r := &chartReader{fsys: fsys, locked: locked}
	files, err := r.withDependencies(dir, 0)
	if err != nil || r.incomplete {
		return nil, r.read, err
	}
	c, err := newChart(files)
	return c, r.read, err
}

// directory reads the files of a chart from its directory.
func (r *chartReader) directory(dir string) (files []*archive.BufferedFile, err error) {
	ignore := ignoreRules(r.fsys, dir)
	err = fs.WalkDir(r.fsys, dir, func(name string, entry fs.DirEntry, err error) error {
		relative := strings.TrimPrefix(strings.TrimPrefix(name, dir), "/")
		switch {
		case err != nil:
			return err
		case relative != "" && ignore.match(relative, entry.IsDir()) && entry.IsDir():
			return fs.SkipDir
		case entry.IsDir() || ignore.match(relative, false):
			return nil
		}
		info, err := fs.Stat(r.fsys, name)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file", name)
		}
		if r.size += info.Size(); r.size > MaxTree {
			return fmt.Errorf("the chart has more than %d bytes", MaxTree)
		}
		data, err := fs.ReadFile(r.fsys, name)
		files = append(files, &archive.BufferedFile{Name: relative, Data: data})
		r.read = append(r.read, name)
		return err
	})
	return files, err
}

// OpenChart reads a packed chart.
func OpenChart(data []byte) (*Chart, error) {
	files, err := archive.LoadArchiveFiles(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("this is not a packed chart: %w", err)
	}
	size := 0
	for _, f := range files {
		if size += len(f.Data); size > MaxTree {
			return nil, fmt.Errorf("the chart has more than %d bytes", MaxTree)
		}
	}
	return newChart(files)
}

func newChart(files []*archive.BufferedFile) (*Chart, error) {
	if _, err := render(Order{Chart: files}); err != nil {
		return nil, err
	}
	return &Chart{files: files}, nil
}

// ignored are the rules of a .helmignore file. The last match counts.
type ignored []ignoreRule

type ignoreRule struct {
	pattern       string
	negated, dirs bool
}

func ignoreRules(fsys fs.FS, dir string) ignored {
	rules := ignored{{pattern: ".git", dirs: true}, {pattern: "templates/.?*"}}
	data, _ := fs.ReadFile(fsys, path.Join(dir, ".helmignore"))
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		rule := ignoreRule{}
		line, rule.negated = strings.CutPrefix(line, "!")
		rule.pattern, rule.dirs = strings.CutSuffix(line, "/")
		rules = append(rules, rule)
	}
	return rules
}

// match reports whether a path in the chart is excluded. A pattern with a slash matches the whole path, one without matches the name
// only.
func (r ignored) match(name string, dir bool) bool {
	out := false
	for _, rule := range r {
		against := path.Base(name)
		pattern := rule.pattern
		if strings.Contains(pattern, "/") {
			against, pattern = name, strings.TrimPrefix(pattern, "/")
		}
		if ok, err := path.Match(pattern, against); err == nil && ok && (dir || !rule.dirs) {
			out = !rule.negated
		}
	}
	return out
}
