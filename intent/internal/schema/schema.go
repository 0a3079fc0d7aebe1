// Package schema generates the JSON Schema of the configuration from its Go types and their comments. Editors use it for completion and
// validation in line with the strict decoder. Only the generator and the test that compares the committed file with the types import it.
package schema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/converge-engine/converge/intent/config"
)

const module = "github.com/converge-engine/converge/intent/config"

// Generate returns the schema. It reads the comments from the Go files of the working directory, which must be the directory of package
// config.
func Generate() ([]byte, error) {
	reflector := &jsonschema.Reflector{Anonymous: true, Mapper: scalar}
	if err := reflector.AddGoComments(module, ".", jsonschema.WithFullComment()); err != nil {
		return nil, fmt.Errorf("read the comments of package config: %w", err)
	}
	root := &jsonschema.Schema{
		Version:     jsonschema.Version,
		Title:       "Converge configuration",
		Description: "One document of converge.yaml or *.converge.yaml.",
		Definitions: jsonschema.Definitions{},
	}
	for _, kind := range []any{config.Application{}, config.Service{}, config.Runtime{}, config.Protection{}, config.Extension{}, config.Installation{}, config.Library{}} {
		name := reflect.TypeOf(kind).Name()
		for key, definition := range reflector.Reflect(kind).Definitions {
			root.Definitions[key] = definition
		}
		root.Definitions[name].Properties.Set("kind", &jsonschema.Schema{Type: "string", Const: name, Description: "The kind of document."})
		otherSpellings(root.Definitions[name], reflect.TypeOf(kind))
		root.OneOf = append(root.OneOf, &jsonschema.Schema{Ref: "#/$defs/" + name})
	}
	refine(root.Definitions)
	for _, definition := range root.Definitions {
		tidy(definition)
	}
	return encode(root)
}

// otherSpellings adds the alternative names of the fields of a type.
func otherSpellings(definition *jsonschema.Schema, kind reflect.Type) {
	for i := range kind.NumField() {
		tag := kind.Field(i).Tag
		name, _, _ := strings.Cut(tag.Get("json"), ",")
		if same, ok := definition.Properties.Get(name); ok && tag.Get("also") != "" {
			definition.Properties.Set(tag.Get("also"), same)
		}
	}
}

// scalar describes types with more restrictions than their Go kind.
func scalar(t reflect.Type) *jsonschema.Schema {
	switch v := reflect.Zero(t).Interface().(type) {
	case config.CreateNamespace:
		texts := &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{Type: "string"}}
		meta := jsonschema.NewProperties()
		meta.Set("labels", texts)
		meta.Set("annotations", texts)
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "boolean"}, {Type: "object", Properties: meta, AdditionalProperties: jsonschema.FalseSchema}}}
	case config.Values, config.HelmValues:
		return &jsonschema.Schema{Type: "object"}
	case config.ECSDocument:
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string"}, {Type: "object"}}}
	case config.Amount:
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "integer", Minimum: "1"}, {Type: "string", Pattern: config.AmountPattern}}}
	case config.EnvValue:
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string"}, secret()}}
	case config.Number:
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "number"}, {Type: "string", Pattern: `\$\{\{`}}}
	case interface{ Choices() []string }:
		return choices(v.Choices())
	case config.Literal:
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}, {Type: "boolean"}, secret()}}
	case interface{ Values() []string }:
		s := &jsonschema.Schema{Type: "string"}
		for _, value := range v.Values() {
			s.Enum = append(s.Enum, value)
		}
		return s
	case interface{ Pattern() string }:
		return &jsonschema.Schema{Type: "string", Pattern: v.Pattern(), MaxLength: maxLength(t)}
	}
	if t.Kind() == reflect.Map {
		return mapping(t)
	}
	return nil
}

// choices describes a list of names, or "*" for all of them.
func choices(names []string) *jsonschema.Schema {
	item := &jsonschema.Schema{Type: "string", Enum: []any{"*"}}
	for _, name := range names {
		item.Enum = append(item.Enum, name)
	}
	least := uint64(1)
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Const: "*"}, {Type: "array", Items: item, MinItems: &least}}}
}

func maxLength(t reflect.Type) *uint64 {
	if t != reflect.TypeFor[config.Name]() && t != reflect.TypeFor[config.ParameterName]() {
		return nil
	}
	longest := uint64(63)
	return &longest
}

