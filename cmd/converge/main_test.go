package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/converge-engine/converge/intent/render"
)

func TestMain(m *testing.M) {
	render.Run() // `converge` starts another program for it, which is this one in tests
	testscript.Main(m, map[string]func(){"converge": func() { runProgram(func(context.Context) {}) }})
}

const unusedProfiles = `
[profile.default]
address = "127.0.0.1:1"
[profile.elsewhere]
address = "127.0.0.1:3"
`

// TestScripts runs testdata/*.txtar: the output of commands without a server.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			profiles := filepath.Join(e.WorkDir, "temporal.toml")
			e.Setenv("TEMPORAL_CONFIG_FILE", profiles)
			e.Setenv("CONVERGE_BY", "alice")
			return os.WriteFile(profiles, []byte(unusedProfiles), 0o600)
		},
		UpdateScripts: *update,
	})
}
