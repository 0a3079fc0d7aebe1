package importer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// An overlay is a kustomization that an import writes: it has what Argo CD or Flux adds to a kustomization when they build it.
type overlay struct {
	dir      string // in the directory of the import
	document map[string]any
}

// overlayDirectory has the overlays of an import, one directory for each.
const overlayDirectory = "converge-overlays"

// newOverlay returns an overlay of a kustomization for a service in a channel.
func newOverlay(service, channel, of string, added map[string]any) *overlay {
	name := service
	if channel != defaultChannel {
		name += "-" + channel
	}
	document := map[string]any{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": []any{path.Join("../..", of)}}
	return &overlay{path.Join(overlayDirectory, NameOf(name)), merged(document, added)}
}

func (o *overlay) file() string { return filepath.FromSlash(path.Join(o.dir, "kustomization.yaml")) }

// write writes an overlay below a directory. It overwrites no file, and follows no link out of the directory.
func (o *overlay) write(dir string, tool Tool) error {
	text, err := yaml.Marshal(o.document)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.FromSlash(o.dir), 0o755); err != nil {
		return err
	}
	out, err := root.OpenFile(o.file(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already; nothing written", filepath.Join(dir, o.file()))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "# Imported from %s: what it adds to the kustomization below.\n%s", tool, text)
	return errors.Join(err, out.Close())
}

// remove removes an overlay that this run wrote, and the directories that are empty then.
func (o *overlay) remove(dir string) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return
	}
	defer root.Close()
	for path := o.file(); path != "."; path = filepath.Dir(path) {
		_ = root.Remove(path)
	}
}

// overlaysOf returns those of some services, in order of their directories.
func overlaysOf(services map[string]*deployedService) (all []*overlay) {
	for _, s := range services {
		for _, part := range s.parts {
			if part.overlay != nil {
				all = append(all, part.overlay)
			}
		}
	}
	slices.SortFunc(all, func(a, b *overlay) int { return strings.Compare(a.dir, b.dir) })
	return all
}

// kustomizeFields are the fields of a kustomization that both tools set in their own.
var kustomizeFields = []string{"namePrefix", "nameSuffix", "images", "components", "patches"}

// build completes a part by what a tool adds to the kustomization that it builds; added has the fields of an overlay. Patches work for
// manifests too, the rest only for a kustomization: it reports the fields that are lost otherwise.
func (p *deployedPart) build(service, channel string, added map[string]any) (lost []string) {
	if len(added) == 0 {
		return nil
	}
	if of, ok := p.kubernetes["kustomize"].(string); ok {
		p.overlay = newOverlay(service, channel, of, added)
		p.kubernetes["kustomize"] = p.overlay.dir
		return nil
	}
	if patches, ok := added["patches"]; ok {
		p.kubernetes["patches"] = patches
	}
	return unknownFields(added, "patches")
}
