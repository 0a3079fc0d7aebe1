// Package sops reads manifests that SOPS encrypted for age, and decrypts the Kubernetes Secrets in them.
//
// Read extracts the data that is readable without a key, on the machine that compiles. Keys decrypt in a worker. The package supports the
// parts of SOPS's format that such manifests use, and rejects the rest: it decrypts to the same result as SOPS, and a test compares with
// SOPS. It uses no network, starts no program, and no error contains decrypted text. It imports the YAML parser, age, and packages of
// intent.
package sops

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// Field is the field of the SOPS metadata in a manifest. In an object of a bundle it contains the text of the whole encrypted file,
// because the MAC covers all of it in its order.
const Field = "sops"

// Bounds of a file. A Secret has at most a megabyte.
const (
	maxText       = 4 << 20
	maxCopies     = 16 << 20 // bytes in a bundle, which repeats the text for each of its documents
	maxDepth      = 50
	maxLeaves     = 20_000
	maxRecipients = 100
)

// secretDepth is the depth of the values of a Secret: data.KEY.
const secretDepth = 3

// File is an encrypted file, as far as it can be read without a key. It is never modified.
type File struct {
	documents  []*yaml.Node // mappings, without the metadata
	leaves     []leaf       // in the order of the MAC
	recipients []recipient
	mac        sealed
	modified   string // additional data of the encrypted MAC
	onlySealed bool   // the MAC covers encrypted values only
}

// leaf is a scalar that is not null.
type leaf struct {
	path  []string // keys; an element of a list has the path of its list
	value any      // string, int, float64, bool or time.Time
	text  string   // of an encrypted value: its text in the file
	seal  *sealed  // nil: not encrypted
}

// recipient can decrypt the key of the file.
type recipient struct{ name, enc string }

// sealed is an encrypted value.
type sealed struct {
	kind           string // str, int, float, bool, bytes or time
	data, iv, auth []byte
}

// sealedPrefix is the prefix of every encrypted value.
const sealedPrefix = "ENC[AES256_GCM,"

var sealedRE = regexp.MustCompile(`^ENC\[AES256_GCM,data:([A-Za-z0-9+/=]+),iv:([A-Za-z0-9+/=]+),tag:([A-Za-z0-9+/=]+),type:([a-z]+)\]$`)

// IsSealed reports whether SOPS encrypted a text.
func IsSealed(text string) bool { return strings.HasPrefix(text, sealedPrefix) }

// Is reports whether decoded fields contain SOPS metadata at the top level.
func Is(fields map[string]any) bool {
	metadata, ok := fields[Field].(map[string]any)
	return ok && metadata["mac"] != nil && metadata["lastmodified"] != nil
}

// Read reads an encrypted file with all its documents. It rejects a file that no key could decrypt.
func Read(text []byte) (*File, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("it has %d bytes; expected at most %d", len(text), maxText)
	}
	f := &File{}
	if err := f.parse(text); err != nil {
		return nil, err
	}
	if n := len(f.documents); n*len(text) > maxCopies {
		return nil, fmt.Errorf("it has %d documents, and each is stored with all of its %d bytes; expected fewer in one file", n, len(text))
	}
	var meta *yaml.Node
	for i, document := range f.documents {
		found, err := cutMetadata(document)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			meta = found
		}
	}
	if meta == nil {
		return nil, errors.New("its first document has no SOPS metadata")
	}
	rule, err := f.metadata(meta)
	if err != nil {
		return nil, err
	}
	for _, document := range f.documents {
		if err := f.walk(document, nil, 1, rule); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// parse reads the documents.
func (f *File) parse(text []byte) (err error) {
	defer func() {
		if r := recover(); r != nil { // a panic of the parser
			err = errors.New("it is not valid YAML")
		}
	}()
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var node yaml.Node
		err := decoder.Decode(&node)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("it is not valid YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		case len(node.Content) != 1 || node.Content[0].ShortTag() == "!!null":
		case node.Content[0].Kind != yaml.MappingNode:
			return errors.New("one of its documents is not a mapping")
		default:
			f.documents = append(f.documents, node.Content[0])
		}
	}
}

// cutMetadata removes the metadata from a document.
func cutMetadata(document *yaml.Node) (meta *yaml.Node, err error) {
	for i := 0; i+1 < len(document.Content); i += 2 {
		if document.Content[i].Value != Field {
			continue
		}
		if meta != nil {
			return nil, errors.New("it has SOPS metadata twice")
		}
		meta = document.Content[i+1]
		document.Content = slices.Delete(document.Content, i, i+2)
		i -= 2
	}
	return meta, nil
}

// walk collects the scalars of a node in the order of the MAC. It rejects nodes that SOPS never writes.
func (f *File) walk(node *yaml.Node, path []string, depth int, encrypts rule) error {
	at := func(what string) error { return fmt.Errorf("%s %s", strict.Clip(strings.Join(path, ".")), what) }
	switch {
	case depth > maxDepth:
		return at(fmt.Sprintf("is nested deeper than %d levels", maxDepth))
	case node.Kind == yaml.AliasNode, node.Anchor != "":
		return at("is an anchor or an alias, which SOPS does not create")
	case node.Kind == yaml.MappingNode:
		return f.mapping(node, path, depth, encrypts)
	case node.Kind == yaml.SequenceNode:
		for _, item := range node.Content {
			if err := f.walk(item, path, depth+1, encrypts); err != nil {
				return err
			}
		}
		return nil
	}
	if node.ShortTag() == "!!null" {
		return nil
	}
	l, err := leafOf(node, path, encrypts(path), depth)
	if err != nil {
		return at(err.Error())
	}
	if f.leaves = append(f.leaves, l); len(f.leaves) > maxLeaves {
		return fmt.Errorf("it has more than %d values", maxLeaves)
	}
	return nil
}

