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
	charts := d.holding("Chart.yaml", ".", "*", "charts/*")
	if len(charts) == 0 {
		return errors.New("it contains no chart, and neither do its subdirectories")
	}
	for _, chart := range charts {
		about := d.document(filepath.Join(chart, "Chart.yaml"))
		if textAt(about, "type") == "library" {
			d.leave("%s is a library chart", chart)
			continue
		}
		dirs := []string{chart}
		if len(charts) == 1 && chart != "." {
			dirs = append(dirs, ".")
		}
		d.chart(cmp.Or(textAt(about, "name"), filepath.Base(chart)), chart, textAt(about, "appVersion"), d.valuesFiles(dirs))
	}
	return nil
}

// helmReader records charts.
type helmReader struct{ reader }

// chart records one chart, in a channel for each values file.
func (d helmReader) chart(name, chart, appVersion string, files map[string]string) {
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

// tagged makes the version the tag of a chart's image.
func (d helmReader) tagged(name string, s *deployedService, tags map[string]string, has bool) {
	channels := slices.SortedFunc(maps.Keys(tags), inTurn)
	s.version = tags[channels[0]]
	if !has || s.version == "" {
		d.leave("no value image.tag of %s becomes its version: use ${{ version }} as its image tag, so that releases change it", name)
		return
	}
	s.tag = map[string]any{"image": map[string]any{"tag": "${{ version }}"}}
	for _, channel := range channels[1:] {
		if tags[channel] != s.version {
			d.leave("%s is at %s in %s, but %s is released first", name, tags[channel], channel, s.version)
		}
	}
}

// hasTag reports whether a chart's values name the tag of its image, empty or not.
func hasTag(values map[string]any) bool {
	image, _ := values["image"].(map[string]any)
	_, has := image["tag"]
	return has
}
