// Command worker is a worker of the upgrade demonstration: Converge's own, whose runtime is a folder. It is built twice,
// without and with the build tag "after", by which its workflows decide otherwise (logic_after.go).
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	"google.golang.org/grpc"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/worker"
)

func main() {
	o := worker.Options{Tasks: &worker.Tasks{}}
	address := flag.String("address", "", "Temporal server")
	dir := flag.String("folder", "", "the folder that is the runtime")
	flag.StringVar(&o.Store, "store", "", "store")
	flag.StringVar(&o.Deployment.Name, "deployment", "", "worker deployment; empty: no versions")
	flag.StringVar(&o.Deployment.Build, "build", "", "build of it, which becomes the current one")
	flag.Parse()
	o.Deployment.SetCurrent = o.Deployment.Build != ""
	o.Interceptors = []interceptor.WorkerInterceptor{&logic{}}
	o.Factories = map[entities.RuntimeKind]activities.Factory{
		entities.RuntimeFake: func(entities.RuntimeDefinition) (runtimes.Runtime, error) { return folder{*dir}, nil },
	}
	if err := serve(*address, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(address string, o worker.Options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	c, err := client.Dial(client.Options{
		HostPort: address, Logger: sdklog.NewStructuredLogger(log),
		ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{o.Tasks.DialOption()}},
	})
	if err != nil {
		return err
	}
	defer c.Close()
	return worker.Run(ctx, c, o)
}
