// Command try is `converge dev` for a fresh checkout, in which nothing has been compiled yet.
//
//	go run ./cmd/try [DIR] [flags of converge dev]
//
// It is compiled in seconds, says at once what it does, and compiles converge-dev alone: the command line is not needed
// before the first release by hand. DIR is examples/hello unless it is given.
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
		err = program.Dev.Exec(ctx, args, os.Stderr) // it returns only when it failed
	}
	fmt.Fprintf(os.Stderr, "try: %v\n", err)
	os.Exit(1)
}

var errUsage = errors.New("usage: go run ./cmd/try [DIR] [flags of converge dev]\n" +
	"DIR is examples/hello unless it is given; the flags are in: go run ./cmd/converge dev --help")

// arguments are those of converge-dev. What is wrong with them is said before anything is compiled, which takes minutes.
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
		return nil, fmt.Errorf("%s is no directory", args[0])
	}
	return args, nil
}
