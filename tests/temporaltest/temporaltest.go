// Package temporaltest gives tests a real Temporal server, embedded in the test program and in memory.
//
// One server serves all tests of a program, in one namespace: a test keeps to workflow ids and task queues of its own,
// for which Unique makes names. It lives until the program ends. Importing this package links the server, so only
// packages below tests, and tests of packages that nothing light is built from, may.
package temporaltest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdklog "go.temporal.io/sdk/log"

	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
)

// Env is a connection to the server.
type Env struct {
	// Client is closed when the test ends.
	Client client.Client
	// Address is where the server serves gRPC, for programs that a test runs.
	Address string
}

// sharedServer starts on first use. It is never stopped: what it holds is in memory and ends with the program.
var sharedServer = sync.OnceValues(func() (*embedded.Server, error) {
	return embedded.Start(context.Background(), embedded.Options{SearchAttributes: worker.SearchAttributes(), Log: log()})
})

// log goes to stderr, which go test shows for packages that fail. A test's own output would not do: server, clients
// and workers may have a last word after the test has ended.
func log() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// Start returns a connection to the server of this test program, which the first call starts.
func Start(t testing.TB) *Env {
	t.Helper()
	server, err := sharedServer()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(client.Options{
		HostPort:  server.Address(),
		Namespace: embedded.Namespace,
		Logger:    sdklog.NewStructuredLogger(log()),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &Env{Client: c, Address: server.Address()}
}

var (
	uniqueCount  atomic.Int64
	notInUnique  = regexp.MustCompile(`[^a-z0-9]+`)
	uniqueLength = 30
)

// Unique returns a name that no other call in this program returns, derived from the name of the test, fit for ids, task
// queues and names of applications and services.
func Unique(t testing.TB) string {
	name := strings.Trim(notInUnique.ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	if len(name) > uniqueLength {
		name = strings.Trim(name[:uniqueLength], "-")
	}
	return fmt.Sprintf("%s-%d", name, uniqueCount.Add(1))
}

// Query asks a workflow. It asks again, up to six times, if a busy worker does not answer within the ten seconds that the SDK waits.
func Query(ctx context.Context, c client.Client, id, query string, args ...any) (value converter.EncodedValue, err error) {
	for range 6 {
		value, err = c.QueryWorkflow(ctx, id, "", query, args...)
		slow := errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*serviceerror.DeadlineExceeded))
		if !slow || ctx.Err() != nil {
			break
		}
	}
	return value, err
}

// WaitFor asks cond again and again until it reports true. When it has not by the deadline, the test fails with the last
// message, which should say what was seen instead.
func WaitFor(t testing.TB, deadline time.Duration, cond func() (bool, string)) {
	t.Helper()
	if message, ok := poll(deadline, cond); !ok {
		t.Fatalf("not after %s; last: %s", deadline, message)
	}
}

// poll asks at once, then at growing intervals: a quick answer is seen quickly, a slow one asked for cheaply.
func poll(deadline time.Duration, cond func() (bool, string)) (string, bool) {
	const longest = 100 * time.Millisecond
	end := time.NewTimer(deadline)
	defer end.Stop()
	for interval := time.Millisecond; ; interval = min(2*interval, longest) {
		done, message := cond()
		if done {
			return message, true
		}
		select {
		case <-end.C:
			return message, false
		case <-time.After(interval):
		}
	}
}
