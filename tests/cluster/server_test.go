package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	_ "go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql" // the database
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
	"go.temporal.io/server/tools/sql"
)

const (
	plugin = "postgres12_pgx"
	user   = "temporal"
	host   = "127.0.0.1"
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
			args := append([]string{"temporal-sql-tool", "--plugin", plugin, "--endpoint", host, "--port", strconv.Itoa(port), "--user", user, "--database", name}, command...)
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
			PluginName: plugin, User: user, DatabaseName: name, ConnectAddr: net.JoinHostPort(host, strconv.Itoa(postgres)), ConnectProtocol: "tcp",
			MaxConns: 20, MaxIdleConns: 20,
		}}
	}
	services, hosts := map[string]config.Service{}, map[primitives.ServiceName]static.Hosts{}
	for _, name := range []primitives.ServiceName{primitives.FrontendService, primitives.HistoryService, primitives.MatchingService, primitives.WorkerService} {
		number := port
		if name != primitives.FrontendService {
			var err error
			if number, err = freePort(); err != nil {
				return nil, nil, err
			}
		}
		services[string(name)] = config.Service{RPC: config.RPC{BindOnIP: host, GRPCPort: number}}
		hosts[name] = static.SingleLocalHost(net.JoinHostPort(host, strconv.Itoa(number)))
	}
	frontend := net.JoinHostPort(host, strconv.Itoa(port))
	return &config.Config{
		Global:      config.Global{Membership: config.Membership{BroadcastAddress: host}},
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

// freePort is one of the loopback address.
func freePort() (int, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", host+":0")
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

// playRole is what a process does that was started for a role.
func playRole(args []string) (played bool) {
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
