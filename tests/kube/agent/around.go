package agent

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// classPending is a storage class whose claims stay pending.
const classPending = "pending"

// playAround plays what clouds do for pods: a claim is bound at once, a Service of type LoadBalancer gets an address,
// and one that is annotated so gets a port on this machine (listen.go).
func (a *agent) playAround(ctx context.Context, factory informers.SharedInformerFactory) error {
	_, err := factory.Core().V1().PersistentVolumeClaims().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { a.bindClaim(ctx, object.(*corev1.PersistentVolumeClaim)) },
	})
	if err != nil {
		return err
	}
	doors := &doors{agent: a, open: map[types.UID]door{}}
	_, err = factory.Core().V1().Services().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			a.balance(ctx, object.(*corev1.Service))
			doors.see(ctx, object.(*corev1.Service))
		},
		UpdateFunc: func(_, object any) {
			a.balance(ctx, object.(*corev1.Service))
			doors.see(ctx, object.(*corev1.Service))
		},
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			doors.close(object.(*corev1.Service).UID)
		},
	})
	return err
}

// bindClaim makes a claim bound, without a volume: the folder that processes get is made with the first of them.
func (a *agent) bindClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	class := claim.Spec.StorageClassName
	if claim.Status.Phase != corev1.ClaimPending || class != nil && *class == classPending {
		return
	}
	patch, err := statusPatch(corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests,
	})
	if err == nil {
		_, err = a.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	a.complainOf("bind claim", claim, err)
}

func (a *agent) balance(ctx context.Context, service *corev1.Service) {
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer || len(service.Status.LoadBalancer.Ingress) > 0 {
		return
	}
	patch, err := statusPatch(corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{
		Ingress: []corev1.LoadBalancerIngress{{IP: nodeAddress}},
	}})
	if err == nil {
		_, err = a.client.CoreV1().Services(service.Namespace).Patch(ctx, service.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	a.complainOf("balance service", service, err)
}

func statusPatch(status any) ([]byte, error) { return json.Marshal(map[string]any{"status": status}) }

func (a *agent) complainOf(what string, object metav1.Object, err error) {
	if err != nil && !apierrors.IsNotFound(err) {
		fmt.Fprintf(a.errors, "%s %s/%s: %v\n", what, object.GetNamespace(), object.GetName(), err)
	}
}
