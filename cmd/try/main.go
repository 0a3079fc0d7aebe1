// Command try is `converge dev` for a fresh checkout, in which nothing has been compiled yet.
//
//	go run ./cmd/try [DIR] [flags of converge dev]
//
// It is compiled in seconds, says at once what it does, and compiles converge-dev alone: the command line is not needed
// before the first release by hand. DIR is examples/hello unless it is given.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/converge-engine/converge/cmd/internal/program"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"examples/hello"}
	}
	if err := program.Dev.Exec(ctx, args, os.Stderr); err != nil { // it returns only when it failed
		fmt.Fprintf(os.Stderr, "try: %v\n", err)
		os.Exit(1)
	}
}
