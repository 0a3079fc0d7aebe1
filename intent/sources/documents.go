package sources

import (
	"bytes"
	"errors"
	"io"
	"iter"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Documents reads the documents of a text as kubectl reads them: y and off are booleans, and keys are text. Each has a value or an error. A text that is not YAML ends them.
func Documents(text []byte) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		decoder := yaml.NewDecoder(bytes.NewReader(text))
		for {
			var node yaml.Node
			err := config.DecodeNode(decoder, &node)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, errors.New(strict.OneLine(err.Error())))
				return
			}
			if len(node.Content) == 0 {
				continue
			}
			d := &strict.Decoder{}
			value, _ := d.DecodeHelmValues(node.Content[0]) // the limit is a problem, too
			if !yield(value, firstError(d.Problems)) {
				return
			}
		}
	}
}

// HelmValues reads the text of a file of values as Helm does.
func HelmValues(text []byte) (map[string]any, error) {
	file := &valuesFile{Decoder: &strict.Decoder{}}
	if err := file.read(text); err != nil {
		return nil, errors.New(strict.OneLine(err.Error()))
	}
	return file.Values, firstError(file.Problems)
}

func firstError(problems strict.Problems) error {
	if len(problems) == 0 {
		return nil
	}
	return errors.New(problems[0].Message)
}
