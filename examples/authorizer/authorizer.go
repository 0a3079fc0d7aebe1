// Package authorizer is an example of what keeps a Temporal server of your own from taking everybody for an administrator: people
// and CI signal, update, query and read; workers do what workers do; nobody who is not proven does anything. A program of yours
// gives it to the server, with temporal.WithAuthorizer and temporal.WithClaimMapper (docs/operating.md).
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

// Mapper says of a caller what its token proves: an OIDC ID token whose claim "roles" names people, workers, or both.
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

// Authorizer lets callers do what their role has to. What the server asks of itself it lets pass: let that come over its
// internal frontend only.
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

// acts tells whether a call is one by which people act: what comes of it is judged by the rules of Converge.
func acts(target *authorization.CallTarget) bool {
	switch r := target.Request.(type) {
	case *workflowservice.SignalWorkflowExecutionRequest, *workflowservice.UpdateWorkflowExecutionRequest:
		return true
	case *workflowservice.StartWorkflowExecutionRequest:
		return starts(r)
	case *workflowservice.ExecuteMultiOperationRequest: // an update, and the start of what it is for
		return !slices.ContainsFunc(r.GetOperations(), func(o *workflowservice.ExecuteMultiOperationRequest_Operation) bool {
			return o.GetUpdateWorkflow() == nil && !starts(o.GetStartWorkflow())
		})
	case *workflowservice.RequestCancelWorkflowExecutionRequest: // of a preview: nothing else heeds it
		return strings.HasPrefix(r.GetWorkflowExecution().GetWorkflowId(), "preview/")
	}
	return false
}

// prefixes are those of the ids of what people start, by its type.
var prefixes = map[string]string{
	protocol.ApplicationWorkflow: "application/", protocol.RuntimeWorkflow: "runtime/", protocol.PreviewWorkflow: "preview/",
}

// starts tells whether a start ends nothing, keeps no id from the workers, and is of what people start.
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
