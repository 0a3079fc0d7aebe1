// Command try is `converge dev` for a fresh checkout, in which nothing is compiled yet.
//
//	go run ./cmd/try [DIR] [flags of converge dev]
//
// It compiles in seconds, reports at once what it does, and compiles only converge-dev: the command line is not needed before the first
// manual release. DIR defaults to examples/hello.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/converge-engine/converge/cmd/internal/program"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	args, err := arguments(os.Args[1:])
	if err == nil {
		err = program.Dev.Exec(ctx, args, os.Stderr) // it returns only on an error
	}
	fmt.Fprintf(os.Stderr, "try: %v\n", err)
	os.Exit(1)
}

var errUsage = errors.New("usage: go run ./cmd/try [DIR] [flags of converge dev]\n" +
	"DIR is examples/hello unless it is given; the flags are in: go run ./cmd/converge dev --help")

// arguments returns the arguments of converge-dev. It reports invalid ones before it compiles anything, because that takes minutes.
func arguments(args []string) ([]string, error) {
	if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		return nil, errUsage
	}
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return append([]string{"examples/hello"}, args...), nil
	}
	info, err := os.Stat(args[0])
	if err != nil {
		return nil, fmt.Errorf("no directory %s: %w", args[0], errors.Unwrap(err))
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", args[0])
	}
	return args, nil
}
