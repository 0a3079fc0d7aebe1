package config

import (
	"bytes"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// ConfigurationCommand is a program that runs during compilation, if the user who compiles permits it. It starts in the directory of
// this file, without a shell.
type ConfigurationCommand struct {
	// The program and its arguments.
	Command []string `json:"command"`
	// The timeout.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=1m"`
}

// Command is a ConfigurationCommand to run.
type Command struct {
	Purpose string // where it is declared: generators[0]
	Argv    []string
	Dir     string // absolute
	Stdin   []byte
	Timeout time.Duration
}

// RunResult is the result of a run. If the program did not end on its own, Options.RunCommand returns an error, too.
type RunResult struct {
	Stdout, Stderr []byte
	ExitCode       int
}

// LastOutput returns the last output, for the end of a message.
func (r RunResult) LastOutput() string {
	for _, stream := range [][]byte{r.Stderr, r.Stdout} {
		lines := strings.Split(strings.TrimSpace(string(stream)), "\n")
		if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
			return ": " + strict.Clip(last)
		}
	}
	return ""
}

// RunCommand runs a command of an application. A fault means that the command did not end on its own, and why.
func (c *Config) RunCommand(at string, command ConfigurationCommand, stdin []byte) (RunResult, *Fault) {
	switch {
	case len(command.Command) == 0 || command.Command[0] == "":
		return RunResult{}, &Fault{Code: "missing-field", Message: "there is no program", Expected: "the program and its arguments"}
	case c.Options.RunCommand == nil:
		return RunResult{}, &Fault{
			Code: "commands-not-allowed", Message: fmt.Sprintf("%s is not allowed to run", strict.Clip(strings.Join(command.Command, " "))),
			Expected: "--allow-commands, if you trust everybody who can change this configuration",
		}
	}
	result, err := c.Options.RunCommand(Command{
		Purpose: at, Argv: command.Command, Dir: filepath.Join(c.Dir, filepath.FromSlash(path.Dir(c.Application.File))), Stdin: stdin, Timeout: command.Timeout.Or(time.Minute),
	})
	if err != nil {
		return result, &Fault{Code: "command-failed", Message: err.Error()}
	}
	return result, nil
}

// generate adds the output of the application's generators in their order. The input of each is the output of the previous ones.
func (l *Reader) generate() {
	app := l.Config.Application
	if app == nil {
		return
	}
	var all bytes.Buffer
	for i, generator := range app.Spec.Generators {
		at := strict.Index("generators", i)
		if app.Faulty(at) {
			continue
		}
		result, fault := l.Config.RunCommand(at, generator, all.Bytes())
		if fault == nil && result.ExitCode != 0 {
			fault = &Fault{Code: "command-failed", Message: fmt.Sprintf("%s exited %d%s", generator.Command[0], result.ExitCode, result.LastOutput())}
		}
		if fault != nil {
			l.Broken = true // references to it are not checked
			app.Report(at+".command", *fault)
			return
		}
		fmt.Fprintf(&all, "---\n%s\n", bytes.TrimPrefix(result.Stdout, []byte("---\n")))
		l.text(path.Join(path.Dir(app.File), at), result.Stdout)
	}
}
