package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
)

// queryTimeout limits a query to another workflow: without a running worker there is no answer.
const queryTimeout = 5 * time.Second

// services queries other services by their workflows, and the meaning of their versions in the store (D20–D22).
type services struct{ *Activities }

var _ checks.Services = services{}

// Status implements checks.Services.
func (s services) Status(ctx context.Context, application, service string) (protocol.Status, error) {
	var status protocol.Status
	err := protocol.QueryWhole(func(q protocol.PartsQuery) (raw json.RawMessage, err error) {
		err = s.queryLive(ctx, protocol.ServiceID(application, service), &raw, protocol.QueryStatus, q)
		return raw, err
	}, &status)
	switch {
	case errors.Is(err, checks.ErrNoService):
		return status, fmt.Errorf("%s/%s is not known: %w", application, service, err)
	case errors.Is(err, checks.ErrEnded):
		return status, fmt.Errorf("%s/%s: %w", application, service, err)
	}
	if err != nil {
		return status, fmt.Errorf("status of %s/%s: %w", application, service, err)
	}
	return status, nil
}

// configuredTTL is how long the answers about an incarnation are cached: all waiting services query at about the same time.
const configuredTTL = 2 * time.Second

// Configured implements checks.Services.
func (s services) Configured(ctx context.Context, application string, incarnation int64) ([]protocol.Configured, error) {
	return s.configProgress.get(fmt.Sprint(application, "/", incarnation), configuredTTL, func() ([]protocol.Configured, error) {
		newest, manifest, err := s.Newest(ctx, application)
		if err != nil {
			return nil, err
		}
		names := entities.SortedKeys(manifest)
		all := make([]protocol.Configured, len(names))
		forEach(len(names), func(n int) {
			c := s.configured(ctx, protocol.ServiceID(application, names[n]), incarnation)
			c.Behind = c.Err == "" && c.Spec != "" && newest == incarnation && c.Spec != manifest[names[n]]
			all[n] = c
		})
		return all, ctx.Err()
	})
}

// configured returns the answer of one service. A service without a workflow, or with a closed one, has nothing to deploy.
func (s services) configured(ctx context.Context, id string, incarnation int64) protocol.Configured {
	out := protocol.Configured{Service: id}
	err := s.queryLive(ctx, id, &out, protocol.QueryConfigured, incarnation)
	if err != nil && !errors.Is(err, checks.ErrNoService) && !errors.Is(err, checks.ErrEnded) {
		out = protocol.Configured{Service: id, Err: err.Error()}
	}
	return out
}

// Newest implements checks.Services.
func (s services) Newest(ctx context.Context, application string) (int64, map[string]string, error) {
	var status protocol.ApplicationStatus
	if err := s.query(ctx, protocol.ApplicationID(application), &status); err != nil {
		return 0, nil, fmt.Errorf("status of application %s: %w", application, err)
	}
	manifest, err := s.Store.Manifest(ctx, status.Manifest)
	if err != nil {
		return 0, nil, err
	}
	number := status.Newest
	for _, i := range status.Incarnations { // a pinned incarnation is not the newest
		if i.Manifest == status.Manifest {
			number = i.Number
		}
	}
	return number, manifest, nil
}

// Parameters implements checks.Services.
func (s services) Parameters(ctx context.Context, application, service, channel, fullVersion string) (map[string]any, error) {
	record, err := s.Store.Version(ctx, application, service, fullVersion)
	if err != nil {
		return nil, fmt.Errorf("version %s of %s/%s: %w", fullVersion, application, service, err)
	}
	inc, err := s.Store.Incarnation(ctx, record.Hash)
	if err != nil {
		return nil, err
	}
	return incarnation.ParametersIn(inc, service, channel, inputOf(record))
}

func (s services) query(ctx context.Context, id string, into any) error {
	return s.queryInParts(ctx, id, into, protocol.QueryStatus)
}

// queryInParts queries an answer that may exceed the size limit, in parts.
func (s services) queryInParts(ctx context.Context, id string, into any, query string) error {
	return protocol.QueryWhole(func(q protocol.PartsQuery) (raw json.RawMessage, err error) {
		err = s.queryAny(ctx, id, &raw, query, q)
		return raw, err
	}, into)
}

// queryLive queries a workflow that runs or has completed. The answer of a terminated one would be outdated.
func (s services) queryLive(ctx context.Context, id string, into any, query string, args ...any) error {
	return s.queryUnless(ctx, enumspb.QUERY_REJECT_CONDITION_NOT_COMPLETED_CLEANLY, id, into, query, args...)
}

func (s services) queryAny(ctx context.Context, id string, into any, query string, args ...any) error {
	return s.queryUnless(ctx, enumspb.QUERY_REJECT_CONDITION_NONE, id, into, query, args...)
}

// queryUnless queries a workflow unless its state is rejected: then the error is checks.ErrEnded.
func (s services) queryUnless(ctx context.Context, reject enumspb.QueryRejectCondition, id string, into any, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	answer, err := s.Client.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
		WorkflowID: id, QueryType: query, Args: args, QueryRejectCondition: reject,
	})
	switch {
	case errors.As(err, new(*serviceerror.NotFound)):
		return checks.ErrNoService
	case err != nil:
		return err
	case answer.QueryRejected != nil:
		return checks.ErrEnded
	}
	return answer.QueryResult.Get(into)
}