// mapping adds the key pattern of a map.
func mapping(t reflect.Type) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", AdditionalProperties: scalar(t.Elem())}
	if s.AdditionalProperties == nil {
		s.AdditionalProperties = &jsonschema.Schema{Type: "string"}
	}
	if key, ok := reflect.Zero(t.Key()).Interface().(interface{ Pattern() string }); ok {
		s.PropertyNames = &jsonschema.Schema{Pattern: key.Pattern()}
	}
	return s
}

func secret() *jsonschema.Schema {
	forms := &jsonschema.Schema{}
	for _, form := range config.SecretForms {
		properties := jsonschema.NewProperties()
		required := append([]string{form.Field}, form.Needs...)
		for _, name := range slices.Concat(required, form.MayHave) {
			properties.Set(name, &jsonschema.Schema{Type: "string", Pattern: config.SecretPattern(name), Description: config.SecretFields[name]})
		}
		forms.OneOf = append(forms.OneOf, &jsonschema.Schema{Type: "object", Properties: properties, Required: required, AdditionalProperties: jsonschema.FalseSchema})
	}
	return forms
}

// refine adds rules that the compiler checks across fields.
func refine(definitions jsonschema.Definitions) {
	either := []*jsonschema.Schema{{Required: []string{"releaseChannel"}}, {Required: []string{"selector"}}}
	definitions["ReleaseChannelStable"].OneOf = either
	definitions["ChannelOverride"].OneOf = either
	definitions["Application"].AnyOf = []*jsonschema.Schema{{Required: []string{"releaseChannels"}}, {Required: []string{"imports"}}}
	definitions["Rollout"].Not = &jsonschema.Schema{Required: []string{"steps", "command"}}
	definitions["Service"].Not = &jsonschema.Schema{Required: []string{"version", "initialVersion"}}
	for _, name := range []string{"Precondition", "ProtectionStage", "RolloutStep"} {
		definitions[name].OneOf = requireOneOf(definitions[name], nil)
	}
	kinds := requireOneOf(definitions["Protection"], []string{"apiVersion", "kind", "name", "description", "parameters"})
	definitions["Protection"].OneOf = kinds
	definitions["ProtectionUse"].OneOf = append(append([]*jsonschema.Schema{}, kinds...), &jsonschema.Schema{Required: []string{"ref"}})
	for _, name := range []string{"ExtensionUse", "CommandUse", "StepUse", "FirstStepUse", "ReconcilerUse", "SyncUse"} {
		definitions[name].OneOf = []*jsonschema.Schema{{Required: []string{"command"}}, {Required: []string{"ref"}}}
	}
	definitions["Feed"].Not = &jsonschema.Schema{Required: []string{"file", "content"}}
	for _, name := range []string{"ApplyCommand", "FetchCommand", "RemoveCommand", "PlanCommand", "WatchCommand"} {
		definitions[name].OneOf = []*jsonschema.Schema{{Required: []string{"command"}}, {Required: []string{"program"}}}
	}
	definitions["Extension"].Required = append(definitions["Extension"].Required, "command")
	definitions["Authorization"].Not = &jsonschema.Schema{Required: []string{"releaseChannels", "selector"}}
	definitions["Runtime"].OneOf = []*jsonschema.Schema{{Required: []string{"custom"}}, {Required: []string{"kubernetes"}}, {Required: []string{"ecs"}}}
}

// requireOneOf requires exactly one of the properties, except the given ones.
func requireOneOf(s *jsonschema.Schema, except []string) []*jsonschema.Schema {
	var all []*jsonschema.Schema
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		if !slices.Contains(except, p.Key) {
			all = append(all, &jsonschema.Schema{Required: []string{p.Key}})
		}
	}
	return all
}

// tidy joins the lines of comments, which are wrapped for Go.
func tidy(s *jsonschema.Schema) {
	s.Description = strings.Join(strings.Fields(s.Description), " ")
	if s.Properties == nil {
		return
	}
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		tidy(p.Value)
	}
}

func encode(root *jsonschema.Schema) ([]byte, error) {
	data, err := json.Marshal(root)
	if err != nil {
		return nil, err
	}
	var sorted any // sorted keys, independent of the library
	if err := json.Unmarshal(data, &sorted); err != nil {
		return nil, err
	}
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(sorted)
	return []byte(b.String()), err
}
