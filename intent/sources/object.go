package sources

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/bundle"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/apischema"
	"github.com/converge-engine/converge/intent/internal/canonical"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// maxObject bounds the number of values in one object; the largest CustomResourceDefinitions have 30,000.
const maxObject = 250_000

// Annotations of objects that configure Converge. Only Converge itself sets other labels and annotations with these prefixes.
const (
	annotationWave     = "converge/wave"
	annotationRecreate = "converge/recreate"
	annotationAdopt    = "converge/adopt"
	annotationKeep     = "converge/keep"
	annotationPrune    = "converge/prune-propagation"
	annotationMovedTo  = "converge/moved-to"   // the service that takes over the object
	annotationFrom     = "converge/moved-from" // the service from which it is taken over
	annotationLink     = "converge/link-"      // and a name: an address to show with the object
	annotationLog      = "converge/log-"       // and a name: the address of its logs
)

// Object is one declared Kubernetes object with open substitutions. Channels and services share it, and it is never modified.
type Object struct {
	Decoder *strict.Decoder // has the positions; its subject is Deployment/web
	// Origin is the file in the chart or kustomization that the object was rendered from. It is empty for a manifest, which has its own
	// positions.
	Origin string
	Source string // the declaring source, for messages

	Group, Kind, Namespace, Name string
	NamedAt                      string // path of the name
	HookOfArgoCD                 bool   // its name is generated, which only a hook may have, and only Argo CD's annotations make it one
	Data                         []byte // canonical JSON
	Digest                       string
	Texts                        []ObjectText // with substitutions
	Encrypted                    bool         // by SOPS, until it is applied
	Warnings                     []string     // legal but probably unintended

	Uses []apischema.Use  // of what not every version of Kubernetes has
	Open []apischema.Name // names with substitutions
}

// ObjectText is a scalar with a substitution.
type ObjectText struct{ Path, Text string }

// objectReader reads the objects of one file or of one rendered text.
type objectReader struct {
	file     string
	origin   string
	rendered bool // by Helm: tokens replace the version, and there may be hooks
	objects  []*Object
	decoders []*strict.Decoder // with their problems
	// encrypted is the file if SOPS encrypted it, or the encrypted files that the text was built from.
	encrypted encrypted
}

// document reads one YAML document: an object, or a list of them.
func (r *objectReader) document(node *yaml.Node) {
	d := &strict.Decoder{File: r.file, Limit: maxObject, Subject: subjectOf(node)}
	if items, is := itemsOf(node); is {
		for _, item := range items {
			r.document(item)
		}
		return
	}
	r.decoders = append(r.decoders, d)
	v, ok := d.DecodeAny(node)
	if !ok {
		return
	}
	fields, ok := v.(map[string]any)
	if !ok {
		d.Fail("", node, strict.Fault{Code: "wrong-type", Message: "this is " + strict.Describe(node), Expected: "a Kubernetes object: a mapping with apiVersion, kind and metadata"})
		return
	}
	if r.rendered && !normalizeHook(fields) {
		return
	}
	c := &objectCheck{Decoder: d, fields: fields, object: &Object{Decoder: d, Origin: r.origin, NamedAt: "metadata.name"}}
	if c.check(node, r.encrypted) {
		r.objects = append(r.objects, c.object)
	}
}

