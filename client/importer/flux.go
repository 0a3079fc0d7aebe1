package importer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// fromFlux reads the Kustomizations and HelmReleases of Flux in the manifests of a directory. Their sources are in the same directory.
func fromFlux(r reader) error {
	d := fluxReader{reader: r, needs: map[string][]string{}}
	objects, err := d.objects("kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io")
	if err != nil {
		return err
	}
	for _, o := range objects {
		name, spec := textAt(o, "metadata", "name"), field(o, "spec")
		switch textAt(o, "kind") {
		case "Kustomization":
			d.fluxKustomization(name, spec)
		case "HelmRelease":
			d.fluxRelease(name, cmp.Or(textAt(spec, "targetNamespace"), textAt(o, "metadata", "namespace")), spec)
		}
	}
	for _, service := range slices.Sorted(maps.Keys(d.needs)) {
		for _, other := range d.needs[service] {
			if s := d.services[service]; s != nil && d.services[other] != nil && other != service && !slices.Contains(s.needs, other) {
				s.needs = append(s.needs, other)
			} else if s != nil && d.services[other] == nil {
				d.omit("%s depends on %s, which is not imported", service, other)
			}
		}
	}
	if len(d.services) == 0 {
		return errors.New(strings.Join(append([]string{"it has no Flux Kustomization or HelmRelease whose source is in the same directory"}, d.omitted...), "; "))
	}
	return nil
}

// fluxReader records the Kustomizations and HelmReleases of Flux.
type fluxReader struct {
	reader
	needs map[string][]string // dependencies by service
}

// fluxCommon carries over the fields that both kinds share, and lists those that cannot be carried over for either.
func (d fluxReader) fluxCommon(name string, spec any, unsupported ...string) (service, channel string) {
	base, channel := environmentOf(name)
	service = NameOf(base)
	for _, each := range listAt(spec, "dependsOn") {
		other, _ := environmentOf(textAt(each, "name"))
		d.needs[service] = append(d.needs[service], NameOf(other))
	}
	for _, what := range append(unsupported, "kubeConfig", "serviceAccountName", "decryption") {
		if field(spec, strings.Split(what, ".")...) != nil {
			d.omit("%s: %s", name, what)
		}
	}
	if field(spec, "suspend") == true {
		d.omit("%s is suspended: use converge pause", name)
	}
	return base, channel
}

func (d fluxReader) fluxKustomization(name string, spec any) {
	kubernetes := d.source(name, textAt(spec, "path"), "", textAt(spec, "sourceRef", "kind")+" "+textAt(spec, "sourceRef", "name"))
	if kubernetes == nil {
		return
	}
	if field(spec, "postBuild") != nil {
		if found := d.fluxVariables(kubernetes); len(found) > 0 { // they would be applied unchanged
			d.omit("%s: postBuild substitutes %s, which is not supported: use ${{ constants.NAME }} there, or declare it by hand", name, strings.Join(found, ", "))
			return
		}
		d.omit("%s: postBuild: its manifests contain no variables", name)
	}
	base, channel := d.fluxCommon(name, spec, "patches", "images", "components", "healthChecks", "healthCheckExprs", "namePrefix", "nameSuffix")
	if field(spec, "prune") == true {
		kubernetes["prune"] = true
	}
	d.add(base, channel, "", deployedPart{namespace: textAt(spec, "targetNamespace"), kubernetes: kubernetes})
}

func (d fluxReader) fluxRelease(name, namespace string, spec any) {
	from := field(spec, "chart", "spec")
	chart, kind := textAt(from, "chart"), textAt(from, "sourceRef", "kind")
	where := fmt.Sprintf("%s %s", kind, textAt(from, "sourceRef", "name"))
	var kubernetes map[string]any
	switch {
	case field(spec, "chartRef") != nil:
		kubernetes = d.source(name, "", cmp.Or(textAt(spec, "chartRef", "name"), name), textAt(spec, "chartRef", "kind"))
	case kind == "GitRepository" || kind == "Bucket" || strings.HasPrefix(chart, "."):
		kubernetes = d.source(name, path.Clean(chart), "", where)
	default:
		kubernetes = d.source(name, "", chart, where)
	}
	helm, ok := kubernetes["helm"].(map[string]any)
	if !ok {
		if kubernetes != nil {
			d.omit("%s: no chart in %s", name, chart)
		}
		return
	}
	base, channel := d.fluxCommon(name, spec, "valuesFrom", "postRenderers", "driftDetection.ignore", "test")
	var files []any
	for _, each := range listAt(from, "valuesFiles") {
		if file := path.Clean(fmt.Sprint(each)); d.exists(file) {
			files = append(files, file)
		} else {
			d.omit("%s: valuesFiles %s is not in this directory", name, each)
		}
	}
	if len(files) > 0 {
		helm["valuesFiles"] = files
	}
	if values, _ := field(spec, "values").(map[string]any); len(values) > 0 {
		helm["values"] = values
	}
	// Flux names a release this way. If the namespace differs, it is a prefix.
	if release := cmp.Or(textAt(spec, "releaseName"), fluxReleaseName(name, textAt(spec, "targetNamespace"))); isName(release) {
		helm["releaseName"] = release
	}
	if field(spec, "install", "createNamespace") == true {
		kubernetes["createNamespace"] = true
	}
	observe := textAt(spec, "driftDetection", "mode") != "enabled"
	d.add(base, channel, "", deployedPart{namespace: namespace, observe: observe, kubernetes: kubernetes})
}

func fluxReleaseName(name, target string) string {
	if target != "" {
		return target + "-" + name
	}
	return name
}
