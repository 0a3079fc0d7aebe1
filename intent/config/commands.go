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

// Run is a ConfigurationCommand to run.
type Run struct {
	What    string // where it is declared: generators[0]
	Argv    []string
	Dir     string // absolute
	Stdin   []byte
	Timeout time.Duration
}

// Ran is the result of a run. If the program did not end on its own, Run returns an error, too.
type Ran struct {
	Stdout, Stderr []byte
	ExitCode       int
}

// Said returns the last output, for the end of a message.
func (r Ran) Said() string {
	for _, stream := range [][]byte{r.Stderr, r.Stdout} {
		lines := strings.Split(strings.TrimSpace(string(stream)), "\n")
		if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
			return ": " + strict.Clip(last)
		}
	}
	return ""
}

// Perform runs a command of an application. A fault means that the command did not end on its own, and why.
func (c *Config) Perform(at string, command ConfigurationCommand, stdin []byte) (Ran, *Fault) {
	switch {
	case len(command.Command) == 0 || command.Command[0] == "":
		return Ran{}, &Fault{Code: "missing-field", Message: "there is no program", Expected: "the program and its arguments"}
	case c.Options.Run == nil:
		return Ran{}, &Fault{
			Code: "commands-not-allowed", Message: fmt.Sprintf("%s is not allowed to run", strict.Clip(strings.Join(command.Command, " "))),
			Expected: "--allow-commands, if you trust everybody who can change this configuration",
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
		ran, fault := l.Config.Perform(at, generator, all.Bytes())
		if fault == nil && ran.ExitCode != 0 {
			fault = &Fault{Code: "command-failed", Message: fmt.Sprintf("%s exited %d%s", generator.Command[0], ran.ExitCode, ran.Said())}
		}
		if fault != nil {
			l.Broken = true // references to it are not checked
			app.Report(at+".command", *fault)
			return
		}
		fmt.Fprintf(&all, "---\n%s\n", bytes.TrimPrefix(ran.Stdout, []byte("---\n")))
		l.text(path.Join(path.Dir(app.File), at), ran.Stdout)
	}
}
