// Package embedded runs a complete Temporal server (frontend, history, matching and worker services) and its Web UI in this process, on
// SQLite, for `converge dev` and for tests.
//
// It listens on the loopback address only, sends no telemetry, downloads nothing, and keeps the server's log output off the terminal. It
// refuses to share a database file with another process and to open a file of another schema.
//
// To import it links the server, about 100 MB: only cmd/converge-dev and tests may. It imports nothing of ours.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/temporal"
)

const (
	// Namespace is the one namespace that the server is created with.
	Namespace = "default"

	startTimeout = time.Minute
	stopTimeout  = time.Minute
)

// Options configure a server. The zero value is a server in memory on a free port, without UI.
type Options struct {
	// DBFile is the SQLite file; its directory is created if missing. Empty keeps everything in memory.
	DBFile string
	// Port is the gRPC port on the loopback address; 0 takes a free one.
	Port int
	// UIPort is the HTTP port of the Web UI on the loopback address; 0 starts no UI, -1 takes a free port.
	UIPort int
	// UIView is what the root of the Web UI opens; nil opens the list of all workflows.
	UIView *View
	// SearchAttributes are created in Namespace, in a new file.
	SearchAttributes map[string]enumspb.IndexedValueType
	// ContinueAsNewAfter is the number of events in a history after which the server suggests continue-as-new; 0 is the server's default.
	// Tests use it for short runs.
	ContinueAsNewAfter int
	// SignalsPerRun is the number of signals that a run accepts; 0 is the server's default of 10,000. Tests use it to flood workflows.
	SignalsPerRun int
	// DrainageInterval is how soon the server detects that a version of workers has no workflows left; 0 is its default of some minutes.
	DrainageInterval time.Duration
	// PollExpiration is how soon the server answers a poll without work; 0 is its default of a minute. Tests use it to detect that workers are
	// gone.
	PollExpiration time.Duration
	// WorkflowPause lets clients pause workflows, as frontend.WorkflowPauseEnabled does on a server of your own; by default they may only
	// pause activities. Tests use it to pause workflows.
	WorkflowPause bool
	// Authorizer and ClaimMapper define who may call which API; nil means everyone may call everything. The server's internal calls have no
	// token.
	Authorizer  authorization.Authorizer
	ClaimMapper authorization.ClaimMapper
	// Metrics receives the server's metrics; nil discards them.
	Metrics metrics.Handler
	// Log receives the server's errors, and its warnings as debug records; nil discards both.
	Log *slog.Logger

	// tune edits the dynamic configuration; tests use it to compare settings.
	tune func(*settings)
}

// Server is a running server. Its methods may be called from any goroutine.
type Server struct {
	ports    ports
	database *database
	temporal temporal.Server
	ui       *http.Server
	log      *serverLog
	stop     func() error
}

// Address is the gRPC address of the frontend, as host:port.
func (s *Server) Address() string { return s.ports.frontend.address() }

// UIAddress is the URL of the Web UI, empty without one.
func (s *Server) UIAddress() string {
	if s.ui == nil {
		return ""
	}
	return "http://" + s.ports.ui.address()
}

// Start returns once the frontend serves requests and the UI answers. If it fails or ctx ends before that, it stops everything that it
// started. Afterwards ctx has no effect; only Stop ends the server.
func Start(ctx context.Context, o Options) (*Server, error) {
	s, err := start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("start the embedded Temporal server: %w", err)
	}
	return s, nil
}