// entry returns the value of a key of a mapping before decoding.
func entry(node *yaml.Node, key string) *yaml.Node {
	for i := 0; node != nil && node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

// subjectOf returns the readable name of an object before decoding: Deployment/web.
func subjectOf(node *yaml.Node) string {
	kind, name := entry(node, "kind"), entry(entry(node, "metadata"), "name")
	switch {
	case kind == nil || kind.Kind != yaml.ScalarNode:
		return ""
	case name == nil || name.Kind != yaml.ScalarNode:
		return kind.Value
	}
	return kind.Value + "/" + name.Value
}

// itemsOf returns the items of a list of objects, and false if the node is none. A list without items, or whose items are null, is empty,
// if its kind cannot be that of an object.
func itemsOf(node *yaml.Node) (items []*yaml.Node, is bool) {
	kind, list := entry(node, "kind"), entry(node, "items")
	if kind == nil || !strings.HasSuffix(kind.Value, "List") {
		return nil, false
	}
	switch {
	case list != nil && list.Kind == yaml.AliasNode:
		list = list.Alias
	case list == nil:
		return nil, kind.Value == "List"
	}
	if list.Kind == yaml.SequenceNode {
		return list.Content, true
	}
	return nil, list.ShortTag() == "!!null"
}

// objectCheck checks one object and fills it in.
type objectCheck struct {
	*strict.Decoder
	fields   map[string]any
	metadata map[string]any
	object   *Object
	literal  bool
	sealed   string // the SOPS-encrypted file
}

// check reports whether the object has a valid name, so that its channels can be checked, too.
func (c *objectCheck) check(node *yaml.Node, among encrypted) bool {
	c.header(node)
	if len(c.Problems) > 0 {
		return false
	}
	c.encrypted(among)
	c.dropClusterFields()
	c.checkStringMap("labels")
	c.checkStringMap("annotations")
	c.literal = bundle.KeepsText(c.fields)
	c.collectTexts("", c.fields)
	c.digits("", c.fields)
	c.schema()
	c.variables()
	c.secret()
	if c.object.Encrypted {
		c.rejectSubstitutions()
	}
	data, err := canonical.JSON(c.fields)
	if err != nil {
		c.Report("", strict.Fault{Code: "wrong-type", Message: "this cannot be JSON: " + err.Error()})
		return false
	}
	c.object.Data, c.object.Digest = data, canonical.Hash(data)
	c.object.Source = fmt.Sprintf("%s:%d", c.File, c.At("").Line)
	if c.object.Origin != "" {
		c.object.Source = c.object.Origin
	}
	return true
}

// schema checks the object against the schema of its kind. What depends on the release channel is checked later.
func (c *objectCheck) schema() {
	if c.object.Encrypted {
		return
	}
	found := apischema.Check(c.Decoder, c.fields)
	for _, p := range found.Problems {
		c.Report(p.Path, p.Fault)
	}
	c.object.Uses, c.object.Open = found.Uses, found.Names
}

// header reads the fields that identify the object.
func (c *objectCheck) header(node *yaml.Node) {
	apiVersion := c.text(c.fields, "apiVersion", "")
	c.object.Kind = c.text(c.fields, "kind", "")
	c.object.Group, _, _ = strings.Cut(apiVersion, "/")
	if !strings.Contains(apiVersion, "/") {
		c.object.Group = ""
	}
	metadata, ok := c.fields["metadata"].(map[string]any)
	if !ok {
		c.Fail("metadata", node, strict.Fault{Code: "missing-field", Message: `"metadata" is missing`, Expected: "a mapping with the object's name"})
		return
	}
	c.metadata = metadata
	switch {
	case c.object.Group == "kustomize.config.k8s.io":
		c.Report("kind", strict.Fault{Code: "wrong-kind", Message: "this is a kustomization, not an object of a cluster", Expected: "its directory as kubernetes.kustomize"})
	case metadata["generateName"] != nil && metadata["name"] == nil:
		c.generatedName()
	default:
		c.object.Name = c.text(metadata, "name", "metadata.")
	}
	if _, given := metadata["namespace"]; given {
		c.object.Namespace = c.text(metadata, "namespace", "metadata.")
	}
	for _, path := range []string{"apiVersion", "kind"} {
		if text, _ := c.fields[path].(string); config.HasSubstitution(text) {
			c.Report(path, strict.Fault{Code: "no-substitution", Message: "substitution is not supported in apiVersion and kind", Expected: `text without "${{"`})
		}
	}
}

// generatedName gives a hook a name that its content determines, so that the hook is found again. Other objects need a name. Whether an
// annotation of Argo CD, or of Helm as it reads them, makes it a hook is not known here.
func (c *objectCheck) generatedName() {
	prefix, ok := c.metadata["generateName"].(string)
	annotations, _ := c.metadata["annotations"].(map[string]any)
	content, err := canonical.JSON(c.fields)
	own, others := annotations[annotationHook] != nil, annotations[argoHook] != nil || annotations[HelmHook] != nil
	if !ok || err != nil || !own && !others {
		c.Report("metadata.generateName", GeneratedNameFault(`"name"`))
		return
	}
	c.object.HookOfArgoCD = !own
	delete(c.metadata, "generateName")
	c.object.Name, c.object.NamedAt = prefix+canonical.Hash(content)[:generatedLength], "metadata.generateName"
	c.metadata["name"] = c.object.Name
}

// GeneratedNameFault is the fault of an object with a generated name that is no hook.
func GeneratedNameFault(expected string) strict.Fault {
	return strict.Fault{Code: "bad-name", Message: "an object with a generated name cannot be found again", Expected: expected}
}

// generatedLength is how many characters are appended to a generateName, as in Kubernetes.
const generatedLength = 5

// text reads a field that must be a non-empty string.
func (c *objectCheck) text(from map[string]any, key, at string) string {
	v, given := from[key]
	text, ok := v.(string)
	switch {
	case !given || ok && text == "":
		c.Report(at+key, strict.Fault{Code: "missing-field", Message: fmt.Sprintf("%q is missing", key), Expected: "text"})
	case !ok:
		c.Report(at+key, strict.Fault{Code: "wrong-type", Message: "this is " + substitute.Describe(v), Expected: c.QuoteHint("text", at+key)})
	}
	return text
}

// dropClusterFields removes fields that only a cluster sets.
func (c *objectCheck) dropClusterFields() {
	delete(c.fields, "status")
	for _, key := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"} {
		delete(c.metadata, key)
	}
}

