// Command kubelab runs Kubernetes clusters without machines: etcd, kube-apiserver and kube-controller-manager of a
// release, built from their modules, and a node agent that plays containers. Pods are bound by the agent; there is no
// scheduler, no network and no image.
//
// `kubelab up` starts clusters as child processes, because flags and metrics of the components are globals. The other
// subcommands are those children.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // what a component's /metrics has everywhere
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/pkg/controller/job"

	"github.com/converge-engine/converge/tests/kube/agent"
	"github.com/converge-engine/converge/tests/kube/lab"
)

const usage = `kubelab runs Kubernetes clusters without machines.

  kubelab up --dir DIR [--name NAME]... [--nodes N]   start clusters, until interrupted; DIR/kubeconfig appears when they are ready
  kubelab agent --kubeconfig FILE --dir DIR           the node agent alone
  kubelab etcd|kube-apiserver|kube-controller-manager ...
`

func main() {
	// Children die with the thread that started them (lab/child.go), so it must be the one that never ends.
	runtime.LockOSThread()
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	component := os.Args[1]
	os.Args = append([]string{component}, os.Args[2:]...)
	switch component {
	case lab.Etcd:
		etcdmain.Main(os.Args)
	case lab.APIServer:
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case lab.Controllers:
		hurryJobs()
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	case lab.Agent:
		exit(runAgent(os.Args[1:]))
	case "up":
		exit(up(os.Args[1:]))
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
}

// hurryJobs shortens what the Job controller waits for between two syncs and after a failed pod: a second and ten seconds.
func hurryJobs() {
	job.SyncJobBatchPeriod = 50 * time.Millisecond
	job.DefaultJobApiBackOff = 50 * time.Millisecond
	job.DefaultJobPodFailureBackOff = 200 * time.Millisecond
}

func up(args []string) error {
	options := lab.Options{Nodes: 2, Talk: os.Stdout}
	flags := flag.NewFlagSet("up", flag.ExitOnError)
	flags.StringVar(&options.Dir, "dir", "", "folder of the clusters' state, made anew; a temporary one by default, removed at the end")
	flags.IntVar(&options.Nodes, "nodes", options.Nodes, "nodes of each cluster")
	flags.Func("name", "name of a cluster and its context in the kubeconfig; repeat it for several (default \"kubelab\")", func(name string) error {
		options.Names = append(options.Names, name)
		return nil
	})
	control := flags.Bool("control", false, "read commands from standard input, such as \"stop NAME kube-apiserver\", and end when it closes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if len(options.Names) == 0 {
		options.Names = []string{"kubelab"}
	}
	if *control {
		options.Control = os.Stdin
	}
	ctx, cancel := untilInterrupted()
	defer cancel()
	return lab.Run(ctx, options)
}

func runAgent(args []string) error {
	options := agent.Options{Nodes: 2, Errors: os.Stderr}
	flags := flag.NewFlagSet(lab.Agent, flag.ExitOnError)
	flags.StringVar(&options.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster")
	flags.StringVar(&options.Dir, "dir", "", "folder of the pods' volumes and logs")
	flags.IntVar(&options.Nodes, "nodes", options.Nodes, "nodes to play")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if options.Kubeconfig == "" || options.Dir == "" {
		return errors.New("agent: want --kubeconfig and --dir")
	}
	ctx, cancel := untilInterrupted()
	defer cancel()
	return agent.Run(ctx, options)
}

func untilInterrupted() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubelab:", strings.TrimSpace(err.Error()))
		os.Exit(1)
	}
	os.Exit(0)
}