func start(ctx context.Context, o Options) (*Server, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	db, err := openDatabase(o.DBFile, o.SearchAttributes)
	if err != nil {
		return nil, err
	}
	reserved, err := choosePorts(o.Port, o.UIPort)
	if err != nil {
		return nil, errors.Join(err, db.close())
	}
	s := &Server{ports: reserved, database: db, log: newServerLog(o.Log, fail)}
	s.stop = sync.OnceValue(s.stopAll)
	dynamic := newSettings()
	if o.ContinueAsNewAfter > 0 {
		dynamic.set(dynamicconfig.HistoryCountSuggestContinueAsNew.Key(), o.ContinueAsNewAfter)
	}
	if o.SignalsPerRun > 0 {
		dynamic.set(dynamicconfig.MaximumSignalsPerExecution.Key(), o.SignalsPerRun)
	}
	if o.DrainageInterval > 0 {
		dynamic.set(dynamicconfig.VersionDrainageStatusVisibilityGracePeriod.Key(), o.DrainageInterval)
		dynamic.set(dynamicconfig.VersionDrainageStatusRefreshInterval.Key(), o.DrainageInterval)
	}
	if o.WorkflowPause {
		dynamic.set(dynamicconfig.WorkflowPauseEnabled.Key(), true)
	}
	if o.PollExpiration > 0 {
		dynamic.set(dynamicconfig.MatchingLongPollExpirationInterval.Key(), o.PollExpiration)
	}
	if o.tune != nil {
		o.tune(dynamic)
	}
	if err := s.launch(ctx, o, dynamic); err != nil {
		return nil, err
	}
	err = s.awaitReady(ctx, o.UIView)
	if err == nil {
		err = db.markOpen()
	}
	if err != nil {
		if stopErr := s.Stop(); stopErr != nil {
			err = errors.Join(err, stopErr)
		}
		return nil, err
	}
	s.log.started()
	return s, nil
}

// launch starts the services and returns when they have started, which is before they serve. The server can only be stopped once it has
// started, so an abandoned launch is stopped in the background when it has started; the database stays locked until then.
func (s *Server) launch(ctx context.Context, o Options, dynamic *settings) error {
	started := make(chan error, 1)
	// In a separate goroutine, because a fatal error of the server blocks the goroutine in which it happens.
	go func() { started <- s.startServices(o, dynamic) }()
	select {
	case err := <-started:
		if err != nil {
			err = errors.Join(err, s.database.close())
		}
		return err
	case <-ctx.Done():
		go func() {
			if err := <-started; err == nil {
				_ = s.Stop()
			}
		}()
		return context.Cause(ctx)
	}
}

func (s *Server) startServices(o Options, dynamic *settings) error {
	cfg, hosts := s.ports.serverConfig(s.database)
	options := []temporal.ServerOption{
		temporal.WithConfig(cfg),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(s.log),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithDynamicConfigClient(dynamic),
	}
	if o.Metrics != nil {
		options = append(options, temporal.WithCustomMetricsHandler(o.Metrics))
	}
	if o.Authorizer != nil {
		options = append(options, temporal.WithAuthorizer(o.Authorizer), temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return o.ClaimMapper }))
	}
	server, err := temporal.NewServer(options...)
	if err != nil {
		return err
	}
	s.temporal = server
	return server.Start()
}

func (s *Server) awaitReady(ctx context.Context, view *View) error {
	if err := awaitFrontend(ctx, s.Address()); err != nil {
		return err
	}
	if s.ports.ui.number == 0 {
		return nil
	}
	served, err := newUI(s.ports.ui, s.Address(), view)
	if err != nil {
		return fmt.Errorf("the Web UI: %w", err)
	}
	s.ui = served
	go s.serveUI()
	return waitForUI(ctx, s.UIAddress())
}

// Stop ends the UI and the server and releases the database file. It takes about a second. After 15 seconds it gives up with an error, and
// leaves the file locked until the process ends, since the server may still write to it. Later calls return the result of the first one.
// Stop the workers and clients of this server first.
func (s *Server) Stop() error { return s.stop() }

func (s *Server) stopAll() error {
	s.log.stopping()
	if s.ui != nil {
		_ = s.ui.Close() // requests in flight can be dropped
	}
	stopped := make(chan error, 1)
	go func() { stopped <- s.temporal.Stop() }()
	deadline := time.NewTimer(stopTimeout)
	defer deadline.Stop()
	select {
	case err := <-stopped:
		return errors.Join(err, s.database.close())
	case <-deadline.C:
		return fmt.Errorf("stop the embedded Temporal server: still running after %s", stopTimeout)
	}
}
