package importer

import (
	"errors"
	"maps"
	"path"
	"path/filepath"
	"slices"
)

// overlays are the folders that have a kustomization for each environment.
var overlays = []string{"overlays", "environments", "envs", "env"}

// fromKustomize reads kustomizations: overlays become channels, and a kustomization without overlays is deployed once.
func fromKustomize(r reader) error {
	d := kustomizeReader{r}
	for _, under := range append([]string{"."}, d.folders(".")...) {
		if slices.Contains(overlays, under) {
			continue
		}
		found := false
		for _, of := range overlays {
			for _, overlay := range d.folders(path.Join(under, of)) {
				if dir := path.Join(under, of, overlay); d.kustomized(dir) {
					d.kustomization(under, overlay, dir)
					found = true
				}
			}
		}
		if !found && under != "base" && d.kustomized(under) {
			d.kustomization(under, defaultChannel, under)
			found = true
		}
		if under == "." && found {
			break // its subdirectories are a part of it
		}
	}
	if len(d.services) == 0 {
		return errors.New("it contains no kustomization, and neither do its subdirectories or their overlays")
	}
	return nil
}

// kustomizeReader records kustomizations.
type kustomizeReader struct{ reader }

func (d kustomizeReader) kustomization(under, channel, dir string) {
	name := under
	if under == "." {
		abs, err := filepath.Abs(string(d.directory))
		if err != nil {
			return
		}
		name = filepath.Base(abs)
	}
	var document map[string]any
	for _, file := range []string{"kustomization.yaml", "kustomization.yml", "Kustomization"} {
		if document == nil {
			document = d.document(path.Join(dir, file))
		}
	}
	version := ""
	for _, each := range listAt(document, "images") {
		if tag := textAt(each, "newTag"); tag != "" {
			version = tag
			d.omit("images.newTag of %s is %s: use ${{ version }} there, so that releases change it", dir, tag)
		}
	}
	s := d.add(name, channel, version, deployedPart{namespace: textAt(document, "namespace"), kubernetes: map[string]any{"kustomize": dir}})
	if s != nil && slices.SortedFunc(maps.Keys(s.parts), compareChannels)[0] == channel {
		s.version = version // the first release is to this channel
	}
}
