package main

import (
	"context"
	"io"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/converge-engine/converge/tests/kubetest/controller"
	"github.com/converge-engine/converge/tests/kubetest/public"
	"github.com/converge-engine/converge/tests/kubetest/rollouts"
)

// argoRollouts is the controller of Argo Rollouts (make rollouts), and a Rollout for each service.
func argoRollouts() peerKind {
	return peerKind{rollouts.Program(), func(ctx context.Context, _ *bench, s *stand) ([]*peer, error) {
		if err := controller.Define(ctx, s.client, public.Rollouts().Path(s.root)); err != nil {
			return nil, err
		}
		on, err := s.at(ctx, "argo")
		if err != nil {
			return nil, err
		}
		at := s.client.Resource(rollouts.Resource).Namespace(on.name)
		in := func(setting string, arguments ...string) *peer {
			return &peer{
				name: "Argo Rollouts " + public.Rollouts().Version + setting,
				start: func(log io.Writer) (*controller.Controller, error) {
					return rollouts.Start(rollouts.Options{
						Program: rollouts.Program().Path(s.root), Kubeconfig: s.lab.kubeconfig, Log: log, Arguments: arguments,
					})
				},
				declare: func(ctx context.Context, service, version string) error {
					o, err := rolloutOf(service, version)
					if err == nil {
						_, err = at.Apply(ctx, service, o, metav1.ApplyOptions{FieldManager: "bench"})
					}
					return err
				},
				at: at, done: rolledOut,
			}
		}
		return []*peer{in(""), in(", its client unlimited", "--qps=-1")}, nil
	}}
}

// rolloutOf is the Deployment of a service as a Rollout. A canary without steps is a rolling update, with the bounds of a
// Deployment.
func rolloutOf(service, version string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(deploymentOf(service, version)), &o.Object); err != nil {
		return nil, err
	}
	o.SetAPIVersion(rollouts.Resource.GroupVersion().String())
	o.SetKind("Rollout")
	return o, unstructured.SetNestedMap(o.Object, map[string]any{}, "spec", "strategy", "canary")
}

// deploymentOf is what Converge makes of the Deployment for a service.
func deploymentOf(service, version string) string {
	return strings.NewReplacer("${{ service }}", service, "${{ version }}", version, "${{ params.greeting }}", "hello").Replace(deployment)
}

// rolledOut says that the controller has seen the newest spec, and that nothing runs but its one replica, ready.
func rolledOut(o *unstructured.Unstructured, version string) bool {
	status, _, _ := unstructured.NestedMap(o.Object, "status")
	for _, field := range []string{"replicas", "updatedReplicas", "availableReplicas"} {
		if n, _ := status[field].(int64); n != 1 {
			return false
		}
	}
	return imageOf(o) == image(version) && status["phase"] == "Healthy" &&
		status["observedGeneration"] == strconv.FormatInt(o.GetGeneration(), 10) && status["currentPodHash"] == status["stableRS"]
}
