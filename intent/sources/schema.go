package sources

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	chart "helm.sh/helm/v4/pkg/chart/v2"
)

// schemaAddress is what Helm calls the schema of a chart.
const schemaAddress = "file:///values.schema.json"

// validate checks values against the schemas of a chart and its parts, as Helm does, but that it reads no other schema:
// what a schema refers to by $ref, $schema or $id is in it or nowhere. Of a schema that would fetch something nothing is
// checked; one that would read a file is refused.
func validate(c *chart.Chart, values map[string]any) error {
	if c.Schema != nil {
		if err := validateOne(c.Schema, values); err != nil {
			return fmt.Errorf("values don't meet the specifications of the schema of chart %s: %w", c.Name(), err)
		}
	}
	for _, part := range c.Dependencies() {
		given, there := values[part.Name()]
		if !there || given == nil {
			continue
		}
		of, ok := given.(map[string]any)
		if !ok {
			return fmt.Errorf("the values of %s are no mapping", part.Name())
		}
		if err := validate(part, of); err != nil {
			return err
		}
	}
	return nil
}

func validateOne(text []byte, values map[string]any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("values.schema.json cannot be used: %v", r)
		}
	}()
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("values.schema.json is no JSON: %s", oneLine(err.Error()))
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(nothingElse{})
	if err := compiler.AddResource(schemaAddress, schema); err != nil {
		return fmt.Errorf("values.schema.json cannot be used: %s", oneLine(err.Error()))
	}
	compiled, err := compiler.Compile(schemaAddress)
	if elsewhere := (*jsonschema.LoadURLError)(nil); errors.As(err, &elsewhere) {
		if !strings.HasPrefix(elsewhere.URL, "file:") {
			return nil
		}
		return &Refusal{"values.schema.json refers to " + elsewhere.URL, "a schema that is complete in itself"}
	}
	if err != nil {
		return fmt.Errorf("values.schema.json cannot be used: %s", oneLine(err.Error()))
	}
	if err := compiled.Validate(values); err != nil {
		return errors.New(oneLine(Reopen(err.Error())))
	}
	return nil
}

// nothingElse loads no schema.
type nothingElse struct{}

func (nothingElse) Load(string) (any, error) { return nil, errors.New("no other schema is read") }
