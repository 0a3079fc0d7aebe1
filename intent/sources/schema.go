package sources

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// schemaAddress is Helm's address of the schema of a chart.
const schemaAddress = "file:///values.schema.json"

// CheckValues validates values against the schema of a chart like Helm, but reads no other schema: $ref, $schema and $id must refer to
// the schema itself. It skips validation if a schema would fetch a URL. It rejects a schema that would read a file.
func CheckValues(text []byte, values map[string]any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("values.schema.json cannot be used: %v", r)
		}
	}()
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("values.schema.json is not valid JSON: %s", strict.OneLine(err.Error()))
	}
	compiled, err := compileSchema(schemaAddress, schema)
	if elsewhere := (*jsonschema.LoadURLError)(nil); errors.As(err, &elsewhere) {
		if !strings.HasPrefix(elsewhere.URL, "file:") {
			return nil
		}
		return &Refusal{"values.schema.json refers to " + elsewhere.URL, "a self-contained schema"}
	}
	if err != nil {
		return fmt.Errorf("values.schema.json cannot be used: %s", strict.OneLine(err.Error()))
	}
	if err := compiled.Validate(values); err != nil {
		return errors.New(strict.OneLine(RestoreSubstitutions(err.Error())))
	}
	return nil
}

func compileSchema(address string, schema any) (*jsonschema.Schema, error) {
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(address, schema); err != nil {
		return nil, err
	}
	return compiler.Compile(address)
}

// Schema is a JSON Schema without references, not even to a part of itself. The size of its validation result is at most the parts of
// the schema times the parts of the value, which is bounded for untrusted schemas and values, too (G4).
type Schema struct {
	compiled *jsonschema.Schema
	parts    int
}

// maxSchemaWork bounds the product of the parts of a schema and of a value.
const maxSchemaWork = 1_000_000

// partsOf counts a value and all nested values.
func partsOf(value any) int {
	parts := 1
	switch v := value.(type) {
	case map[string]any:
		for _, within := range v {
			parts += partsOf(within)
		}
	case []any:
		for _, within := range v {
			parts += partsOf(within)
		}
	}
	return parts
}

// NewSchema makes a schema of decoded YAML or JSON, or returns its problems.
func NewSchema(schema map[string]any) (made *Schema, problems []Violation) {
	defer func() {
		if r := recover(); r != nil {
			problems = invalidSchema(r)
		}
	}()
	if problems = externalRefs(schema, nil); problems != nil {
		return nil, problems
	}
	compiled, err := compileSchema("schema.json", schema)
	if invalid := (*jsonschema.SchemaValidationError)(nil); errors.As(err, &invalid) {
		return nil, violations(invalid.Err)
	}
	if err != nil {
		return nil, invalidSchema(err)
	}
	return &Schema{compiled, partsOf(schema)}, nil
}

func invalidSchema(why any) []Violation {
	return []Violation{{Message: truncate(fmt.Sprintf("this schema cannot be used: %v", why))}}
}

// externalRefs lists the keywords that refer to other schemas.
func externalRefs(schema any, at []string) (all []Violation) {
	switch v := schema.(type) {
	case map[string]any:
		for _, name := range strict.Keys(v) {
			below := append(slices.Clip(at), name)
			if _, isText := v[name].(string); isText && slices.Contains([]string{"$ref", "$dynamicRef", "$recursiveRef"}, name) {
				all = append(all, Violation{below, "a schema must be self-contained: a YAML alias repeats a part of it"})
			}
			all = append(all, externalRefs(v[name], below)...)
		}
	case []any:
		for i, item := range v {
			all = append(all, externalRefs(item, append(slices.Clip(at), strconv.Itoa(i)))...)
		}
	}
	return all
}

// Violation is a violation of a schema by a value.
type Violation struct {
	At      []string // mapping keys and list indexes that lead to the value
	Message string
}

// Violations returns all violations of the schema by the value, in no particular order.
func (s *Schema) Violations(value map[string]any) (all []Violation) {
	defer func() {
		if r := recover(); r != nil {
			all = invalidSchema(r)
		}
	}()
	if parts := partsOf(value); parts*s.parts > maxSchemaWork {
		return []Violation{{Message: fmt.Sprintf("this has %d parts and its schema %d, and their product is more than %d", parts, s.parts, maxSchemaWork)}}
	}
	return violations(s.compiled.Validate(value))
}

// violations returns the causes without causes of their own.
func violations(err error) (all []Violation) {
	var of *jsonschema.ValidationError
	if !errors.As(err, &of) {
		return nil
	}
	for _, cause := range of.Causes {
		all = append(all, violations(cause)...)
	}
	if len(all) == 0 {
		all = []Violation{{of.InstanceLocation, truncate(of.ErrorKind.LocalizedString(englishPrinter))}}
	}
	return all
}

var englishPrinter = message.NewPrinter(language.English)

// longestMessage bounds a message in bytes, because it may quote much of the schema.
const longestMessage = 300

func truncate(text string) string {
	if text = strict.OneLine(text); len(text) > longestMessage {
		text = strings.ToValidUTF8(text[:longestMessage], "") + "…"
	}
	return text
}

// noLoader is a loader that rejects every other schema.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errors.New("other schemas are not read") }