// checkStringMap checks labels or annotations: they must be text, and not reserved for Converge.
func (c *objectCheck) checkStringMap(field string) {
	v, given := c.metadata[field]
	if v == nil {
		delete(c.metadata, field)
		return
	}
	entries, ok := v.(map[string]any)
	if given && !ok {
		c.Report("metadata."+field, strict.Fault{Code: "wrong-type", Message: "this is " + substitute.Describe(v), Expected: "a mapping"})
		return
	}
	for _, key := range strict.Keys(entries) {
		at := strict.Key("metadata."+field, key)
		text, ok := entries[key].(string)
		if !ok {
			c.Report(at, strict.Fault{Code: "wrong-type", Message: "this is " + substitute.Describe(entries[key]), Expected: c.QuoteHint("text", at)})
			continue
		}
		if fault := reserved(field, key, text); fault != nil {
			c.Report(at, *fault)
		}
	}
}

// movesRE matches the name of a service.
var movesRE = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// MovedTo is the name of the service that takes over the object; "" if none does.
func (o *Object) MovedTo() string {
	var content struct {
		Metadata struct {
			Annotations map[string]any `json:"annotations"`
		} `json:"metadata"`
	}
	if json.Unmarshal(o.Data, &content) != nil { // an ECS service, or a list of them
		return ""
	}
	to, _ := content.Metadata.Annotations[annotationMovedTo].(string)
	return to
}

// reserved rejects labels and annotations that only Converge sets, and checks those that configure it.
func reserved(field, key, text string) *strict.Fault {
	prefix, _, _ := strings.Cut(key, "/")
	if prefix != "converge" && prefix != "applyset.kubernetes.io" {
		return nil
	}
	if field == "annotations" {
		if fault, is := settingFault(key, text); is {
			return fault
		}
		if fault, is := hookFault(key, text); is {
			return fault
		}
		if isLink(key) {
			return nil
		}
	}
	return &strict.Fault{
		Code: "reserved-name", Message: fmt.Sprintf("%q is set by Converge itself", key),
		Expected: "no such name, or one of the annotations converge/wave, converge/recreate, converge/adopt, converge/keep, converge/prune-propagation, converge/moved-to, converge/moved-from, converge/substitute, converge/hook, converge/hook-weight, converge/hook-delete-policy, converge/link-NAME, converge/log-NAME",
	}
}

// settingFault returns the problem of an annotation that configures Converge; is reports whether it is one.
func settingFault(key, text string) (fault *strict.Fault, is bool) {
	switch key {
	case annotationWave:
		n, err := strconv.ParseInt(text, 10, 32)
		return strict.FaultUnless(err == nil && strconv.FormatInt(n, 10) == text, "bad-value", "invalid wave %q", text, `a whole number in quotes, such as "-1"`), true
	case annotationRecreate:
		return strict.FaultUnless(text == "true" || text == "orphan", "bad-value", "%q is not possible here", text, `"true", "orphan" to keep its dependents, or no such annotation`), true
	case annotationAdopt:
		return strict.FaultUnless(strings.TrimSpace(text) != "", "bad-value", "%q is not possible here", text, `"true", "false", additional field managers, or no such annotation`), true
	case annotationKeep:
		return requireValue(text, "true"), true
	case annotationPrune:
		return strict.FaultUnless(slices.Contains(propagations, text), "bad-value", "%q is not possible here", text, strict.OneOf(propagations)+", or no such annotation"), true
	case annotationMovedTo, annotationFrom:
		return moveFault(text), true
	case bundle.AnnotationSubstitute:
		return requireValue(text, "false"), true
	}
	return nil, false
}

