package kubernetes

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/runtimes"
)

// This file creates the namespace of the instance, if the payload asks for it. It carries no labels of ours: services may share it, and
// Converge never removes it.

// needsNamespace reports whether one of the trials found the namespace of the instance missing.
func (a *apply) needsNamespace(trials []*trial) bool {
	return a.createNS && slices.ContainsFunc(trials, func(t *trial) bool {
		return t.outcome == prerequisiteMissing && t.GetNamespace() == a.namespace
	})
}

// createNamespace creates the namespace of the instance.
func (a *apply) createNamespace(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: a.namespaceMeta}
	_, err := a.clients.typed.Namespaces().Create(ctx, namespace, metav1.CreateOptions{FieldManager: FieldManager})
	if apierrors.IsAlreadyExists(err) { // another service was faster
		return nil
	}
	if err != nil {
		return explain(ctx, "create namespace "+a.namespace, err)
	}
	a.log.add("created namespace %s", a.namespace)
	return nil
}

// namespaceChange is the creation of the namespace in the form of a plan: nil if it exists, or if this worker may not find out.
func (a *apply) namespaceChange(ctx context.Context, trials []*trial) []runtimes.Change {
	creation := []runtimes.Change{{Action: runtimes.ActionCreate, Type: kindNamespace.Kind, Name: a.namespace, Message: "createNamespace"}}
	if !a.createNS || slices.ContainsFunc(trials, a.isNewNamespace) {
		return nil
	}
	if a.needsNamespace(trials) {
		return creation
	}
	if _, err := a.clients.typed.Namespaces().Get(ctx, a.namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return creation
	}
	return nil
}
