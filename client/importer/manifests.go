package importer

import (
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// fromManifests reads plain manifests. A directory of them is one service; in a directory without any, each directory below is one, and
// its directories named after environments are release channels.
func fromManifests(r reader) error {
	d := manifestsReader{r}
	if files := d.objectFiles("."); len(files) > 0 {
		abs, err := filepath.Abs(string(d.directory))
		if err != nil {
			return err
		}
		d.add(filepath.Base(abs), defaultChannel, "", deployedPart{kubernetes: map[string]any{"manifests": files}})
	} else {
		for _, dir := range d.folders(".") {
			d.folder(dir)
		}
	}
	if len(d.services) == 0 {
		return errors.New("it contains no manifests, and neither do its subdirectories")
	}
	return nil
}

// manifestsReader records manifests.
type manifestsReader struct{ reader }

func (d manifestsReader) folder(dir string) {
	if len(d.objectFiles(dir)) > 0 {
		d.add(dir, defaultChannel, "", d.part(dir))
		return
	}
	for _, channel := range d.folders(dir) {
		below := path.Join(dir, channel)
		if slices.Contains(environments, channel) && len(d.objectFiles(below)) > 0 {
			d.add(dir, channel, "", d.part(below))
		}
	}
}

// part returns the manifests of a directory and those below it, by directory if they have nothing else.
func (d manifestsReader) part(dir string) deployedPart {
	var all []any
	for _, in := range d.directories() {
		if in != dir && !strings.HasPrefix(in, dir+"/") {
			continue
		}
		files := d.objectFiles(in)
		switch {
		case len(files) == 0:
		case len(files) == len(d.manifestsIn(in)):
			all = append(all, in+"/")
		default:
			all = append(all, files...)
		}
	}
	return deployedPart{kubernetes: map[string]any{"manifests": all}}
}

// objectFiles returns the manifests of a directory that begin with a Kubernetes object, as paths.
func (d manifestsReader) objectFiles(dir string) (files []any) {
	for _, name := range d.manifestsIn(dir) {
		objects := manifestsOf(name, []byte(d.text(path.Join(dir, name))))
		if len(objects) > 0 && textAt(objects[0].fields, "apiVersion") != "" && textAt(objects[0].fields, "kind") != "" {
			files = append(files, path.Join(dir, name))
		}
	}
	return files
}
