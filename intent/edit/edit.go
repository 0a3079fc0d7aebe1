// Package edit changes one value in a configuration and preserves comments and layout.
package edit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/config"
)

// Change is the result of an edit of a file.
type Change struct {
	File          string // relative to the directory
	Before, After string // the value
	Text          []byte // new content of the file
}

// maxFile bounds a file, in bytes.
const maxFile = 1 << 20

var errLayout = errors.New("its form cannot be changed automatically; edit it by hand")

// Set changes a value in the configuration of a directory. The path begins with the document, as in
// Service/web.parameters[name=greeting].default. The value must exist, and be text, a number, or a boolean.
func Set(fsys fs.FS, path, value string) (Change, error) {
	document, steps, err := parse(path)
	if err != nil {
		return Change{}, err
	}
	names, err := config.SourceFiles(fsys)
	if err != nil {
		return Change{}, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return Change{}, err
		}
		if len(text) > maxFile {
			return Change{}, fmt.Errorf("%s has more than %d MiB", name, maxFile>>20)
		}
		all, err := documents(text)
		if err != nil {
			return Change{}, fmt.Errorf("%s: %w", name, err)
		}
		i := slices.IndexFunc(all, document.matches)
		if i < 0 {
			continue
		}
		change, err := set(text, all, i, steps, value)
		if err != nil {
			return Change{}, fmt.Errorf("%s: %s: %w", name, path, err)
		}
		change.File = name
		return change, nil
	}
	return Change{}, fmt.Errorf("there is no %s/%s", document.kind, document.name)
}

// documentName is a document by its kind and name.
type documentName struct{ kind, name string }

func (n documentName) matches(document *yaml.Node) bool {
	kind, _ := step{key: "kind"}.of(document)
	name, _ := step{key: "name"}.of(document)
	return kind != nil && name != nil && kind.Value == n.kind && name.Value == n.name
}

func documents(text []byte) (all []*yaml.Node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var node yaml.Node
		err := config.DecodeNode(decoder, &node)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if len(node.Content) > 0 {
			all = append(all, node.Content[0])
		}
	}
}

// set changes the value in one of the documents of a file.
func set(text []byte, all []*yaml.Node, of int, steps []step, value string) (Change, error) {
	node, err := find(all[of], steps)
	if err != nil {
		return Change{}, err
	}
	change := Change{Before: node.Value, After: value, Text: text}
	if node.Value == value {
		return change, nil
	}
	from, to, err := where(text, node)
	if err != nil {
		return Change{}, err
	}
	for _, written := range spellings(node, value) {
		change.Text = slices.Concat(text[:from], []byte(written), text[to:])
		again, err := documents(change.Text)
		if err == nil && len(again) == len(all) && equalExcept(all, again, node, value) {
			return change, nil
		}
	}
	return Change{}, errLayout
}

func find(node *yaml.Node, steps []step) (*yaml.Node, error) {
	displayPath := ""
	for _, s := range steps {
		next, ok := s.of(node)
		if displayPath += s.String(); !ok {
			return nil, fmt.Errorf("there is no %s", strings.TrimPrefix(displayPath, "."))
		}
		if node = next; node.Kind == yaml.AliasNode || node.Anchor != "" {
			return nil, errors.New("it is used in several places; edit it by hand")
		}
	}
	if node.Kind != yaml.ScalarNode {
		return nil, errors.New("it is a list or a mapping; expected a single value")
	}
	return node, nil
}

// where returns the byte range of a value in the text.
func where(text []byte, node *yaml.Node) (from, to int, err error) {
	for range node.Line - 1 {
		from += bytes.IndexByte(text[from:], '\n') + 1
	}
	line, _, _ := bytes.Cut(text[from:], []byte("\n"))
	if before := []rune(string(line)); len(before) >= node.Column {
		from += len(string(before[:node.Column-1]))
	}
	rest := string(text[from:])
	length := 0
	switch {
	case node.Style == yaml.DoubleQuotedStyle && strings.HasPrefix(rest, `"`):
		for length = 1; length < len(rest) && rest[length] != '"'; length++ {
			if rest[length] == '\\' {
				length++
			}
		}
		length++
	case node.Style == yaml.SingleQuotedStyle && strings.HasPrefix(rest, "'"):
		length = 2 + len(strings.ReplaceAll(node.Value, "'", "''"))
	case node.Style == 0 && node.Value != "" && strings.HasPrefix(rest, node.Value):
		length = len(node.Value)
	}
	if length == 0 || length > len(rest) {
		return 0, 0, errLayout
	}
	return from, from + length, nil
}

// spellings returns the ways to write a value, the current style first.
func spellings(node *yaml.Node, value string) []string {
	var quotedStyle strings.Builder
	encoder := json.NewEncoder(&quotedStyle)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // encoding a string cannot fail
	double := strings.TrimSpace(quotedStyle.String())
	switch node.Style {
	case yaml.DoubleQuotedStyle:
		return []string{double}
	case yaml.SingleQuotedStyle:
		return []string{"'" + strings.ReplaceAll(value, "'", "''") + "'", double}
	}
	if node.ShortTag() != "!!str" {
		return []string{value}
	}
	return []string{value, double}
}

// equalExcept reports whether two files have the same content except for one value, which must stay a string if it was one.
func equalExcept(a, b []*yaml.Node, changed *yaml.Node, value string) bool {
	return slices.EqualFunc(a, b, func(a, b *yaml.Node) bool {
		if a == changed {
			return b.Kind == yaml.ScalarNode && b.Value == value && (a.ShortTag() != "!!str" || b.ShortTag() == "!!str") && b.LineComment == a.LineComment
		}
		return a.Kind == b.Kind && a.Value == b.Value && a.ShortTag() == b.ShortTag() && a.Style == b.Style && a.Anchor == b.Anchor &&
			a.HeadComment == b.HeadComment && a.LineComment == b.LineComment && a.FootComment == b.FootComment && equalExcept(a.Content, b.Content, changed, value)
	})
}
