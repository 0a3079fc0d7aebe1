// Package lab starts a Temporal server on PostgreSQL, each as a process: a PostgreSQL of Debian, and a server from the module of Temporal,
// on a schema that its own tool makes. A program that uses it plays the role of the server (PlayRole).
package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	_ "go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql" // the database
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
	"go.temporal.io/server/tools/sql"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	plugin = "postgres12_pgx"
	user   = "temporal"
	// Host is the address that everything listens on.
	Host = "127.0.0.1"
)

// databases of a server, and the names of their schemas.
var databases = map[string]string{"temporal": "postgresql/v12/temporal", "temporal_visibility": "postgresql/v12/visibility"}

// makeSchema makes the databases in a new PostgreSQL, with the server's own tool, as an administrator does.
func makeSchema(port int) error {
	for name, schema := range databases {
		for _, command := range [][]string{
			{"create-database", "--defaultdb", "postgres"},
			{"setup-schema", "-v", "0.0"},
			{"update-schema", "--schema-name", schema},
		} {
			args := append([]string{"temporal-sql-tool", "--plugin", plugin, "--endpoint", Host, "--port", strconv.Itoa(port), "--user", user, "--database", name}, command...)
			if err := sql.RunTool(args); err != nil {
				return fmt.Errorf("%v: %w", args, err)
			}
		}
	}
	return nil
}

// serve runs a server on that PostgreSQL until its standard input ends.
func serve(port, postgres int) error {
	cfg, hosts, err := configuration(port, postgres)
	if err != nil {
		return err
	}
	server, err := temporal.NewServer(
		temporal.WithConfig(cfg), temporal.ForServices(temporal.DefaultServices), temporal.WithStaticHosts(hosts),
		temporal.WithLogger(log.NewNoopLogger()), temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
	)
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	fmt.Println("serves")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return server.Stop()
}

func configuration(port, postgres int) (*config.Config, map[primitives.ServiceName]static.Hosts, error) {
	stores := map[string]config.DataStore{}
	for name := range databases {
		stores[name] = config.DataStore{SQL: &config.SQL{
			PluginName: plugin, User: user, DatabaseName: name, ConnectAddr: net.JoinHostPort(Host, strconv.Itoa(postgres)), ConnectProtocol: "tcp",
			MaxConns: 20, MaxIdleConns: 20,
		}}
	}
	services, hosts := map[string]config.Service{}, map[primitives.ServiceName]static.Hosts{}
	for _, name := range []primitives.ServiceName{primitives.FrontendService, primitives.HistoryService, primitives.MatchingService, primitives.WorkerService} {
		number := port
		if name != primitives.FrontendService {
			var err error
			if number, err = FreePort(); err != nil {
				return nil, nil, err
			}
		}
		services[string(name)] = config.Service{RPC: config.RPC{BindOnIP: Host, GRPCPort: number}}
		hosts[name] = static.SingleLocalHost(net.JoinHostPort(Host, strconv.Itoa(number)))
	}
	frontend := net.JoinHostPort(Host, strconv.Itoa(port))
	return &config.Config{
		Global:      config.Global{Membership: config.Membership{BroadcastAddress: Host}},
		Persistence: config.Persistence{DefaultStore: "temporal", VisibilityStore: "temporal_visibility", NumHistoryShards: 4, DataStores: stores},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10, MasterClusterName: "active", CurrentClusterName: "active",
			ClusterInformation: map[string]cluster.ClusterInformation{"active": {Enabled: true, InitialFailoverVersion: 1, RPCAddress: frontend}},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            services,
		PublicClient:        config.PublicClient{HostPort: frontend},
	}, hosts, nil
}

// FreePort is one of the loopback address.
func FreePort() (int, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", Host+":0")
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

// Roles of this program, as its first argument. The others are the ports of the server and of PostgreSQL.
const (
	schemaRole = "make-schema"
	serverRole = "temporal-server"
)

// PlayRole does what a process was started for by StartServer. It reports whether there was anything to do.
func PlayRole(args []string) (played bool) {
	if len(args) != 4 || args[1] != schemaRole && args[1] != serverRole {
		return false
	}
	port, err := strconv.Atoi(args[2])
	postgres, err2 := strconv.Atoi(args[3])
	if err = errors.Join(err, err2); err == nil && args[1] == schemaRole {
		err = makeSchema(postgres)
	} else if err == nil {
		err = serve(port, postgres)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// Server is a Temporal server as a process of its own.
type Server struct {
	port     int
	postgres int // port
	process  *exec.Cmd
}

// StartServer makes the schema in a new PostgreSQL and starts a server on it. Ports of 0 are chosen. The server may reach PostgreSQL at
// another port than its own, a proxy's.
func StartServer(port, postgres int) (*Server, error) {
	if port == 0 {
		var err error
		if port, err = FreePort(); err != nil {
			return nil, err
		}
	}
	s := &Server{port: port, postgres: postgres}
	if out, err := s.role(schemaRole).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make the schema: %w: %s", err, out)
	}
	return s, s.Start()
}

// Address is that of the frontend.
func (s *Server) Address() string { return net.JoinHostPort(Host, strconv.Itoa(s.port)) }

func (s *Server) role(name string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], name, strconv.Itoa(s.port), strconv.Itoa(s.postgres))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return cmd
}

// Start starts it again, and returns when its services have started.
func (s *Server) Start() error {
	s.process = s.role(serverRole)
	s.process.Stderr = os.Stderr
	if _, err := s.process.StdinPipe(); err != nil {
		return err
	}
	out, err := s.process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.process.Start(); err != nil {
		return err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "serves\n" {
		return fmt.Errorf("the server did not start: %q: %w", line, err)
	}
	return nil
}

// Register makes the namespace default, as an administrator does, and returns when the server serves it.
func (s *Server) Register(ctx context.Context) error {
	var err error
	for until := time.Now().Add(startTimeout); time.Now().Before(until) && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if err = s.register(ctx); err == nil {
			return nil
		}
	}
	return errors.Join(ctx.Err(), err)
}

func (s *Server) register(ctx context.Context) error {
	c, err := client.DialContext(ctx, client.Options{HostPort: s.Address(), Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace: client.DefaultNamespace, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	if err != nil && !errors.As(err, new(*serviceerror.NamespaceAlreadyExists)) {
		return err
	}
	_, err = c.WorkflowService().CountWorkflowExecutions(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: client.DefaultNamespace})
	return err
}

// Kill kills it.
func (s *Server) Kill() {
	_ = s.process.Process.Kill() // it may have ended
	_ = s.process.Wait()         // reports the kill
}
