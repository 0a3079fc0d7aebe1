// Package connection is how clients of an installation reach its workflows in Temporal: it connects, queries, sends acts, lists services, and
// says in plain words why a call failed.
package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	"google.golang.org/grpc"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/worker/deployment"
)

// API is what callers use of a Client. Its errors are RefusedError, ErrNotFound, ErrNoWorker, ErrLost, or others that a retry
// does not fix.
type API interface {
	// Query queries a workflow; it writes no history.
	Query(ctx context.Context, workflowID, query string, into any) error
	// Update sends an act and waits for the answer. Two calls with the same request id are the same act.
	Update(ctx context.Context, workflowID, verb, requestID string, act, into any) error
	// Start starts a workflow unless it runs already.
	Start(ctx context.Context, workflowID, workflowType string, input any) error
	// Services lists the running services of one application, or of all if the name is empty. The list is sorted.
	Services(ctx context.Context, application string) ([]ServiceName, error)
	// EndedServices lists, with the same parameter and order, the services whose last run ended abnormally. Some of them may run again.
	EndedServices(ctx context.Context, application string) ([]ServiceName, error)
	// Progress returns what workers currently report of their work for a workflow.
	Progress(ctx context.Context, workflowID string) ([]protocol.Progress, error)
	// Altered returns what operators did to a workflow or its activities in Temporal.
	Altered(ctx context.Context, workflowID string) ([]deployment.Alteration, error)
	// Paused lists the ids of the workflows of one application and its services, or of all if the name is empty, that an operator has
	// paused, or an activity of which.
	Paused(ctx context.Context, application string) ([]string, error)
	// TerminationReason returns the reason why the last run of a workflow was terminated. It is empty if the run was not terminated.
	TerminationReason(ctx context.Context, workflowID string) (reason string, err error)
	// HowEnded describes how the last run of a workflow ended, and who ended it. It is empty if that is unknown.
	HowEnded(ctx context.Context, workflowID string) string
	// Applications lists the running applications, sorted.
	Applications(ctx context.Context) ([]string, error)
	// Plans lists the ids of the running plans of one application, or of all if the name is empty. The list is sorted.
	Plans(ctx context.Context, application string) ([]string, error)
	// ListServices returns a page of the running services, and the token of the next page; an empty one: it is the last.
	ListServices(ctx context.Context, filter ServiceFilter, size int, token []byte) (page []ListedService, next []byte, err error)
	// Healthy returns why the server does not answer; nil: it does.
	Healthy(ctx context.Context) error
	// Temporal returns the connection and its namespace, for publishing and for the worker.
	Temporal() (c client.Client, namespace string)
	Close()
}

// Settings say how to reach the server. Empty fields come from the environment or the profile.
type Settings struct {
	Address, Namespace, Profile string
	Identity                    string       // identity of this process for the server; empty: converge
	Local                       bool         // use the server of converge dev and ignore the environment
	Log                         *slog.Logger // log of the SDK; nil: none
	Dial                        []grpc.DialOption
	Metrics                     client.MetricsHandler           // of the SDK; nil: none
	Interceptors                []interceptor.ClientInterceptor // around calls
	Payloads                    *codec.Codec                    // nil: nothing is encrypted
	OwnKeys                     bool                            // payloads are decrypted with own keys, never with a codec server
}

// QueryTimeout limits one call that reads.
const QueryTimeout = 10 * time.Second

const dialTimeout = 5 * time.Second

// options follows Temporal's own conventions: flags over environment over profile over defaults.
func (s Settings) options() (client.Options, error) {
	var o client.Options
	if !s.Local {
		profile, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{ConfigFileProfile: s.Profile})
		if err == nil {
			o, err = profile.ToClientOptions(envconfig.ToClientOptionsRequest{})
		}
		if err != nil {
			return o, fmt.Errorf("read Temporal's connection settings: %w", err)
		}
		if server := profile.Codec; server != nil && server.Endpoint != "" && !s.OwnKeys && !s.Payloads.Keyed() {
			s.Payloads = codec.Remote(server.Endpoint, server.Auth, cmp.Or(s.Namespace, o.Namespace))
		}
	}
	if s.Payloads == nil {
		s.Payloads = &codec.Codec{}
	}
	o.DataConverter, o.FailureConverter = s.Payloads.Converters()
	if s.Address != "" {
		o.HostPort = s.Address
	}
	if o.HostPort == "" {
		o.HostPort = "127.0.0.1:7233"
	}
	if s.Namespace != "" {
		o.Namespace = s.Namespace
	}
	if o.Namespace == "" {
		o.Namespace = client.DefaultNamespace
	}
	o.Identity = cmp.Or(s.Identity, "converge")
	o.MetricsHandler, o.Interceptors = s.Metrics, s.Interceptors
	o.Logger = sdklog.NewStructuredLogger(cmp.Or(s.Log, slog.New(slog.DiscardHandler)))
	o.ConnectionOptions.GetSystemInfoTimeout = dialTimeout
	o.ConnectionOptions.GrpcCompression = Compression(o.HostPort)
	o.ConnectionOptions.DialOptions = append(o.ConnectionOptions.DialOptions, s.Dial...)
	return o, nil
}

// Dial connects, or says how to get a server to connect to.
func Dial(ctx context.Context, s Settings) (*Client, error) {
	o, err := s.options()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	tc, err := client.DialContext(ctx, o)
	if err != nil {
		return nil, connectError(o.HostPort, err)
	}
	return Of(tc, o.HostPort, o.Namespace, o.DataConverter), nil
}

// Of returns the connection that a client of the SDK has.
func Of(c client.Client, address, namespace string, payloads converter.DataConverter) *Client {
	return &Client{temporal: c, namespace: namespace, address: address, process: NewRequestID(), payloads: payloads}
}

func connectError(address string, err error) error {
	text := fmt.Sprintf("no Temporal server at %s (%s); start one with: converge dev, or name one with --address", address, cause(err))
	if strings.Contains(err.Error(), "not healthy") {
		text = fmt.Sprintf("the Temporal server at %s is starting or stopping (%s); try again in a few seconds", address, cause(err))
	}
	if errors.As(err, new(*serviceerror.Unavailable)) || errors.As(err, new(*serviceerror.DeadlineExceeded)) || errors.Is(err, context.DeadlineExceeded) {
		return &unreachableError{text}
	}
	return errors.New(text)
}

// cause returns the end of a gRPC error, which is the part that helps a user.
func cause(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "desc = "); i >= 0 {
		text = text[i+len("desc = "):]
	}
	if i := strings.LastIndex(text, "dial tcp "); i >= 0 {
		if _, rest, ok := strings.Cut(text[i+len("dial tcp "):], ": "); ok {
			text = rest
		}
	}
	if strings.Contains(text, "no children to pick from") { // gRPC's message for an unreachable server
		return "no such host"
	}
	return strings.TrimPrefix(strings.TrimPrefix(strings.Trim(text, `"`), "failed reaching server: "), "connect: ")
}
