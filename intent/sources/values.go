package sources

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/sops"
)

// valuesFile is a file of values for charts.
type valuesFile struct {
	*strict.Decoder
	Values map[string]any
}

// valuesFile reads a file of values as Helm does: later documents override earlier ones.
func (l *objectLoader) valuesFile(full string) *strict.Fault {
	if _, done := l.into.Values[full]; done {
		return nil
	}
	text, fault := l.Read(full, config.MaxSource)
	if fault != nil {
		return fault
	}
	file := &valuesFile{Decoder: &strict.Decoder{File: full}}
	l.into.Values[full] = file
	l.Decoders = append(l.Decoders, file.Decoder)
	if err := file.read(text); err != nil {
		l.into.Incomplete = true
		l.Syntax(full, text, err)
		return nil
	}
	if sops.Is(file.Values) {
		return &strict.Fault{
			Code: "encrypted", Message: full + " is encrypted by SOPS, and charts are rendered without keys",
			Expected: "values without secrets, and a separate encrypted Secret that the chart uses",
		}
	}
	return nil
}

// read reads all documents of a file. It returns only errors of the parser.
func (f *valuesFile) read(text []byte) error {
	if !bytes.HasSuffix(text, []byte("\n")) {
		text = append(bytes.Clone(text), '\n') // Helm ends the last line, too
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var node yaml.Node
		err := config.DecodeNode(decoder, &node)
		if errors.Is(err, io.EOF) || err != nil && len(bytes.TrimSpace(text)) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		f.document(&node)
	}
}

func (f *valuesFile) document(node *yaml.Node) {
	if len(node.Content) == 0 || node.Content[0].ShortTag() == "!!null" {
		return
	}
	v, bounded := f.DecodeHelmValues(node.Content[0])
	values, ok := v.(map[string]any)
	switch {
	case bounded && !ok:
		f.Fail("", node.Content[0], strict.Fault{Code: "wrong-type", Message: "this is " + strict.Describe(node.Content[0]), Expected: "a mapping of values"})
	case f.Values == nil:
		f.Values = values
	default:
		MergeValues(f.Values, values)
	}
}

// MergeValues merges mappings of values recursively by key.
func MergeValues(into, from map[string]any) {
	for _, key := range strict.Keys(from) {
		inner, ok := from[key].(map[string]any)
		if have, both := into[key].(map[string]any); ok && both {
			MergeValues(have, inner)
			continue
		}
		into[key] = from[key]
	}
}
