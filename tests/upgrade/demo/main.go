// Command demo upgrades the workers of many live services while releases are under way, with real programs, and reports
// what was seen (make upgrade-demo).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/converge-engine/converge/tests/upgrade/scene"
)

func main() {
	services := flag.Int("services", 1000, "live services")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *services); err != nil {
		fmt.Fprintln(os.Stderr, "upgrade demo:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, services int) error {
	dir, err := os.MkdirTemp("", "converge-upgrade-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%4.0fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	report, err := scene.Play(ctx, dir, services, say)
	if err != nil {
		return err
	}
	fmt.Print(report)
	if wrong := report.Wrong(); len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "\n"))
	}
	return nil
}
