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

// ConfigurationCommand is a program that is run where the configuration is compiled, if whoever compiles it allows that. It starts in the
// directory of this file, without a shell.
type ConfigurationCommand struct {
	// The program and its arguments.
	Command []string `json:"command"`
	// How long it may take.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=1m"`
}

// Run is a ConfigurationCommand that is to be run.
type Run struct {
	What    string // where it is declared: generators[0]
	Argv    []string
	Dir     string // absolute
	Stdin   []byte
	Timeout time.Duration
}

// Ran is how it ended. An error beside it says why it did not end by itself.
type Ran struct {
	Stdout, Stderr []byte
	ExitCode       int
}

// Said is what it printed last, for the end of a sentence.
func (r Ran) Said() string {
	for _, stream := range [][]byte{r.Stderr, r.Stdout} {
		lines := strings.Split(strings.TrimSpace(string(stream)), "\n")
		if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
			return ": " + strict.Clip(last)
		}
	}
	return ""
}

// Perform runs a command of an application. A fault says why it did not end by itself.
func (c *Config) Perform(at string, command ConfigurationCommand, stdin []byte) (Ran, *Fault) {
	switch {
	case len(command.Command) == 0 || command.Command[0] == "":
		return Ran{}, &Fault{Code: "missing-field", Message: "there is no program", Expected: "the program and its arguments"}
	case c.Options.Run == nil:
		return Ran{}, &Fault{
			Code: "commands-not-allowed", Message: fmt.Sprintf("%s would be run here", strict.Clip(strings.Join(command.Command, " "))),
			Expected: "--allow-commands, from somebody who trusts whoever can change this configuration",
		}
	}
	ran, err := c.Options.Run(Run{
		What: at, Argv: command.Command, Dir: filepath.Join(c.Dir, filepath.FromSlash(path.Dir(c.Application.File))), Stdin: stdin, Timeout: command.Timeout.Or(time.Minute),
	})
	if err != nil {
		return ran, &Fault{Code: "command-failed", Message: err.Error()}
	}
	return ran, nil
}

// generate adds what the generators of the application print, in their order. Each is given what those before it printed.
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
		ran, fault := l.Config.Perform(at, generator, all.Bytes())
		if fault == nil && ran.ExitCode != 0 {
			fault = &Fault{Code: "command-failed", Message: fmt.Sprintf("%s exited %d%s", generator.Command[0], ran.ExitCode, ran.Said())}
		}
		if fault != nil {
			l.Broken = true // what refers to it is not checked
			app.Report(at+".command", *fault)
			return
		}
		fmt.Fprintf(&all, "---\n%s\n", bytes.TrimPrefix(ran.Stdout, []byte("---\n")))
		l.text(path.Join(path.Dir(app.File), at), ran.Stdout)
	}
}