func (f *File) mapping(node *yaml.Node, path []string, depth int, encrypts rule) error {
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		below := append(slices.Clip(path), key.Value)
		switch {
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" || key.Anchor != "":
			return fmt.Errorf("%s is a key that is not plain text", strict.Clip(strings.Join(below, ".")))
		case seen[key.Value]:
			return fmt.Errorf("%s is given twice", strict.Clip(strings.Join(below, ".")))
		}
		seen[key.Value] = true
		if err := f.walk(node.Content[i+1], below, depth+1, encrypts); err != nil {
			return err
		}
	}
	return nil
}

// leafOf reads a scalar, and checks that it is encrypted if and only if it should be.
func leafOf(node *yaml.Node, path []string, encrypted bool, depth int) (leaf, error) {
	l := leaf{path: path}
	if !slices.Contains([]string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp"}, node.ShortTag()) || node.Decode(&l.value) != nil {
		return l, errors.New("is of a type that SOPS does not encrypt")
	}
	switch l.value.(type) {
	case string, int, float64, bool, time.Time:
	default: // a number that is too large
		return l, errors.New("is of a type that SOPS does not encrypt")
	}
	text, _ := l.value.(string)
	switch {
	case !encrypted && IsSealed(text):
		return l, errors.New("is encrypted, and should not be according to the SOPS metadata")
	case !encrypted || node.ShortTag() == "!!str" && text == "": // empty values are not encrypted
		return l, nil
	case !IsSealed(text):
		return l, errors.New("is not encrypted, and should be according to the SOPS metadata")
	case len(path) < 2 || path[0] != "data" && path[0] != "stringData":
		return l, errors.New(`is encrypted, and in a Secret only data and stringData can be: encrypt it with --encrypted-regex "^(data|stringData)$"`)
	}
	if depth != secretDepth {
		return l, errors.New("is encrypted inside a list or a mapping, and a value of a Secret is neither")
	}
	seal, err := unpack(text)
	l.seal, l.text = &seal, text
	return l, err
}

// unpack parses an encrypted value.
func unpack(text string) (sealed, error) {
	parts := sealedRE.FindStringSubmatch(text)
	if parts == nil {
		return sealed{}, errors.New("is not an encrypted value in the format of SOPS")
	}
	data, err1 := base64.StdEncoding.DecodeString(parts[1])
	iv, err2 := base64.StdEncoding.DecodeString(parts[2])
	auth, err3 := base64.StdEncoding.DecodeString(parts[3])
	if errors.Join(err1, err2, err3) != nil || len(iv) != 32 || len(auth) != 16 {
		return sealed{}, errors.New("is not an encrypted value in the format of SOPS")
	}
	if !slices.Contains([]string{"str", "int", "float", "bool", "bytes", "time"}, parts[4]) {
		return sealed{}, fmt.Errorf("is an encrypted %s, which is not a value", strict.Clip(parts[4]))
	}
	return sealed{parts[4], data, iv, auth}, nil
}

// Recipients returns the recipients of the file.
func (f *File) Recipients() []string {
	return strict.Map(f.recipients, func(r recipient) string { return r.name })
}

// Has reports whether the file contains an encrypted value.
func (f *File) Has(text string) bool {
	return slices.ContainsFunc(f.leaves, func(l leaf) bool { return l.seal != nil && l.text == text })
}

// CheckObject rejects an object whose encrypted values differ from the file's values in the same places.
func (f *File) CheckObject(object map[string]any) error {
	places := map[string]string{}
	for _, l := range f.leaves {
		if l.seal != nil {
			places[l.text] = strings.Join(l.path, "\x00")
		}
	}
	return eachSealed(object, func(field, key, text string) (any, error) {
		if place, known := places[text]; !known || place != field+"\x00"+key {
			return text, fmt.Errorf("%s.%s differs from its encrypted value in the file that SOPS encrypted", field, strict.Clip(key))
		}
		return text, nil
	})
}

// eachSealed replaces the encrypted values of a Secret.
func eachSealed(object map[string]any, replace func(field, key, text string) (any, error)) error {
	for _, field := range []string{"data", "stringData"} {
		values, _ := object[field].(map[string]any)
		for _, key := range strict.Keys(values) {
			text, _ := values[key].(string)
			if !IsSealed(text) {
				continue
			}
			value, err := replace(field, key, text)
			if err != nil {
				return err
			}
			values[key] = value
		}
	}
	return nil
}

// FirstSealed returns an encrypted value of a Secret; empty: it has none.
func FirstSealed(object map[string]any) (found string) {
	_ = eachSealed(object, func(_, _, text string) (any, error) { // cannot fail
		found = text
		return text, nil
	})
	return found
}
