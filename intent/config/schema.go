package config

import (
	"bytes"
	_ "embed" // for the schema
)

//go:generate go run ../internal/schema/generate

//go:embed converge.schema.json
var jsonSchema []byte

// JSONSchema is the schema of the configuration, one for all kinds of documents, generated from the
// Go types. Editors find it by a first line such as
//
//	# yaml-language-server: $schema=./converge.schema.json
func JSONSchema() []byte { return bytes.Clone(jsonSchema) }
