// Package stage gives the tests that play on a real Temporal server what they have in common: a worker that serves with
// runtimes in memory, Worlds of one application each, and `converge dev` as a process of its own.
//
// A test program makes one Stage, whose Main is its TestMain. Its tests run at the same time, since they wait for most
// of it: each keeps to its own World. A test that measures is not Parallel, and so runs alone.
package stage

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/intent/render"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/fakeruntime"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
)

// Patience is the deadline of every wait: long enough for two cores with far too much to do, never slept through.
const Patience = 3 * time.Minute

// Stage is what the tests of one program share: a server, a worker with its store and its fake runtime, the programs of
// this repository. Each is started or built for the first test that wants it.
type Stage struct {
	// AtOnce is how many tests run at the same time, unless -parallel says otherwise; 0: four, more than there are cores, and
	// so few that on a loaded machine no product's timeout of seconds ends. More, where most of them wait for minutes.
	AtOnce int

	factories map[entities.RuntimeKind]activities.Factory
	converge  func() (string, error)
	programs  func() (string, error)
	ports     sync.Map // those that were given

	once  sync.Once // of the worker
	err   error
	store string
	fake  *fakeruntime.Runtime

	mu   sync.Mutex
	stop []func() // at the end, the last first
}

// New makes the stage of a test program, whose workers make runtimes with these factories beside the fake and the
// built-in ones.
func New(factories map[entities.RuntimeKind]activities.Factory) *Stage {
	s := &Stage{factories: factories}
	s.converge = sync.OnceValues(func() (string, error) { return build("converge", "converge-render") })
	s.programs = sync.OnceValues(func() (string, error) { return build("converge", "converge-render", "converge-dev") })
	return s
}

// Main runs the tests and ends what they shared. It returns the exit code.
func (s *Stage) Main(m *testing.M) int {
	render.InProcess()
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", fmt.Sprint(cmp.Or(s.AtOnce, 4))); err != nil {
			panic(err) // there is such a flag
		}
	}
	code := m.Run()
	for _, stop := range slices.Backward(s.stop) {
		stop()
	}
	return code
}

// folder makes one that is removed at the end.
func (s *Stage) folder(purpose string) (string, error) {
	dir, err := os.MkdirTemp("", "converge-"+purpose+"-")
	if err != nil {
		return "", err
	}
	s.atEnd(func() { _ = os.RemoveAll(dir) }) // it is below the system's folder for what is temporary
	return dir, nil
}

func (s *Stage) atEnd(stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = append(s.stop, stop)
}

// World gives a test an application of its own on the shared server and worker.
func (s *Stage) World(t *testing.T) *World {
	t.Helper()
	env := temporaltest.Start(t)
	s.once.Do(func() { s.err = s.workForAll(env.Address) })
	require.NoError(t, s.err)
	return &World{
		T: t, Client: env.Client, App: temporaltest.Unique(t), Dir: t.TempDir(), Store: s.store, Fake: s.fake,
	}
}

func (s *Stage) workForAll(address string) (err error) {
	if s.store, err = s.folder("store"); err != nil {
		return err
	}
	s.fake = fakeruntime.New(nil)
	stop, err := s.work(address, s.fake, worker.Options{Store: s.store})
	if err != nil {
		return err
	}
	s.atEnd(stop)
	return nil
}

// OwnServer gives a test a world with a server, a store and a fake runtime of its own, and a worker that it stops and
// starts. The server wants runs to end after so many events; 0 is its own default. The worker is started.
func (s *Stage) OwnServer(t *testing.T, events int) *World {
	t.Helper()
	return s.OwnServerWith(t, embedded.Options{ContinueAsNewAfter: events})
}

// OwnServerWith is OwnServer with a server that is set up in another way.
func (s *Stage) OwnServerWith(t *testing.T, o embedded.Options) *World {
	t.Helper()
	w := s.Unserved(t, o)
	w.StartWorker()
	return w
}

