package config

import (
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Bounds of what is read.
const (
	MaxAsset  = 150_000   // bytes of one asset (D1)
	MaxSource = 1_000_000 // bytes of one YAML file, which may hold many documents
)

// Options change what Load accepts.
type Options struct {
	// AllowFake accepts runtimes of kind fake: tests and simulations.
	AllowFake bool
	// Runtimes are definitions of other applications that release channels may name.
	Runtimes []entities.RuntimeDefinition

	// Client fetches charts; the default one when nil.
	Client *http.Client
}

// Config is the configuration of one application as it was read.
type Config struct {
	Dir         string // absolute
	Options     Options
	Application *Document[Application]
	Services    []*Document[Service]
	Runtimes    []*Document[Runtime]
	Protections []*Document[Protection]
	Extensions  []*Document[Extension]
	Contents    map[string]string // of the files that services pass on, by path from dir
	Files       []string          // every file that was read, by path from Dir: what to watch
}

// Read reads the documents of a directory, and the files that services pass on.
func Read(fsys fs.FS, dir string, options Options) (*Reader, error) {
	l := &Reader{FS: fsys, Config: &Config{Dir: dir, Options: options, Contents: map[string]string{}}}
	names, err := configurationFiles(fsys)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".yml") {
			l.Broken = true
			l.fail(name, 1, 1, Fault{Code: "misnamed-file", Message: "a file of this name is not read", Expected: "the ending .yaml"})
			continue
		}
		l.source(name)
	}
	l.contents()
	return l, nil
}

// configurationFiles lists the configuration files in order of their path.
func configurationFiles(fsys fs.FS) ([]string, error) {
	var names []string
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && name == ".":
			return err
		case err != nil:
			return fmt.Errorf("%s: %w", name, strict.Reason(err))
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !entry.IsDir() && IsSource(entry.Name()):
			names = append(names, name)
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// IsSource tells whether a file is meant to be configuration. One that ends in .yml is refused
// instead of being passed over in silence.
func IsSource(name string) bool {
	if stem, misnamed := strings.CutSuffix(name, ".yml"); misnamed {
		name = stem + ".yaml"
	}
	return name == "converge.yaml" || strings.HasSuffix(name, ".converge.yaml")
}

// Fault is what is wrong and what would have been right, without a position in a file.
type Fault = strict.Fault

// Problem is a Fault at a file, line, column and path.
type Problem = strict.Problem

// Problems is everything wrong with a configuration, sorted by position. It is an error; its text has
// one line for each problem.
type Problems = strict.Problems
