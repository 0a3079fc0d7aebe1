package apischema

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Name is a name with a substitution.
type Name struct {
	Path, Text string
	rule       rule
}

// Fault returns the problem of the name after the substitution; nil: it is valid.
func (n Name) Fault(text string) *strict.Fault { return n.rule.fault(text) }

// rule is what the API server, or the controller of a kind, accepts as a name.
type rule struct {
	valid    func(text string) bool
	longest  int
	form     string // what is valid
	reason   string // for a limit below that of the server
	prefixed bool   // the domain of a prefix may precede it
}

var (
	labelRE  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	domainRE = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	keyRE    = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)
	valueRE  = regexp.MustCompile(`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`)

	dnsLabel   = rule{valid: labelRE.MatchString, longest: 63, form: "lower-case letters, digits, and hyphens between them"}
	dnsName    = rule{valid: domainRE.MatchString, longest: 253, form: "lower-case letters, digits, and hyphens and dots between them"}
	portName   = rule{valid: isPortName, longest: 15, form: "lower-case letters, digits, and single hyphens between them, with a letter"}
	portRef    = rule{valid: isPortName, longest: 15, form: "the name of a port, or a number without quotes"}
	dataKey    = rule{valid: keyRE.MatchString, longest: 253, form: "letters, digits, hyphens, dots and underscores"}
	labelValue = rule{valid: valueRE.MatchString, longest: 63, form: "letters, digits, and hyphens, dots and underscores between them"}
	labelName  = rule{valid: isLabelName, longest: 63, form: labelValue.form, prefixed: true}
)

func isPortName(text string) bool {
	return labelRE.MatchString(text) && !strings.Contains(text, "--") && strings.ContainsAny(text, "abcdefghijklmnopqrstuvwxyz")
}

func isLabelName(text string) bool { return text != "" && valueRE.MatchString(text) }

// fault returns the problem of a name; nil: it is valid.
func (r rule) fault(text string) *strict.Fault {
	switch {
	case len(text) > r.longest:
		return &strict.Fault{Code: "bad-name", Message: fmt.Sprintf("%q has %d characters", strict.Clip(text), len(text)), Expected: fmt.Sprintf("at most %d%s", r.longest, r.reason)}
	case !r.valid(text):
		return &strict.Fault{Code: "bad-name", Message: fmt.Sprintf("invalid name %q", strict.Clip(text)), Expected: r.form}
	}
	return nil
}

// within is a rule with another limit.
func (r rule) within(longest int, reason string) rule {
	r.longest, r.reason = longest, ", because "+reason
	return r
}

// objectNames are the rules of the names of objects that are stricter than those of others.
var objectNames = map[string]rule{
	"core.Service":     dnsLabel,
	"core.Namespace":   dnsLabel,
	"batch.Job":        dnsName.within(63, "the name is a label of the Job's pods"),
	"batch.CronJob":    dnsName.within(52, "the controller appends the time of the run to the names of Jobs"),
	"apps.StatefulSet": dnsName.within(52, "the name and a hash are a label of the pods"),
	"apps.Deployment":  dnsName.within(242, "the controller appends a hash to the names of ReplicaSets"),
}

// fieldNames are the rules of fields. A key of a map has the name of the field with a dot.
var fieldNames = map[string]rule{
	"core.Container.name": dnsLabel, "core.Volume.name": dnsLabel, "core.ServicePort.name": dnsLabel,
	"core.ContainerPort.name": portName, "core.ServicePort.targetPort": portRef, "core.HTTPGetAction.port": portRef, "core.TCPSocketAction.port": portRef,
	"networking.ServiceBackendPort.name": portName,
	"core.PodSpec.hostname":              dnsLabel, "core.PodSpec.subdomain": dnsLabel, "core.PodSpec.serviceAccountName": dnsName,
	"core.ConfigMap.data.": dataKey, "core.ConfigMap.binaryData.": dataKey, "core.Secret.data.": dataKey, "core.Secret.stringData.": dataKey,
	"meta.ObjectMeta.labels": labelValue, "meta.LabelSelector.matchLabels": labelValue, "core.ServiceSpec.selector": labelValue, "core.PodSpec.nodeSelector": labelValue,
	"meta.ObjectMeta.labels.": labelName, "meta.LabelSelector.matchLabels.": labelName, "core.ServiceSpec.selector.": labelName, "core.PodSpec.nodeSelector.": labelName,
	"meta.ObjectMeta.annotations.": labelName,
}

// objectName checks the name of an object. Those of the group rbac, and addresses, may have other characters.
func (c *check) objectName(groupVersion, kind string, object map[string]any) {
	group, _, _ := strings.Cut(groupVersion, ".")
	metadata, _ := object["metadata"].(map[string]any)
	name, ok := metadata["name"].(string)
	if !ok || group == "rbac" || kind == "IPAddress" {
		return
	}
	r, special := objectNames[group+"."+kind]
	if !special {
		r = dnsName
	}
	c.name("metadata.name", name, r)
}

// CheckMetadata checks the labels and the annotations of an object at a path.
func CheckMetadata(path string, labels, annotations map[string]string) []Problem {
	c := check{}
	for _, key := range strict.Keys(labels) {
		at := strict.Key(path+".labels", key)
		c.key(at, key, labelName)
		c.name(at, labels[key], labelValue)
	}
	for _, key := range strict.Keys(annotations) {
		c.key(strict.Key(path+".annotations", key), key, labelName)
	}
	return c.found.Problems
}

func (c *check) name(path, text string, r rule) {
	if config.HasSubstitution(text) {
		c.found.Names = append(c.found.Names, Name{path, text, r})
		return
	}
	if fault := r.fault(text); fault != nil {
		c.problem(path, *fault)
	}
}

// names checks the value of a field by the rules of names: a text, or the keys and values of a mapping.
func (c *check) names(path, typeName, field string, v any) {
	parts := strings.Split(typeName, ".")
	if len(parts) != 3 { // not built in
		return
	}
	ruleOf := parts[0] + "." + parts[2] + "." + field
	values, hasValues := fieldNames[ruleOf]
	keys, hasKeys := fieldNames[ruleOf+"."]
	switch v := v.(type) {
	case string:
		if hasValues && v != "" {
			c.name(path, v, values)
		}
	case map[string]any:
		for _, key := range strict.Keys(v) {
			at := strict.Key(path, key)
			if hasKeys && !config.HasSubstitution(key) {
				c.key(at, key, keys)
			}
			if text, ok := v[key].(string); ok && hasValues {
				c.name(at, text, values)
			}
		}
	}
}

// key checks a key. Those of labels and annotations may have the prefix of a domain.
func (c *check) key(path, key string, r rule) {
	if prefix, name, prefixed := strings.Cut(key, "/"); prefixed && r.prefixed {
		c.name(path, strings.ToLower(prefix), dnsName)
		key = name
	}
	c.name(path, key, r)
}
