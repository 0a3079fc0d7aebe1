package importer

import (
	"cmp"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// fromHelm reads the charts of a directory, and the files of values that lie with them, one for each environment.
func (d *deployed) fromHelm() error {
	charts := d.holding("Chart.yaml", ".", "*", "charts/*")
	if len(charts) == 0 {
		return errors.New("there is no chart in it, nor in its folders")
	}
	for _, chart := range charts {
		about := d.document(filepath.Join(chart, "Chart.yaml"))
		if textAt(about, "type") == "library" {
			d.leave("%s is a library of charts", chart)
			continue
		}
		beside := []string{chart}
		if len(charts) == 1 && chart != "." {
			beside = append(beside, ".")
		}
		d.chart(cmp.Or(textAt(about, "name"), filepath.Base(chart)), chart, textAt(about, "appVersion"), d.valuesFiles(beside))
	}
	return nil
}

// holding are the directories, of some patterns, that have a file.
func (d *deployed) holding(file string, patterns ...string) (dirs []string) {
	for _, pattern := range patterns {
		found, _ := filepath.Glob(filepath.Join(d.dir, pattern, file))
		for _, path := range found {
			if dir, err := filepath.Rel(d.dir, filepath.Dir(path)); err == nil {
				dirs = append(dirs, filepath.ToSlash(dir))
			}
		}
		if pattern == "." && len(dirs) > 0 {
			return dirs // what lies within is a part of it
		}
	}
	return dirs
}

// valuesFiles are files of values by the environment that they are named after.
func (d *deployed) valuesFiles(dirs []string) map[string]string {
	files := map[string]string{}
	for _, dir := range dirs {
		for pattern, cut := range map[string][2]string{
			"values-*.yaml": {"values-", ".yaml"}, "values.*.yaml": {"values.", ".yaml"}, "*-values.yaml": {"", "-values.yaml"},
			"values/*.yaml": {"", ".yaml"}, "environments/*.yaml": {"", ".yaml"}, "env/*.yaml": {"", ".yaml"},
		} {
			found, _ := filepath.Glob(filepath.Join(d.dir, dir, pattern))
			for _, path := range found {
				name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), cut[0]), cut[1])
				if file, err := filepath.Rel(d.dir, path); err == nil && isName(name) {
					files[name] = filepath.ToSlash(file)
				}
			}
		}
	}
	return files
}

// chart notes one, in a channel for each file of values.
func (d *deployed) chart(name, chart, appVersion string, files map[string]string) {
	defaults := d.document(filepath.Join(chart, "values.yaml"))
	if len(files) == 0 {
		files = map[string]string{only: ""}
	}
	var s *deployedService
	tags := map[string]string{}
	for _, channel := range slices.SortedFunc(maps.Keys(files), inTurn) {
		file := files[channel]
		helm, values := map[string]any{"chart": chart}, defaults
		if file != "" {
			helm["valuesFiles"] = []any{file}
			values = overlaid(defaults, d.document(file))
		}
		tags[channel] = cmp.Or(textAt(values, "image", "tag"), appVersion)
		if put := d.put(name, channel, "", deployedPart{kubernetes: map[string]any{"helm": helm}}); put != nil {
			s = put
		}
	}
	if s == nil {
		return
	}
	d.tagged(name, s, tags, hasTag(defaults))
}

// tagged has the tag of a chart's image be the version.
func (d *deployed) tagged(name string, s *deployedService, tags map[string]string, has bool) {
	channels := slices.SortedFunc(maps.Keys(tags), inTurn)
	s.version = tags[channels[0]]
	if !has || s.version == "" {
		d.leave("no value image.tag of %s becomes its version: say ${{ version }} where its image is named, for releases to change it", name)
		return
	}
	s.tag = map[string]any{"image": map[string]any{"tag": "${{ version }}"}}
	for _, channel := range channels[1:] {
		if tags[channel] != s.version {
			d.leave("%s is at %s in %s, where %s is what is released first", name, tags[channel], channel, s.version)
		}
	}
}

// hasTag reports whether a chart's values name the tag of its image, empty or not.
func hasTag(values map[string]any) bool {
	image, _ := values["image"].(map[string]any)
	_, has := image["tag"]
	return has
}