// Unserved is OwnServer without a worker, on a server that is started so.
func (s *Stage) Unserved(t *testing.T, o embedded.Options) *World {
	t.Helper()
	o.SearchAttributes = worker.SearchAttributes()
	server, err := embedded.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return s.At(t, server.Address())
}

// At is Unserved on a server that is there already.
func (s *Stage) At(t *testing.T, address string) *World {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: address, Logger: Quiet{}, ConnectionOptions: client.ConnectionOptions{GetSystemInfoTimeout: time.Minute}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	w := &World{T: t, Client: c, App: temporaltest.Unique(t), Dir: t.TempDir(), Store: t.TempDir(), Fake: fakeruntime.New(nil)}
	w.Address = address
	w.StartWorkerAs = func(o worker.Options) (stop func()) {
		t.Helper()
		o.Store = w.Store
		stop, err := s.work(w.Address, w.Fake, o)
		require.NoError(t, err)
		stop = sync.OnceFunc(stop)
		t.Cleanup(stop)
		return stop
	}
	start := func(address string, between ...grpc.UnaryClientInterceptor) {
		t.Helper()
		stop, err := s.work(address, w.Fake, worker.Options{Store: w.Store}, between...)
		require.NoError(t, err)
		w.StopWorker = sync.OnceFunc(stop)
		t.Cleanup(w.StopWorker)
	}
	w.StartWorkerAt = func(address string) { t.Helper(); start(address) }
	w.StartWorkerOver = func(between grpc.UnaryClientInterceptor) { t.Helper(); start(w.Address, between) }
	w.StartWorker = func() { t.Helper(); w.StartWorkerAt(w.Address) }
	return w
}

// work serves with a connection of its own, so that it may outlive the test that starts it.
func (s *Stage) work(address string, runtime *fakeruntime.Runtime, o worker.Options, between ...grpc.UnaryClientInterceptor) (stop func(), err error) {
	o.Tasks = &worker.Tasks{}
	if o.Payloads == nil {
		o.Payloads = &codec.Codec{}
	}
	data, failures := o.Payloads.Converters()
	options := client.Options{HostPort: address, Logger: Quiet{}, DataConverter: data, FailureConverter: failures, ConnectionOptions: client.ConnectionOptions{
		DialOptions:     []grpc.DialOption{o.Tasks.DialOption(), worker.Bounded(), grpc.WithChainUnaryInterceptor(between...)},
		GrpcCompression: connection.Compression(address),
	}}
	if o.Monitor != nil {
		options.MetricsHandler = o.Monitor.Handler()
		options.ConnectionOptions.DialOptions = append(options.ConnectionOptions.DialOptions, o.Monitor.Polls().DialOption())
	}
	c, err := client.Dial(options)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	o.Factories = map[entities.RuntimeKind]activities.Factory{
		entities.RuntimeFake: func(entities.RuntimeDefinition) (runtimes.Runtime, error) { return runtime, nil },
	}
	maps.Copy(o.Factories, s.factories)
	stopWorker, err := worker.Start(context.Background(), c, o)
	if err != nil {
		c.Close()
		return nil, err
	}
	return func() { stopWorker(); c.Close() }, nil
}

// Quiet discards the SDK's chatter; a failing workflow task is worth seeing.
type Quiet struct{}

// Debug implements the SDK's log.Logger.
func (Quiet) Debug(string, ...any) {}

// Info implements the SDK's log.Logger.
func (Quiet) Info(string, ...any) {}

// Warn implements the SDK's log.Logger.
func (Quiet) Warn(m string, kv ...any) {
	if strings.Contains(m, "panic") || strings.Contains(m, "workflow task") {
		fmt.Fprintln(os.Stderr, m, kv)
	}
}

// Error implements the SDK's log.Logger.
func (Quiet) Error(m string, kv ...any) { fmt.Fprintln(os.Stderr, m, kv) }
