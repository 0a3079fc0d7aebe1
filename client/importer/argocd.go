package importer

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/sources"
)

// fromArgo reads the Applications of Argo CD in the manifests of a directory. Their sources are in the same directory.
func fromArgo(r reader) error {
	d := argoReader{r}
	objects, err := d.objects("argoproj.io")
	if err != nil {
		return err
	}
	for _, o := range objects {
		switch kind, name := textAt(o.fields, "kind"), textAt(o.fields, "metadata", "name"); kind {
		case "Application":
			d.argo(name, field(o.fields, "spec"))
		case "ApplicationSet":
			d.argoSet(name, field(o.fields, "spec"))
		case "AppProject":
			d.omit("AppProject %s: declare who may release what where in grants, and in allow of a Runtime", name)
		}
	}
	if len(d.services)+len(d.stopped) == 0 {
		return errors.New(strings.Join(append([]string{"it has no Argo CD Application whose source is in the same directory"}, d.omitted...), "; "))
	}
	return nil
}

// argoReader records the Applications of Argo CD.
type argoReader struct{ reader }

// argo records an Application.
func (d argoReader) argo(name string, spec any) {
	base, channel := environmentOf(name)
	part := d.argoPart(base, channel, name, d.argoSource(base, name, spec))
	if part == nil {
		return
	}
	part.kubernetes["annotations"] = "argocd"
	part.cluster, part.namespace = d.argoCluster(name, spec), textAt(spec, "destination", "namespace")
	d.argoPolicy(base, name, spec, part)
	d.add(base, channel, "", *part)
}

// argoPolicy carries over the synchronisation policy of an Application.
func (d argoReader) argoPolicy(service, name string, spec any, part *deployedPart) {
	automated := field(spec, "syncPolicy", "automated")
	if field(automated, "prune") == true {
		part.kubernetes["prune"] = true
	}
	part.observe = field(automated, "selfHeal") != true
	if automated == nil {
		d.omit("%s is synchronised manually: here a release is deployed once its gates pass", name)
	}
	for _, each := range listAt(spec, "syncPolicy", "syncOptions") {
		if option := fmt.Sprint(each); option == "CreateNamespace=true" {
			part.kubernetes["createNamespace"] = true
		} else if !slices.Contains([]string{"ServerSideApply=true", "CreateNamespace=false", "RespectIgnoreDifferences=true"}, option) {
			d.omit("%s: syncOptions %s", name, option) // the last is as it is here
		}
	}
	if ignored := d.argoIgnored(service, name, spec); len(ignored) > 0 {
		part.kubernetes["ignoreDifferences"] = ignored
	}
}

// argoIgnored returns the differences that an Application ignores. The syntax is the same here, except that jq expressions are not
// supported.
func (d argoReader) argoIgnored(service, name string, spec any) (all []any) {
	for _, each := range listAt(spec, "ignoreDifferences") {
		kind := textAt(each, "kind")
		if field(each, "jqPathExpressions") != nil {
			d.stop(service, fmt.Sprintf("%s ignores differences of %s by jqPathExpressions: name the fields as jsonPointers", name, kind))
		}
		ignored := map[string]any{}
		for _, key := range []string{"group", "kind", "name", "namespace"} {
			if text := textAt(each, key); text != "" {
				ignored[key] = text
			}
		}
		var pointers []any
		for _, pointer := range listAt(each, "jsonPointers") {
			if config.JSONPointer(fmt.Sprint(pointer)).Check() != nil {
				d.omit("%s: ignoreDifferences of %s, the pointer %s", name, kind, pointer)
				continue
			}
			pointers = append(pointers, pointer)
		}
		managers := listAt(each, "managedFieldsManagers")
		if len(pointers) > 0 {
			ignored["jsonPointers"] = pointers
		}
		if len(managers) > 0 {
			ignored["managedFieldsManagers"] = managers
		}
		if len(pointers)+len(managers) > 0 {
			all = append(all, ignored)
		}
	}
	return all
}

