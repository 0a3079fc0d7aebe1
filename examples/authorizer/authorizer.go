// Package authorizer is an example of an authorizer for your own Temporal server, so that the server does not treat every caller as an
// administrator. People and CI may signal, update, query and read. Workers may do what workers need. Callers without proof of identity
// may do nothing. Your own program passes it to the server with temporal.WithAuthorizer and temporal.WithClaimMapper
// (docs/temporal.md).
package authorizer

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/server/common/api"
	"go.temporal.io/server/common/authorization"

	"github.com/converge-engine/converge/entities/protocol"
)

// Mapper derives a caller's claims from its token: an OIDC ID token whose claim "roles" names people, workers, or both.
type Mapper struct {
	Verifier  *oidc.IDTokenVerifier
	Namespace string
}

// GetClaims implements authorization.ClaimMapper.
func (m Mapper) GetClaims(a *authorization.AuthInfo) (*authorization.Claims, error) {
	scheme, raw, _ := strings.Cut(a.AuthToken, " ")
	if !strings.EqualFold(scheme, "bearer") {
		return nil, errors.New("expected a bearer token")
	}
	token, err := m.Verifier.Verify(context.Background(), raw)
	if err != nil {
		return nil, err
	}
	var own struct {
		Roles []string `json:"roles"`
	}
	if err := token.Claims(&own); err != nil {
		return nil, err
	}
	role := authorization.RoleUndefined
	if slices.Contains(own.Roles, "people") {
		role |= authorization.RoleReader
	}
	if slices.Contains(own.Roles, "workers") {
		role |= authorization.RoleReader | authorization.RoleWorker
	}
	return &authorization.Claims{Subject: token.Subject, AuthType: "jwt", Namespaces: map[string]authorization.Role{m.Namespace: role}}, nil
}

// Authorizer allows callers what their role needs. It allows the server's own internal calls: let them arrive only on the internal
// frontend.
type Authorizer struct{}

// Authorize implements authorization.Authorizer.
func (Authorizer) Authorize(_ context.Context, caller *authorization.Claims, target *authorization.CallTarget) (authorization.Result, error) {
	decision := authorization.DecisionDeny
	if allowed(caller, target) {
		decision = authorization.DecisionAllow
	}
	return authorization.Result{Decision: decision}, nil
}

func allowed(caller *authorization.Claims, target *authorization.CallTarget) bool {
	switch {
	case authorization.IsHealthCheckAPI(target.APIName):
		return true
	case caller == nil:
		return false
	case caller.System == authorization.RoleAdmin:
		return true
	}
	role, method := caller.Namespaces[target.Namespace], api.GetMethodMetadata(target.APIName)
	switch {
	case method.Scope != api.ScopeNamespace:
		return false
	case role&authorization.RoleWorker != 0:
		return method.Access != api.AccessAdmin || strings.HasSuffix(target.APIName, "/AddSearchAttributes")
	case role&authorization.RoleReader != 0:
		return method.Access == api.AccessReadOnly || acts(target)
	}
	return false
}

// acts reports whether a call is one with which people act. The rules of Converge decide about its effect.
func acts(target *authorization.CallTarget) bool {
	switch r := target.Request.(type) {
	case *workflowservice.SignalWorkflowExecutionRequest, *workflowservice.UpdateWorkflowExecutionRequest:
		return true
	case *workflowservice.StartWorkflowExecutionRequest:
		return starts(r)
	case *workflowservice.ExecuteMultiOperationRequest: // an update, together with the start of its workflow
		return !slices.ContainsFunc(r.GetOperations(), func(o *workflowservice.ExecuteMultiOperationRequest_Operation) bool {
			return o.GetUpdateWorkflow() == nil && !starts(o.GetStartWorkflow())
		})
	case *workflowservice.RequestCancelWorkflowExecutionRequest: // only previews react to it
		return strings.HasPrefix(r.GetWorkflowExecution().GetWorkflowId(), "preview/")
	}
	return false
}

// prefixes are the id prefixes of the workflows that people start, by type.
var prefixes = map[string]string{
	protocol.ApplicationWorkflow: "application/", protocol.RuntimeWorkflow: "runtime/", protocol.PreviewWorkflow: "preview/",
	protocol.PlanWorkflow: "plan/",
}

// starts reports whether a start is safe: it terminates no run, it does not reserve an id that workers need, and people may start its
// type.
func starts(r *workflowservice.StartWorkflowExecutionRequest) bool {
	prefix := prefixes[r.GetWorkflowType().GetName()]
	switch {
	case prefix == "" || !strings.HasPrefix(r.GetWorkflowId(), prefix), r.GetTaskQueue().GetName() != protocol.TaskQueue:
		return false
	case r.GetWorkflowIdConflictPolicy() == enums.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING,
		r.GetWorkflowIdReusePolicy() == enums.WORKFLOW_ID_REUSE_POLICY_TERMINATE_IF_RUNNING: //nolint:staticcheck // it still works
		return false
	case prefix != "preview/" && r.GetWorkflowExecutionTimeout().AsDuration()+r.GetWorkflowRunTimeout().AsDuration() != 0:
		return false
	}
	return r.GetCronSchedule() == "" && r.GetRetryPolicy() == nil && r.GetVersioningOverride() == nil
}
