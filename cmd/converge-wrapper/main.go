//go:build unix

// converge-wrapper runs a command in a container and prints one document about it: exit code, start, duration, and stdout and stderr
// separately, which a container's log merges (C8). It is meant to be the first process of the container: it passes signals on, ends the
// command at its timeout or deadline, and reaps orphans.
//
// It imports only the standard library and the document, so that it is small, static, and can be copied into any image.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/converge-engine/converge/runtimes/kubernetes/job/report"
)

const usage = `usage:
  converge-wrapper exec [flags] -- command [argument…]
  converge-wrapper --version

Runs the command and, when it has ended, prints one line of JSON about it (converge.command/v1).
Exits with the exit code of the command; 124 after the timeout, 125 if the wrapper itself failed,
126 if the command is not executable, 127 if it is not found, 128 plus the number of a signal.

`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// codeWrapperError is the exit code of the wrapper if it fails itself.
const codeWrapperError = 125

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 && (args[0] == "--version" || args[0] == "version") {
		fmt.Fprintln(stdout, "converge-wrapper", version())
		return 0
	}
	c, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "converge-wrapper: %v\n", err)
		return codeWrapperError
	}
	signals, stop := listen()
	defer stop()
	doc := c.run(signals)
	if err := doc.Write(stdout); err != nil {
		fmt.Fprintf(stderr, "converge-wrapper: print the document: %v\n", err)
		return codeWrapperError
	}
	return doc.ExitCode
}

// parse reads the arguments of exec. Flags end at "--", so that the flags of the command are not parsed.
func parse(args []string, stderr io.Writer) (command, error) {
	var c command
	flags := flag.NewFlagSet("converge-wrapper exec", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage); flags.PrintDefaults() }
	flags.DurationVar(&c.timeout, "timeout", 0, "terminate the command after this duration")
	deadline := flags.String("deadline", "", "terminate the command at this time (RFC 3339)")
	flags.DurationVar(&c.grace, "grace", 5*time.Second, "time between SIGTERM and SIGKILL")
	flags.IntVar(&c.limit, "limit", report.LimitStdout, "number of bytes to keep from the end of stdout")
	flags.BoolVar(&c.stopAtLimit, "stop-at-limit", false, "terminate a command that prints more than --limit to stdout")
	if len(args) == 0 || args[0] != "exec" {
		flags.Usage()
		if len(args) > 0 && (args[0] == "-h" || args[0] == "--help" || args[0] == "help") {
			return c, flag.ErrHelp
		}
		return c, errors.New(`expected "exec"`)
	}
	if err := flags.Parse(args[1:]); err != nil {
		return c, err
	}
	if *deadline != "" {
		at, err := time.Parse(time.RFC3339, *deadline)
		if err != nil {
			return c, fmt.Errorf("--deadline %q: expected RFC 3339, such as 2006-01-02T15:04:05Z", *deadline)
		}
		c.deadline = at
	}
	c.argv = flags.Args()
	switch {
	case len(c.argv) == 0 || c.argv[0] == "":
		return c, errors.New("no command given; expected one after --")
	case c.limit < 0 || c.timeout < 0 || c.grace < 0:
		return c, errors.New("--limit, --timeout and --grace must not be negative")
	}
	return c, nil
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}
