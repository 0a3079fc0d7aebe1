// Command converge-dev is what `converge dev` becomes: a Temporal server, its Web UI and a worker in one process.
//
// Only this program links the server; see docs/decisions/0001-what-is-embedded.md.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/converge-engine/converge/worker/embedded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "converge-dev:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context) error {
	server, err := embedded.Start(ctx, embedded.Options{UIPort: -1})
	if err != nil {
		return err
	}
	fmt.Println("Temporal at", server.Address(), "with its UI at", server.UIAddress())
	<-ctx.Done()
	return server.Stop()
}