// argoCluster returns the cluster of an Application; empty for the cluster of Argo CD.
func (d argoReader) argoCluster(name string, spec any) string {
	cluster := cmp.Or(textAt(spec, "destination", "name"), textAt(spec, "destination", "server"))
	if cluster == "" || cluster == "in-cluster" || cluster == "https://kubernetes.default.svc" {
		return ""
	}
	d.omit("%s is deployed to the cluster %s: used as the name of a context in the kubeconfig", name, cluster)
	return cluster
}

// argoHelm carries over the parameters of a chart.
func (d argoReader) argoHelm(service, name string, helm map[string]any, from any) {
	chart, _ := helm["chart"].(string)
	var files []any
	for _, each := range listAt(from, "valueFiles") {
		file := fmt.Sprint(each)
		if strings.HasPrefix(file, "$") { // of another source: the directory here stands for its repository
			_, file, _ = strings.Cut(file, "/")
		} else if file = path.Join(chart, file); helm["repository"] != nil {
			file = ""
		}
		switch {
		case d.exists(file) && file != "":
			files = append(files, file)
		case field(from, "ignoreMissingValueFiles") != true:
			d.stop(service, fmt.Sprintf("%s has the values file %s, which is not in this directory: copy it", name, each))
		}
	}
	if len(files) > 0 {
		helm["valuesFiles"] = files
	}
	values := d.argoValues(service, name, from)
	if len(values) > 0 {
		helm["values"] = values
	}
	if release := textAt(from, "releaseName"); release != "" {
		helm["releaseName"] = release
	} else if isName(name) {
		helm["releaseName"] = name
	}
	for _, what := range unknownFields(from, "valueFiles", "ignoreMissingValueFiles", "values", "valuesObject", "parameters", "releaseName", "passCredentials", "version", "skipTests", "skipSchemaValidation") {
		d.stop(service, fmt.Sprintf("%s has source.helm.%s: declare it in kubernetes.helm, or as values", name, what))
	}
}

// argoValues returns the values of a chart: the inline values, overridden by the parameters.
func (d argoReader) argoValues(service, name string, from any) map[string]any {
	values, _ := field(from, "valuesObject").(map[string]any)
	if text := textAt(from, "values"); text != "" && values == nil {
		var err error
		if values, err = sources.HelmValues([]byte(text)); err != nil {
			d.stop(service, fmt.Sprintf("%s has helm.values that cannot be read: %v", name, err))
		}
	}
	for _, each := range listAt(from, "parameters") {
		key := textAt(each, "name")
		if key == "" || strings.ContainsAny(key, `[]\,=`) {
			d.stop(service, fmt.Sprintf("%s has the chart parameter %s: write it as a value in helm.valuesObject", name, key))
			continue
		}
		value := field(each, "value")
		text, ok := value.(string)
		if strings.Contains(text, `\`) {
			d.stop(service, fmt.Sprintf("%s has the chart parameter %s with a backslash: write it as a value in helm.valuesObject", name, key))
			continue
		}
		if ok && field(each, "forceString") != true {
			value = setValue(text)
		}
		values = merged(values, nest(strings.Split(key, "."), value))
	}
	return values
}

// setValue reads a value as --set of Helm does: only these are no text. A list is in braces.
func setValue(text string) any {
	if strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}") {
		var all []any
		for each := range strings.SplitSeq(text[1:len(text)-1], ",") {
			all = append(all, setValue(each))
		}
		return all
	}
	switch lower := strings.ToLower(text); {
	case lower == "true" || lower == "false":
		return lower == "true"
	case lower == "null":
		return nil
	case text == "0" || !strings.HasPrefix(text, "0"):
		if number, err := strconv.ParseInt(text, 10, 64); err == nil {
			return number
		}
	}
	return text
}
