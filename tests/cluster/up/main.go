// Command up runs a cluster as a team has one, on the loopback address, until Ctrl-C: Temporal on PostgreSQL, two workers, and the board with
// its API.
//
//	make cluster
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/converge-engine/converge/tests/cluster/lab"
)

func main() {
	if lab.PlayRole(os.Args) {
		return
	}
	cluster := lab.Up{Out: os.Stdout}
	flag.StringVar(&cluster.Program, "converge", filepath.Join("bin", "converge"), "program of the workers and of the board")
	flag.StringVar(&cluster.Store, "store", filepath.Join(".cache", "cluster", "store"), "directory of the store; remove it first: Temporal is empty at each start")
	flag.IntVar(&cluster.Port, "port", 7533, "port of Temporal; 0 takes a free one")
	flag.IntVar(&cluster.Board, "board", 8334, "port of the board")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cluster.Run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "up: %v\n", err)
		os.Exit(1)
	}
}
