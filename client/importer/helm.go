package importer

import (
	"cmp"
	"errors"
	"maps"
	"path/filepath"
	"slices"
)

// fromHelm reads the charts of a directory, and the values files next to them, one for each environment.
func fromHelm(r reader) error {
	d := helmReader{r}
	charts := d.dirsWith("Chart.yaml", ".", "*", "charts/*")
	if len(charts) == 0 {
		return errors.New("it contains no chart, and neither do its subdirectories")
	}
	for _, chart := range charts {
		metadata := d.document(filepath.Join(chart, "Chart.yaml"))
		if textAt(metadata, "type") == "library" {
			d.omit("%s is a library chart", chart)
			continue
		}
		dirs := []string{chart}
		if len(charts) == 1 && chart != "." {
			dirs = append(dirs, ".")
		}
		d.chart(cmp.Or(textAt(metadata, "name"), filepath.Base(chart)), chart, textAt(metadata, "appVersion"), d.valuesFiles(dirs))
	}
	return nil
}

// helmReader records charts.
type helmReader struct{ reader }

// chart records one chart, in a channel for each values file.
func (d helmReader) chart(name, chart, appVersion string, files map[string]string) {
	defaults := d.document(filepath.Join(chart, "values.yaml"))
	if len(files) == 0 {
		files = map[string]string{defaultChannel: ""}
	}
	var s *deployedService
	tags := map[string]string{}
	for _, channel := range slices.SortedFunc(maps.Keys(files), compareChannels) {
		file := files[channel]
		helm, values := map[string]any{"chart": chart}, defaults
		if file != "" {
			helm["valuesFiles"] = []any{file}
			values = merged(defaults, d.document(file))
		}
		tags[channel] = cmp.Or(textAt(values, "image", "tag"), appVersion)
		if added := d.add(name, channel, "", deployedPart{kubernetes: map[string]any{"helm": helm}}); added != nil {
			s = added
		}
	}
	if s == nil {
		return
	}
	d.setVersionTag(name, s, tags, hasTag(defaults))
}

// setVersionTag makes the version the tag of a chart's image.
func (d helmReader) setVersionTag(name string, s *deployedService, tags map[string]string, hasTagValue bool) {
	channels := slices.SortedFunc(maps.Keys(tags), compareChannels)
	s.version = tags[channels[0]]
	if !hasTagValue || s.version == "" {
		d.omit("no value image.tag of %s becomes its version: use ${{ version }} as its image tag, so that releases change it", name)
		return
	}
	s.tag = map[string]any{"image": map[string]any{"tag": "${{ version }}"}}
	for _, channel := range channels[1:] {
		if tags[channel] != s.version {
			d.omit("%s is at %s in %s, but %s is released first", name, tags[channel], channel, s.version)
		}
	}
}

// hasTag reports whether a chart's values name the tag of its image, empty or not.
func hasTag(values map[string]any) bool {
	image, _ := values["image"].(map[string]any)
	_, has := image["tag"]
	return has
}
