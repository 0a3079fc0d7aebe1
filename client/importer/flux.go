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

// fromFlux reads the Kustomizations and HelmReleases of Flux among the manifests of a directory, of which the sources lie there too.
func (d *deployed) fromFlux() error {
	objects, err := d.objects("kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io")
	if err != nil {
		return err
	}
	needs := map[string][]string{}
	for _, o := range objects {
		name, spec := textAt(o, "metadata", "name"), field(o, "spec")
		switch textAt(o, "kind") {
		case "Kustomization":
			d.fluxKustomization(name, spec, needs)
		case "HelmRelease":
			d.fluxRelease(name, cmp.Or(textAt(spec, "targetNamespace"), textAt(o, "metadata", "namespace")), spec, needs)
		}
	}
	for _, service := range slices.Sorted(maps.Keys(needs)) {
		for _, other := range needs[service] {
			if s := d.services[service]; s != nil && d.services[other] != nil && other != service && !slices.Contains(s.needs, other) {
				s.needs = append(s.needs, other)
			} else if s != nil && d.services[other] == nil {
				d.leave("%s depends on %s, which is not carried over", service, other)
			}
		}
	}
	if len(d.services) == 0 {
		return errors.New(strings.Join(append([]string{"there is no Kustomization or HelmRelease of Flux in it whose source lies there too"}, d.left...), "; "))
	}
	return nil
}

// fluxCommon carries over what both kinds say, and lists what neither is carried over of.
func (d *deployed) fluxCommon(name string, spec any, needs map[string][]string, lost ...string) (service, channel string) {
	base, channel := environmentOf(name)
	service = NameOf(base)
	for _, each := range listAt(spec, "dependsOn") {
		other, _ := environmentOf(textAt(each, "name"))
		needs[service] = append(needs[service], NameOf(other))
	}
	for _, what := range append(lost, "kubeConfig", "serviceAccountName", "decryption") {
		if field(spec, strings.Split(what, ".")...) != nil {
			d.leave("%s: %s", name, what)
		}
	}
	if field(spec, "suspend") == true {
		d.leave("%s is suspended: converge pause does that here", name)
	}
	return base, channel
}

func (d *deployed) fluxKustomization(name string, spec any, needs map[string][]string) {
	kubernetes := d.source(name, textAt(spec, "path"), "", textAt(spec, "sourceRef", "kind")+" "+textAt(spec, "sourceRef", "name"))
	if kubernetes == nil {
		return
	}
	if field(spec, "postBuild") != nil {
		if found := d.fluxVariables(kubernetes); len(found) > 0 { // as they stand they would be applied
			d.leave("%s: postBuild fills in %s, which nothing does here: say ${{ constants.NAME }} there, or declare it by hand", name, strings.Join(found, ", "))
			return
		}
		d.leave("%s: postBuild: there is nothing in its manifests that it fills in", name)
	}
	base, channel := d.fluxCommon(name, spec, needs, "patches", "images", "components", "healthChecks", "healthCheckExprs", "namePrefix", "nameSuffix")
	if field(spec, "prune") == true {
		kubernetes["prune"] = true
	}
	d.put(base, channel, "", deployedPart{namespace: textAt(spec, "targetNamespace"), kubernetes: kubernetes})
}

func (d *deployed) fluxRelease(name, namespace string, spec any, needs map[string][]string) {
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
			d.leave("%s: there is no chart in %s", name, chart)
		}
		return
	}
	base, channel := d.fluxCommon(name, spec, needs, "valuesFrom", "postRenderers", "driftDetection.ignore", "test")
	var files []any
	for _, each := range listAt(from, "valuesFiles") {
		if file := path.Clean(fmt.Sprint(each)); d.exists(file) {
			files = append(files, file)
		} else {
			d.leave("%s: valuesFiles %s is not in this directory", name, each)
		}
	}
	if len(files) > 0 {
		helm["valuesFiles"] = files
	}
	if values, _ := field(spec, "values").(map[string]any); len(values) > 0 {
		helm["values"] = values
	}
	// Flux calls a release so, with the namespace before where that is another one.
	if release := cmp.Or(textAt(spec, "releaseName"), fluxReleaseName(name, textAt(spec, "targetNamespace"))); isName(release) {
		helm["releaseName"] = release
	}
	if field(spec, "install", "createNamespace") == true {
		kubernetes["createNamespace"] = true
	}
	observe := textAt(spec, "driftDetection", "mode") != "enabled"
	d.put(base, channel, "", deployedPart{namespace: namespace, observe: observe, kubernetes: kubernetes})
}

func fluxReleaseName(name, target string) string {
	if target != "" {
		return target + "-" + name
	}
	return name
}
