package intent

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
)

// Bounds of what is read.
const (
	maxAsset  = 150_000   // bytes of one asset (D1)
	maxSource = 1_000_000 // bytes of one YAML file, which may hold many documents
	maxTree   = 32 << 20  // bytes of one source of Kubernetes objects, all its files together
)

// Options change what Load accepts.
type Options struct {
	// AllowFake accepts runtimes of kind fake: tests and simulations.
	AllowFake bool
	// Runtimes are definitions of other applications that release channels may name.
	Runtimes []entities.RuntimeDefinition

	client *http.Client // for charts; the default one when nil
}

// Config is the configuration of one application as it was read and found right. Compiling it
// reads nothing more.
type Config struct {
	dir         string
	options     Options
	application *document[Application]
	services    []*document[Service]
	runtimes    []*document[Runtime]
	protections []*document[Protection]
	extensions  []*document[Extension]
	contents    map[string]string // of the files that services pass on, by path from dir
	objects     *objectSources    // what services on Kubernetes runtimes are made of
	files       []string
}

// Dir is the absolute directory that was loaded.
func (c *Config) Dir() string { return c.dir }

// Files lists every file that was read, relative to Dir: what to watch.
func (c *Config) Files() []string { return slices.Clone(c.files) }

// Load reads converge.yaml and *.converge.yaml in dir and below, dot-directories left out, and
// checks everything. An error of type Problems lists all that is wrong; any other error means that
// the directory could not be read.
func Load(dir string) (*Config, error) { return LoadWith(dir, Options{}) }

// LoadWith is Load with options.
func LoadWith(dir string, options Options) (*Config, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", dir, err)
	}
	root, err := os.OpenRoot(absolute) // nothing outside is read, not even through a link
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", dir, reason(err))
	}
	defer root.Close()
	return loadFS(root.FS(), absolute, options)
}

func loadFS(fsys fs.FS, dir string, options Options) (*Config, error) {
	l := &loader{fsys: fsys, config: &Config{dir: dir, options: options, contents: map[string]string{}, objects: newObjectSources()}}
	names, err := configurationFiles(fsys)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", dir, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".yml") {
			l.broken = true
			l.fail(name, 1, 1, Fault{Code: "misnamed-file", Message: "a file of this name is not read", Expected: "the ending .yaml"})
			continue
		}
		l.source(name)
	}
	l.contents()
	l.objects()
	slices.Sort(l.config.files)
	l.config.files = slices.Compact(l.config.files)
	compiled, problems := compile(l.config, l.broken)
	if len(l.collect())+len(problems) == 0 {
		compiled.boundSpecs(l.config.services)
	}
	if problems = append(l.collect(), problems...).Sorted(); len(problems) > 0 {
		return nil, problems
	}
	return l.config, nil
}

// configurationFiles lists the configuration files in order of their path.
func configurationFiles(fsys fs.FS) ([]string, error) {
	var names []string
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && name == ".":
			return err
		case err != nil:
			return fmt.Errorf("%s: %w", name, reason(err))
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !entry.IsDir() && isSource(entry.Name()):
			names = append(names, name)
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// isSource tells whether a file is meant to be configuration. One that ends in .yml is refused
// instead of being passed over in silence.
func isSource(name string) bool {
	if stem, misnamed := strings.CutSuffix(name, ".yml"); misnamed {
		name = stem + ".yaml"
	}
	return name == "converge.yaml" || strings.HasSuffix(name, ".converge.yaml")
}

// reason drops the operation and path that an error repeats.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
