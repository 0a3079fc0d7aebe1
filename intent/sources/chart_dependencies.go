package sources

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v4/pkg/chart/loader/archive"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Dependencies of a chart in a directory that are not in its charts directory come from converge.lock, or from the other directory that
// the chart names. So they are there as after `helm dependency build`.

// dependency is a dependency in the metadata of a chart, or in the lock of Helm.
type dependency struct{ Name, Version, Repository string }

// maxDependencyDepth bounds how deep charts in directories depend on each other.
const maxDependencyDepth = 16

// chartReader reads a chart from directories.
type chartReader struct {
	fsys       fs.FS
	locked     lockedCharts
	read       []string
	size       int64
	incomplete bool // a dependency was left out
}

// withDependencies reads the chart in a directory, with the dependencies that it lacks.
func (r *chartReader) withDependencies(dir string, depth int) ([]*archive.BufferedFile, error) {
	files, err := r.directory(dir)
	if err != nil {
		return nil, err
	}
	needed := dependenciesIn(files, "Chart.yaml", "requirements.yaml")
	pinned := dependenciesIn(files, "Chart.lock", "requirements.lock")
	vendored := vendoredCharts(files)
	for _, d := range needed {
		if slices.ContainsFunc(vendored, d.isIn) || d.Repository == "" {
			continue
		}
		part, err := r.dependency(dir, d.pinnedBy(pinned), depth)
		if err != nil {
			return nil, err
		}
		for _, f := range part {
			files = append(files, &archive.BufferedFile{Name: path.Join("charts", d.Name+"-"+strings.NewReplacer("/", "-", " ", "").Replace(d.Version), f.Name), Data: f.Data})
		}
	}
	return files, nil
}

// dependency returns the files of a dependency of the chart in a directory.
func (r *chartReader) dependency(dir string, d dependency, depth int) ([]*archive.BufferedFile, error) {
	refuse := func(expected, format string, args ...any) error {
		return &Refusal{fmt.Sprintf("%s: dependency %s: ", path.Join(dir, "Chart.yaml"), strict.Clip(d.Name)) + fmt.Sprintf(format, args...), expected}
	}
	if at, local := strings.CutPrefix(d.Repository, "file://"); local {
		other := path.Join(dir, at)
		switch {
		case path.IsAbs(at) || strings.Contains(at, `\`) || !fs.ValidPath(other):
			return nil, refuse("a directory in the directory of the configuration", "%q is not a path inside the configuration", strict.Clip(at))
		case depth >= maxDependencyDepth:
			return nil, refuse("charts that do not depend on themselves", "it depends on more than %d others", maxDependencyDepth)
		}
		return r.withDependencies(other, depth+1)
	}
	if strings.HasPrefix(d.Repository, "@") || strings.HasPrefix(d.Repository, "alias:") {
		return nil, refuse("its address", "the repository %q is a name in the settings of Helm", strict.Clip(d.Repository))
	}
	named := config.ServiceHelm{Chart: d.Name, Repository: d.Repository, Version: cmp.Or(d.Version, "*")}
	if _, fault := chartFault(&named, named); fault != nil {
		return nil, refuse(fault.Expected, "%s", fault.Message)
	}
	if r.locked == nil {
		return nil, refuse(lockCommand, "it is not in converge.lock")
	}
	chart, err := r.locked.lockedChart(named)
	if refused := new(Refusal); errors.As(err, &refused) {
		return nil, refuse(refused.Expected, "%s", refused.Text)
	}
	if err != nil || chart == nil {
		r.incomplete = true
		return nil, err
	}
	return chart.files, nil
}

// isIn reports whether a chart in a charts directory is the dependency: its name, or the name of its archive.
func (d dependency) isIn(vendored string) bool {
	version, packed := strings.CutPrefix(vendored, d.Name+"-")
	return vendored == d.Name || packed && strings.HasSuffix(version, ".tgz") && strings.ContainsAny(version[:1], "0123456789v")
}

// pinnedBy returns the dependency at the version in the lock of Helm, if that is still a version of it.
func (d dependency) pinnedBy(pinned []dependency) dependency {
	wanted, err := semver.NewConstraint(d.Version)
	for _, p := range pinned {
		version, invalid := semver.NewVersion(p.Version)
		if p.Name == d.Name && p.Repository == d.Repository && err == nil && invalid == nil && wanted.Check(version) {
			return p
		}
	}
	return d
}

// dependenciesIn returns the dependencies in some files of a chart.
func dependenciesIn(files []*archive.BufferedFile, names ...string) (all []dependency) {
	for _, f := range files {
		var metadata struct{ Dependencies []dependency }
		if slices.Contains(names, f.Name) && yaml.Unmarshal(f.Data, &metadata) == nil { // Helm reports what is no YAML
			all = append(all, metadata.Dependencies...)
		}
	}
	return all
}

// vendoredCharts returns the names of the charts in the charts directory, and of their archives.
func vendoredCharts(files []*archive.BufferedFile) (names []string) {
	for _, f := range files {
		below, ok := strings.CutPrefix(f.Name, "charts/")
		dir, file, nested := strings.Cut(below, "/")
		switch {
		case !ok:
		case !nested:
			names = append(names, below)
		case file == "Chart.yaml":
			var metadata struct{ Name string }
			_ = yaml.Unmarshal(f.Data, &metadata) // as above
			names = append(names, cmp.Or(metadata.Name, dir))
		}
	}
	return names
}
