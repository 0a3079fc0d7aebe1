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

// fromFlux reads the Kustomizations and HelmReleases of Flux in the manifests of a directory. Their sources are in the same directory, or
// are charts of a repository.
func fromFlux(r reader) error {
	d := fluxReader{reader: r, needs: map[string][]string{}, expanded: map[string][]string{}, released: map[string]bool{}}
	objects, err := d.objects("kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io", "source.toolkit.fluxcd.io", "source.extensions.fluxcd.io")
	if err != nil {
		return err
	}
	d.found = objects
	d.clusters = len(clusterDirectories(objects)) > 1
	for _, o := range objects {
		if textAt(o.fields, "kind") == "Kustomization" {
			d.fluxKustomization(o)
		}
	}
	for _, o := range objects {
		if textAt(o.fields, "kind") == "HelmRelease" && !d.released[textAt(o.fields, "metadata", "name")] {
			d.fluxRelease(o, d.fluxNamed(o), nil)
		}
	}
	d.addNeeds()
	if len(d.services)+len(d.stopped) == 0 {
		return errors.New(strings.Join(append([]string{"it has no Flux Kustomization or HelmRelease whose source is in the same directory"}, d.omitted...), "; "))
	}
	return nil
}

// fluxReader records the Kustomizations and HelmReleases of Flux.
type fluxReader struct {
	reader
	found    []manifest
	clusters bool                // there is a directory for each of several clusters
	needs    map[string][]string // dependencies by service
	expanded map[string][]string // the services of the HelmReleases of a Kustomization, by its name
	released map[string]bool     // HelmReleases of Kustomizations
}

// addNeeds records the dependencies. A dependency on a Kustomization of HelmReleases is one on these.
func (d fluxReader) addNeeds() {
	for _, service := range slices.Sorted(maps.Keys(d.needs)) {
		s := d.services[service]
		for _, name := range d.needs[service] {
			others := d.expanded[name]
			if len(others) == 0 {
				others = []string{name}
			}
			for _, other := range others {
				if s != nil && other != service && !slices.Contains(s.needs, other) {
					s.needs = append(s.needs, other)
				}
			}
		}
	}
}

// named is where an object of Flux belongs: the name of a service, its release channel, and the cluster if it is not the only one.
type named struct{ service, channel, cluster string }

// fluxNamed derives that from the name of an object, or from the directory of its cluster: clusters/staging.
func (d fluxReader) fluxNamed(o manifest) named {
	name := textAt(o.fields, "metadata", "name")
	base, channel := environmentOf(name)
	cluster := clusterOf(o.file)
	if !d.clusters || cluster == "" {
		return named{service: base, channel: channel}
	}
	d.omit("what %s declares is deployed to the cluster %s: used as the name of a context in the kubeconfig", path.Dir(o.file), cluster)
	if channel == defaultChannel {
		base, channel = name, cluster
	}
	return named{base, channel, cluster}
}

// clusterOf returns the directory of a cluster that has a file: staging of clusters/staging/apps.yaml.
func clusterOf(file string) string {
	segments := strings.Split(file, "/")
	if at := slices.Index(segments, "clusters"); at >= 0 && at+2 < len(segments) && isName(segments[at+1]) {
		return segments[at+1]
	}
	return ""
}

func clusterDirectories(objects []manifest) map[string]bool {
	all := map[string]bool{}
	for _, o := range objects {
		if cluster := clusterOf(o.file); cluster != "" && textAt(o.fields, "kind") == "Kustomization" {
			all[cluster] = true
		}
	}
	return all
}

// fluxCommon carries over the fields that both kinds share, and lists those that cannot be carried over for either.
func (d fluxReader) fluxCommon(name string, spec any, to named, notes ...string) {
	service := NameOf(to.service)
	for _, each := range listAt(spec, "dependsOn") {
		other, _ := environmentOf(textAt(each, "name"))
		d.needs[service] = append(d.needs[service], NameOf(other))
	}
	for _, what := range append(notes, "serviceAccountName") {
		if field(spec, what) != nil {
			d.omit("%s: %s", name, what)
		}
	}
	if field(spec, "kubeConfig") != nil {
		d.stop(to.service, name+" has kubeConfig, so it is deployed to another cluster: declare a Runtime for it")
	}
	if field(spec, "suspend") == true {
		d.omit("%s is suspended: use converge pause", name)
	}
}

