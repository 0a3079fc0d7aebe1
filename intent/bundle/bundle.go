// Package bundle contains the stored form of a service's Kubernetes objects: one canonical document with open substitutions, named by
// its digest. Substitutions are filled in immediately before the objects are sent to a runtime.
//
// It knows no kinds of objects, except for the places where Kubernetes only accepts text. It imports no package that reads or compiles.
package bundle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/canonical"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// MaxBytes bounds the bytes of one bundle.
const MaxBytes = 16 << 20

// AnnotationSubstitute disables substitution in an object if it is "false".
const AnnotationSubstitute = "converge/substitute"

// Bundle is a set of compiled Kubernetes objects with open substitutions: a canonical JSON array with objects in a stable order and
// sorted keys, named by the SHA-256 of its bytes. It is immutable.
type Bundle struct {
	data   []byte
	digest string
	secret bool
}

// New makes a bundle of objects in canonical JSON.
func New(objects [][]byte) Bundle { return encode(objects, canonical.Hash) }

// NewSecret is New for objects that include Secrets. Their digest function must not allow an attacker to verify a guess; nil: the
// default.
func NewSecret(objects [][]byte, digest func([]byte) string) Bundle {
	if digest == nil {
		digest = canonical.Hash
	}
	b := encode(objects, digest)
	b.secret = true
	return b
}

func encode(objects [][]byte, digest func([]byte) string) Bundle {
	var b bytes.Buffer
	b.WriteByte('[')
	b.Write(bytes.Join(objects, []byte(",\n")))
	b.WriteString("]\n")
	return Bundle{data: b.Bytes(), digest: digest(b.Bytes())}
}

// Secret reports whether the objects include Secrets.
func (b Bundle) Secret() bool { return b.secret }

// Stored returns a bundle whose bytes have already been verified against the digest.
func Stored(data []byte, digest string) Bundle { return Bundle{data: data, digest: digest} }

// Digest returns the SHA-256 of the bytes, in hex.
func (b Bundle) Digest() string { return b.digest }

// Bytes returns the canonical JSON document.
func (b Bundle) Bytes() []byte { return bytes.Clone(b.data) }

// Objects returns the objects, one canonical JSON document each and in the order of the bundle. It replaces their substitutions by
// values, by name ("params.replicas"). The values of entities.KubernetesPayload are sufficient; a name without a value is a *Fault. A
// single substitution in a scalar keeps its type, except in places where Kubernetes only accepts text: labels, annotations, arguments,
// environment variables and the data of ConfigMaps. "${{" in a value is not substituted again.
func (b Bundle) Objects(values map[string]any) ([]json.RawMessage, error) {
	var objects []json.RawMessage
	if err := json.Unmarshal(b.data, &objects); err != nil {
		return nil, fmt.Errorf("read bundle %s: %w", b.digest, err)
	}
	for i, raw := range objects {
		if !bytes.Contains(raw, []byte("${{")) {
			continue
		}
		result, err := fillObject(raw, values)
		if err != nil {
			return nil, err
		}
		objects[i] = result
	}
	return objects, nil
}

func fillObject(raw []byte, values map[string]any) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return nil, fmt.Errorf("read an object of a bundle: %w", err)
	}
	if KeepsText(object) {
		return raw, nil
	}
	f := &substituter{values: values, config: isConfig(object)}
	filled := f.fill(object, position{})
	if f.missing != "" {
		return nil, &strict.Fault{
			Code: "missing-value", Message: fmt.Sprintf("the payload has no value for %q, which %s uses", f.missing, objectTitle(object)),
			Expected: "one for each substitution of its bundle",
		}
	}
	return canonical.JSON(filled)
}

// KeepsText reports whether an object disables substitution, or SOPS encrypted it so that it cannot be changed.
func KeepsText(object map[string]any) bool {
	if _, sealed := object["sops"].(string); sealed {
		return true
	}
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	return annotations[AnnotationSubstitute] == "false"
}

func objectTitle(object map[string]any) string {
	for kind, name := range map[string]string{"the task definition": "family", "the service": "serviceName"} {
		if object["kind"] == nil && object[name] != nil {
			return fmt.Sprintf("%s %v", kind, object[name])
		}
	}
	metadata, _ := object["metadata"].(map[string]any)
	return fmt.Sprintf("%v/%v", object["kind"], metadata["name"])
}

// position is the position of a value in an object, as far as it decides whether only text is valid there.
type position struct {
	depth       int
	parent, key string // for items of a list: the key of the list
}

// isConfig reports whether an object is a ConfigMap or a Secret, whose data is text.
func isConfig(object map[string]any) bool {
	return object["apiVersion"] == "v1" && (object["kind"] == "ConfigMap" || object["kind"] == "Secret")
}

// below returns the position of an entry. Items of a list have the position of the list.
func (p position) below(key string) position { return position{p.depth + 1, p.key, key} }

// requiresText reports whether Kubernetes only accepts text here; config: the object's data is text.
func (p position) requiresText(config bool) bool {
	switch p.parent {
	case "labels", "annotations", "matchLabels", "nodeSelector", "stringData":
		return true
	case "data", "binaryData":
		return config && p.depth == 2
	case "env":
		return p.key == "value" || p.key == "name"
	}
	return p.key == "args" || p.key == "command"
}

// substituter replaces substitutions by their values and records the first name without a value.
type substituter struct {
	values  map[string]any
	config  bool
	missing string
}

func (f *substituter) fill(v any, at position) any {
	switch x := v.(type) {
	case map[string]any:
		for _, key := range strict.Keys(x) {
			x[key] = f.fill(x[key], at.below(key))
		}
	case []any:
		for i, item := range x {
			x[i] = f.fill(item, at)
		}
	case string:
		if config.HasSubstitution(x) {
			return f.text(x, at)
		}
	}
	return v
}

func (f *substituter) text(text string, at position) any {
	found := substitute.Pattern.FindAllStringSubmatchIndex(text, -1)
	if len(found) == 1 && found[0][0] == 0 && found[0][1] == len(text) {
		v := f.lookup(strings.TrimSpace(text[found[0][2]:found[0][3]]))
		if at.requiresText(f.config) {
			return substitute.AsText(v)
		}
		return v
	}
	var out strings.Builder
	last := 0
	for _, s := range found {
		out.WriteString(text[last:s[0]] + substitute.AsText(f.lookup(strings.TrimSpace(text[s[2]:s[3]]))))
		last = s[1]
	}
	return out.String() + text[last:]
}

func (f *substituter) lookup(name string) any {
	v, ok := f.values[name]
	if !ok && f.missing == "" {
		f.missing = name
	}
	return substitute.PlainValue(v)
}
