package kubernetes

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// makeHome makes the namespace of the instance when that was asked for and a trial found that it is
// not there. It carries no labels of ours: services may share it, and nobody removes it.
func (a *apply) makeHome(ctx context.Context, trials []*trial) error {
	wanting := func(t *trial) bool { return t.outcome == tooEarly && t.GetNamespace() == a.home }
	if !a.makes || !slices.ContainsFunc(trials, wanting) {
		return nil
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.home}}
	_, err := a.clients.typed.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{FieldManager: FieldManager})
	if apierrors.IsAlreadyExists(err) { // another service was faster
		return nil
	}
	if err != nil {
		return explain(ctx, "make namespace "+a.home, err)
	}
	a.told.say("made namespace %s", a.home)
	return nil
}
