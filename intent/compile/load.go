package compile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/sources"
)

// Loaded is the configuration of one application as it was read and found right. Compiling it reads
// nothing more.
type Loaded struct {
	*config.Config
	inputs *sources.Objects
}

// Load reads converge.yaml and *.converge.yaml in dir and below, dot-directories left out, and
// checks everything. An error of type Problems lists all that is wrong; any other error means that
// the directory could not be read.
func Load(dir string) (*Loaded, error) { return LoadWith(dir, config.Options{}) }

// LoadWith is Load with options.
func LoadWith(dir string, options config.Options) (*Loaded, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", dir, err)
	}
	root, err := os.OpenRoot(absolute) // nothing outside is read, not even through a link
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", dir, strict.Reason(err))
	}
	defer root.Close()
	return LoadFS(root.FS(), absolute, options)
}

// LoadFS is LoadWith of a file system that stands for the directory.
func LoadFS(fsys fs.FS, dir string, options config.Options) (*Loaded, error) {
	l, err := config.Read(fsys, dir, options)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", dir, err)
	}
	loaded := &Loaded{Config: l.Config, inputs: sources.Read(l)}
	slices.Sort(loaded.Files)
	loaded.Files = slices.Compact(loaded.Files)
	compiled, problems := compile(loaded, l.Broken)
	if len(l.Problems())+len(problems) == 0 {
		compiled.boundSpecs(loaded.Services)
	}
	if problems = append(l.Problems(), problems...).Sorted(); len(problems) > 0 {
		return nil, problems
	}
	return loaded, nil
}
