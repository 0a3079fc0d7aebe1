package ecs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// explain says why an action failed, in the words of ECS and with advice, and whether a retry can help. An error in the declaration
// is permanent. Permissions, quotas, pending changes and faults of ECS are not. An action that the rate limit prevented, or that AWS
// did not answer, is no attempt at all. The error of an ended ctx stays as it is. The action is "" if the reader knows it.
func explain(action string, err error) error {
	var fenced *runtimes.FencedError
	switch {
	case err == nil, errors.As(err, &fenced):
		return err
	case runtimes.IsPermanent(err):
		return runtimes.Permanent(&actionError{action: action, err: err})
	}
	failure := &actionError{action: action, err: err}
	if limited := (*rateLimitError)(nil); errors.As(err, &limited) {
		return runtimes.Unready(failure) // the write that starts the rollout is the last one of an apply
	}
	if isUnanswered(err) {
		return runtimes.Unready(failure)
	}
	failure.hint = hints()[codeOf(err)]
	if isPermanent(err) {
		return runtimes.Permanent(failure)
	}
	return failure
}

// isUnanswered reports whether AWS did not answer, or does not accept the credentials. An apply that reached its timeout may have waited for
// tasks instead.
func isUnanswered(err error) bool {
	return !errors.Is(err, context.DeadlineExceeded) && codeOf(err) != "ClusterNotFoundException" && runtimes.IsNoAnswer(readingCode(err))
}

type actionError struct {
	action, hint string
	err          error
}

func (r *actionError) Error() string {
	text := shortMessage(r.err)
	if r.action != "" {
		text = r.action + ": " + text
	}
	if r.hint != "" {
		text += " (" + r.hint + ")"
	}
	return text
}

func (r *actionError) Unwrap() error { return r.err }

// hints are the advice for an error, by its code.
func hints() map[string]string {
	return map[string]string{
		"AccessDeniedException":       "grant that role or user the permission; docs/ecs.md lists the required ones",
		"ClusterNotFoundException":    "create the cluster, or correct its name or region in the runtime",
		"ExpiredTokenException":       "the credentials have expired",
		"UnrecognizedClientException": "the credentials are not accepted",
		"InvalidSignatureException":   "the credentials are not accepted, or a clock is wrong",
		"ServiceNotActiveException":   "it is being deleted; it can be created again afterwards",
		"LimitExceededException":      "free or raise the quota of the account",
		"BlockedException":            "AWS has blocked the account",
		"PlatformUnknownException":    "the platform version does not exist",
		"UnsupportedFeatureException": "this region or cluster does not support it",
		"ServerException":             "ECS has an internal error",
	}
}

// isPermanent reports whether ECS rejected the content of a request. Temporary refusals have the same code: a service that drains,
// reads that lag, a role that was just created.
func isPermanent(err error) bool {
	switch codeOf(err) {
	case "InvalidParameterException", "ClientException", "UnsupportedFeatureException", "PlatformUnknownException", "PlatformTaskDefinitionIncompatibilityException":
	default:
		return false
	}
	for _, temporary := range []string{"still Draining", "was not idempotent", "service linked role", "Unable to assume", "inactive", "does not exist", "not found"} {
		if strings.Contains(err.Error(), temporary) {
			return false
		}
	}
	return true
}

// shortMessage drops the SDK's context of an error: the operation, the id of the request.
func shortMessage(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return strings.Join(strings.Fields(api.ErrorCode()+": "+api.ErrorMessage()), " ")
	}
	var at *url.Error
	if errors.As(err, &at) {
		return at.Err.Error()
	}
	return err.Error()
}

// readingError says why a reading failed. A cancellation says nothing about ECS and stays as it is.
func readingError(action string, err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", action, err)
	}
	text := action + ": " + shortMessage(err)
	if hint := hints()[codeOf(err)]; hint != "" {
		text += " (" + hint + ")"
	}
	code := readingCode(err)
	return &entities.ReadingError{Code: code, Message: text, Throttled: code == codeThrottled, NoAnswer: runtimes.IsNoAnswer(code)}
}

func readingCode(err error) string {
	var (
		limited *rateLimitError
		api     smithy.APIError
		network net.Error
	)
	switch code := codeOf(err); {
	case errors.As(err, &limited):
		return codeThrottled
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return runtimes.CodeTimeout
	case code == "AccessDeniedException":
		return runtimes.CodeForbidden
	case code == "ExpiredTokenException", code == "UnrecognizedClientException", code == "InvalidSignatureException", code == "MissingAuthenticationTokenException":
		return runtimes.CodeUnauthorized
	case code == "ClusterNotFoundException":
		return runtimes.CodeUnreachable
	case errors.As(err, &network) && !errors.As(err, &api):
		return runtimes.CodeUnreachable
	}
	return runtimes.CodeFetchFailed
}