// propagations are the ways in which the dependents of a pruned object are deleted.
var propagations = []string{"background", "foreground", "orphan"}

// isLink reports whether an annotation is an address to show with the object.
func isLink(key string) bool {
	return strings.HasPrefix(key, annotationLink) || strings.HasPrefix(key, annotationLog)
}

func moveFault(text string) *strict.Fault {
	return strict.FaultUnless(movesRE.MatchString(text), "bad-value", "%q is not possible here", text, "the name of another service of the application, or no such annotation")
}

func requireValue(text, only string) *strict.Fault {
	return strict.FaultUnless(text == only, "bad-value", "%q is not possible here", text, strconv.Quote(only)+", or no such annotation")
}

// collectTexts records every text with a substitution, and rejects keys with a substitution.
func (c *objectCheck) collectTexts(path string, v any) {
	if c.literal {
		return
	}
	switch x := v.(type) {
	case map[string]any:
		for _, key := range strict.Keys(x) {
			if config.HasSubstitution(key) {
				c.Report(strict.Key(path, key), strict.Fault{
					Code: "no-substitution", Message: "substitution is not supported in a key",
					Expected: `a key without "${{", or the annotation converge/substitute: "false" to keep it`,
				})
			}
			c.collectTexts(strict.Key(path, key), x[key])
		}
	case []any:
		for i, item := range x {
			c.collectTexts(strict.Index(path, i), item)
		}
	case string:
		if config.HasSubstitution(x) {
			c.object.Texts = append(c.object.Texts, ObjectText{path, x})
		}
	}
}

var base64RE = regexp.MustCompile(`^[A-Za-z0-9+/\s]+={0,2}\s*$`)

// secret rejects base64-encoded substitutions, which would not be substituted.
func (c *objectCheck) secret() {
	if c.literal || c.object.Group != "" {
		return
	}
	field := map[string]string{"Secret": "data", "ConfigMap": "binaryData"}[c.object.Kind]
	entries, _ := c.fields[field].(map[string]any)
	for _, key := range strict.Keys(entries) {
		text, _ := entries[key].(string)
		if c.object.Origin != "" && isEncrypted([]byte(decoded(text))) {
			c.Report(strict.Key(field, key), strict.Fault{
				Code: "encrypted", Message: "this is a file that SOPS encrypted, and it would be applied without decryption",
				Expected: "an encrypted Secret among the resources",
			})
		}
		if config.HasSubstitution(decoded(text)) {
			c.Report(strict.Key(field, key), strict.Fault{
				Code: "encoded-substitution", Message: `this is base64 of text with a "${{", which would not be substituted`,
				Expected: "the text itself under stringData",
			})
		}
	}
}

// decoded returns the base64-decoded text, or "".
func decoded(text string) string {
	if !base64RE.MatchString(text) {
		return ""
	}
	plain, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return ""
	}
	return string(plain)
}

// Fields returns the content of the object.
func (o *Object) Fields() map[string]any {
	decoder := json.NewDecoder(bytes.NewReader(o.Data))
	decoder.UseNumber()
	var fields map[string]any
	_ = decoder.Decode(&fields) // the data is canonical JSON
	decoded, _ := replaced(fields, number).(map[string]any)
	return decoded
}

// ID is the readable id of an object within its service and channel: Deployment/web, Role/other-ns/web.
func (o *Object) ID() string {
	if o.Namespace == "" {
		return o.Kind + "/" + o.Name
	}
	return o.Kind + "/" + o.Namespace + "/" + o.Name
}

// SortKey orders objects by identity, independent of their position in files.
func (o *Object) SortKey() string {
	return strings.Join([]string{o.Group, o.Kind, o.Namespace, o.Name, o.Digest}, "\x00")
}
