package config_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/schema"
)

func TestSchemaIsUpToDate(t *testing.T) {
	fresh, err := schema.Generate()
	require.NoError(t, err)
	require.Equal(t, string(fresh), string(config.JSONSchema()), "the types changed: run `go generate ./intent/config`")
}

// What the decoder accepts, the schema accepts: editors must not mark what is right.
func TestSchemaAcceptsWhatLoads(t *testing.T) {
	schema := compileSchema(t)
	checked := 0
	for _, root := range []string{"../compile/testdata/shop", "../../examples"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && (entry.Name() == "converge.yaml" || strings.HasSuffix(path, ".converge.yaml")) {
				text, err := os.ReadFile(path)
				require.NoError(t, err)
				for _, doc := range documents(t, text) {
					require.NoError(t, schema.Validate(doc), path)
					checked++
				}
			}
			return err
		}))
	}
	require.Greater(t, checked, 5)
}

// What is wrong in a single value or field, the schema refuses too.
func TestSchemaRejectsInvalidFiles(t *testing.T) {
	schema := compileSchema(t)
	for _, name := range []string{
		"unknown-fields", "unknown-kind", "unknown-api-version", "no-kind",
		"fields-of-elsewhere", "missing-fields", "wrong-types", "bad-names", "bad-durations", "bad-enums", "runtime-without-kind",
		"preconditions", "empty-values", "versions",
	} {
		archive, err := txtar.ParseFile("../compile/testdata/malformed/" + name + ".txtar")
		require.NoError(t, err)
		refused := false
		for _, file := range archive.Files[:len(archive.Files)-1] {
			for _, doc := range documents(t, file.Data) {
				refused = refused || schema.Validate(doc) != nil
			}
		}
		require.True(t, refused, name)
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(config.JSONSchema()))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("converge.schema.json", doc))
	compiled, err := compiler.Compile("converge.schema.json")
	require.NoError(t, err)
	return compiled
}

func documents(t *testing.T, text []byte) []any {
	t.Helper()
	var all []any
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc any
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, doc)
	}
}

// A field is there or it is not: none is known and refused.
func TestEveryFieldIsImplemented_D3(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		require.NotContains(t, string(data), "not supported yet", path)
		require.NotContains(t, string(data), "not-supported", path)
		return err
	})
	require.NoError(t, err)
}
