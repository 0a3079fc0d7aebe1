package kubernetes

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/expression"
	"github.com/converge-engine/converge/runtimes"
)

// healthRules are the expressions of a runtime, by kind (H3).
type healthRules map[schema.GroupKind]*expression.Health

func newHealthRules(def entities.RuntimeDefinition) (healthRules, error) {
	rules := healthRules{}
	var wrong []error
	for _, rule := range def.Kubernetes.Health {
		compiled, faults := expression.NewHealth(rule)
		for _, field := range entities.SortedKeys(faults) {
			wrong = append(wrong, fmt.Errorf("runtime %s: health of %s, %s: %w", def.Name, rule.Kind, field, faults[field]))
		}
		rules[schema.GroupKind{Group: rule.Group, Kind: rule.Kind}] = compiled
	}
	return rules, errors.Join(wrong...)
}

// health evaluates an object by the runtime's expressions for its kind, or by the built-in rules. An expression without a result is
// an error of the reading: the health is then unknown.
func (r *Runtime) health(ctx context.Context, o *unstructured.Unstructured) (judgement, error) {
	rule := r.rules[o.GroupVersionKind().GroupKind()]
	if rule == nil || o.GetDeletionTimestamp() != nil {
		return judge(o), nil
	}
	if stale := unobserved(o); stale != "" {
		return pending("%s", stale), nil
	}
	result, err := rule.Of(ctx, o.Object)
	if err != nil && ctx.Err() != nil {
		return judgement{}, ctx.Err()
	}
	if err != nil {
		return judgement{}, &entities.ReadingError{Code: runtimes.CodeHealth, Message: fmt.Sprintf("%s: runtime %s: %v", idOf(o), r.def.Name, err)}
	}
	return expressionJudgement(o, result), nil
}

// expressionJudgement is the verdict of the runtime's expressions, with the object's own message.
func expressionJudgement(o *unstructured.Unstructured, result expression.Verdict) judgement {
	reason := entities.Because(conditionOf(o, "Ready").text())
	switch result {
	case expression.HealthCurrent:
		return succeeded("%s is current", o.GetKind())
	case expression.HealthFailed:
		return failed("%s has failed%s", o.GetKind(), reason)
	case expression.HealthSuspended:
		return suspended("suspended", "%s is suspended%s", o.GetKind(), reason)
	}
	return pending("%s is in progress%s", o.GetKind(), reason)
}