func (d fluxReader) fluxKustomization(o manifest) {
	name, spec, to := textAt(o.fields, "metadata", "name"), field(o.fields, "spec"), d.fluxNamed(o)
	dir, why := d.fluxPath(o, field(spec, "sourceRef"), textAt(spec, "path"))
	if why != "" {
		d.omit("%s: %s", name, why)
		return
	}
	part := &deployedPart{cluster: to.cluster, namespace: textAt(spec, "targetNamespace"), kubernetes: d.source(name, location{
		path: dir, repository: textAt(spec, "sourceRef", "kind") + " " + textAt(spec, "sourceRef", "name"), recurse: true,
	})}
	if part.kubernetes == nil {
		return
	}
	if d.fluxContents(name, to, part.kubernetes, spec) {
		return
	}
	if field(spec, "postBuild") != nil {
		if found := d.fluxVariables(part.kubernetes); len(found) > 0 { // they would be applied unchanged
			d.stop(to.service, fmt.Sprintf("%s has postBuild for %s: use ${{ constants.NAME }} there", name, strings.Join(found, ", ")))
		} else {
			d.omit("%s: postBuild: its manifests contain no variables", name)
		}
	}
	for _, what := range part.build(to.service, to.channel, d.fluxAdded(name, dir, spec)) {
		d.stop(to.service, fmt.Sprintf("%s has %s, and its directory has no kustomization: write one", name, what))
	}
	if field(spec, "commonMetadata") != nil {
		d.stop(to.service, name+" has commonMetadata: write it into its kustomization.yaml as labels and commonAnnotations")
	}
	if provider := textAt(spec, "decryption", "provider"); provider == "sops" {
		d.omit("%s: decryption: give the workers the key of its secrets", name)
	} else if provider != "" {
		d.stop(to.service, fmt.Sprintf("%s has decryption by %s: expected sops", name, provider))
	}
	d.fluxCommon(name, spec, to, "healthChecks", "healthCheckExprs")
	if field(spec, "prune") == true {
		part.kubernetes["prune"] = true
	}
	part.kubernetes["annotations"] = "flux"
	d.add(to.service, to.channel, "", *part)
}

// fluxAdded returns what a Kustomization adds to the kustomization of a directory, in the fields of that.
func (d fluxReader) fluxAdded(name, dir string, spec any) map[string]any {
	added := map[string]any{}
	for _, key := range kustomizeFields {
		switch value := field(spec, key); {
		case value == nil:
		case key == "components":
			added[key] = d.components(dir, listAt(spec, key))
		case key == "patches":
			added[key] = d.patches(dir, listAt(spec, key))
		default:
			added[key] = value
		}
	}
	d.hintImages(name, listAt(added, "images"))
	return added
}

// fluxRelease records a HelmRelease. Among are the objects beside it in its Kustomization, where its values and its repository may be.
func (d fluxReader) fluxRelease(o manifest, to named, among []manifest) {
	name, spec := textAt(o.fields, "metadata", "name"), field(o.fields, "spec")
	namespace := cmp.Or(textAt(spec, "targetNamespace"), textAt(o.fields, "metadata", "namespace"))
	all := append(slices.Clone(among), d.found...)
	at := fluxChart(o, all)
	if ref := field(spec, "chartRef"); textAt(ref, "kind") == "ExternalArtifact" {
		dir, why := d.fluxPath(o, ref, "")
		if why != "" {
			d.omit("%s: %s", name, why)
			return
		}
		at = location{path: dir, repository: "the ExternalArtifact " + textAt(ref, "name")}
	}
	kubernetes := d.source(name, at)
	helm, ok := kubernetes["helm"].(map[string]any)
	if !ok {
		if kubernetes != nil {
			d.omit("%s: no chart in %s", name, textAt(spec, "chart", "spec", "chart"))
		}
		return
	}
	d.fluxValues(to.service, o, helm, all)
	if ignored := d.fluxIgnored(to.service, name, spec); len(ignored) > 0 {
		kubernetes["ignoreDifferences"] = ignored
	}
	if patches := d.fluxPostRenderers(to.service, name, spec); len(patches) > 0 {
		kubernetes["patches"] = patches
	}
	d.fluxCommon(name, spec, to, "test")
	// Flux names a release this way. If the namespace differs, it is a prefix.
	if release := cmp.Or(textAt(spec, "releaseName"), fluxReleaseName(name, textAt(spec, "targetNamespace"))); isName(release) {
		helm["releaseName"] = release
	}
	if field(spec, "install", "createNamespace") == true || declaresNamespace(among, namespace) {
		kubernetes["createNamespace"] = true
	}
	kubernetes["annotations"] = "flux"
	observe := textAt(spec, "driftDetection", "mode") != "enabled"
	d.add(to.service, to.channel, "", deployedPart{cluster: to.cluster, namespace: namespace, observe: observe, kubernetes: kubernetes})
}

func declaresNamespace(among []manifest, name string) bool {
	return slices.ContainsFunc(among, func(o manifest) bool {
		return textAt(o.fields, "kind") == "Namespace" && textAt(o.fields, "metadata", "name") == name
	})
}

func fluxReleaseName(name, target string) string {
	if target != "" {
		return target + "-" + name
	}
	return name
}
