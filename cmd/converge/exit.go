package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/converge-engine/converge/entities/outcome"
)

// exitInterrupted is the exit status after Ctrl-C; the others are the codes of package outcome (docs/reference.md, Exit codes).
const exitInterrupted = 130

const exitFooter = `Exit status: 0 converged or done (skipped included), 1 error, 2 failed or rolled
back, 3 timed out, 8 waits for a person, 130 interrupted.`

// exitErr ends the program with an exit code. Without an error, nothing more is printed.
type exitErr struct {
	code int
	err  error
}

func (e *exitErr) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitErr) Unwrap() error { return e.err }

// exit ends the program with a code after all output was written. Code 0 is no error.
func exit(code int) error {
	if code == outcome.Done {
		return nil
	}
	return &exitErr{code: code}
}

// errInterrupted is the cause of a context that Ctrl-C or SIGTERM ended.
var errInterrupted = errors.New("interrupted")

// finish translates the result of a verb into the exit code, and prints the remaining error on w. No other function does this.
func finish(ctx context.Context, err error, w io.Writer) int {
	if err == nil {
		return outcome.Done
	}
	var coded *exitErr
	switch {
	case errors.As(err, &coded):
		if coded.err != nil {
			fmt.Fprintf(w, "converge: %v\n", coded.err)
		}
		return coded.code
	case errors.Is(context.Cause(ctx), errInterrupted):
		fmt.Fprintln(w, "converge: interrupted")
		return exitInterrupted
	}
	all := []error{err}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		all = several.Unwrap()
	}
	for _, e := range all {
		fmt.Fprintf(w, "converge: %v\n", e)
	}
	return outcome.Error
}
