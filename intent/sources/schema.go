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

// schemaAddress is what Helm calls the schema of a chart.
const schemaAddress = "file:///values.schema.json"

// CheckValues checks values against the schema of a chart, as Helm does, but that it reads no other schema: what a schema refers to
// by $ref, $schema or $id is in it or nowhere. Of a schema that would fetch something nothing is checked; one that would read a
// file is refused.
func CheckValues(text []byte, values map[string]any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("values.schema.json cannot be used: %v", r)
		}
	}()
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("values.schema.json is no JSON: %s", strict.OneLine(err.Error()))
	}
	compiled, err := compileSchema(schemaAddress, schema)
	if elsewhere := (*jsonschema.LoadURLError)(nil); errors.As(err, &elsewhere) {
		if !strings.HasPrefix(elsewhere.URL, "file:") {
			return nil
		}
		return &Refusal{"values.schema.json refers to " + elsewhere.URL, "a schema that is complete in itself"}
	}
	if err != nil {
		return fmt.Errorf("values.schema.json cannot be used: %s", strict.OneLine(err.Error()))
	}
	if err := compiled.Validate(values); err != nil {
		return errors.New(strict.OneLine(Reopen(err.Error())))
	}
	return nil
}

func compileSchema(address string, schema any) (*jsonschema.Schema, error) {
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(nothingElse{})
	if err := compiler.AddResource(address, schema); err != nil {
		return nil, err
	}
	return compiler.Compile(address)
}

// Schema is a JSON Schema that refers to none, not even to a part of itself: what it says of a value is at most as much as the one has
// parts times the other, and that is bounded, whoever wrote them (G4).
type Schema struct {
	compiled *jsonschema.Schema
	parts    int
}

// maxSchemaWork bounds the parts of a schema times those of a value.
const maxSchemaWork = 1_000_000

// partsOf counts a value and all that is in it.
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

// NewSchema makes one of what YAML or JSON says, or says where and why it is none.
func NewSchema(schema map[string]any) (made *Schema, wrong []Violation) {
	defer func() {
		if r := recover(); r != nil {
			wrong = unusable(r)
		}
	}()
	if wrong = refers(schema, nil); wrong != nil {
		return nil, wrong
	}
	compiled, err := compileSchema("schema.json", schema)
	if invalid := (*jsonschema.SchemaValidationError)(nil); errors.As(err, &invalid) {
		return nil, violations(invalid.Err)
	}
	if err != nil {
		return nil, unusable(err)
	}
	return &Schema{compiled, partsOf(schema)}, nil
}

func unusable(why any) []Violation {
	return []Violation{{Message: said(fmt.Sprintf("this schema cannot be used: %v", why))}}
}

// refers lists the keywords by which a schema refers to another one.
func refers(schema any, at []string) (all []Violation) {
	switch v := schema.(type) {
	case map[string]any:
		for _, name := range strict.Keys(v) {
			below := append(slices.Clip(at), name)
			if _, isText := v[name].(string); isText && slices.Contains([]string{"$ref", "$dynamicRef", "$recursiveRef"}, name) {
				all = append(all, Violation{below, "a schema is complete in itself: a YAML alias repeats a part of it"})
			}
			all = append(all, refers(v[name], below)...)
		}
	case []any:
		for i, item := range v {
			all = append(all, refers(item, append(slices.Clip(at), strconv.Itoa(i)))...)
		}
	}
	return all
}

// Violation is what a schema does not let a value be.
type Violation struct {
	At      []string // keys of mappings and places in lists that lead there
	Message string
}

// Violations are all that a value is against the schema, in no order.
func (s *Schema) Violations(value map[string]any) (all []Violation) {
	defer func() {
		if r := recover(); r != nil {
			all = unusable(r)
		}
	}()
	if parts := partsOf(value); parts*s.parts > maxSchemaWork {
		return []Violation{{Message: fmt.Sprintf("this has %d parts and its schema %d, which multiply to more than %d", parts, s.parts, maxSchemaWork)}}
	}
	return violations(s.compiled.Validate(value))
}

// violations are the causes that have none themselves.
func violations(err error) (all []Violation) {
	var of *jsonschema.ValidationError
	if !errors.As(err, &of) {
		return nil
	}
	for _, cause := range of.Causes {
		all = append(all, violations(cause)...)
	}
	if len(all) == 0 {
		all = []Violation{{of.InstanceLocation, said(of.ErrorKind.LocalizedString(english))}}
	}
	return all
}

var english = message.NewPrinter(language.English)

// longestMessage is how much is shown of what is said of a value, in bytes: it may quote much of the schema.
const longestMessage = 300

func said(text string) string {
	if text = strict.OneLine(text); len(text) > longestMessage {
		text = strings.ToValidUTF8(text[:longestMessage], "") + "…"
	}
	return text
}

// nothingElse loads no schema.
type nothingElse struct{}

func (nothingElse) Load(string) (any, error) { return nil, errors.New("no other schema is read") }
