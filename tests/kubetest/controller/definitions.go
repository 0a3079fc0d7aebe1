package rollouts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// Resource is that of Rollouts.
var Resource = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Define makes the kinds of Argo Rollouts known to a cluster from the folder of their definitions (public.Rollouts), and
// returns when they are served. The controller does not begin without all of them.
func Define(ctx context.Context, client dynamic.Interface, folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*-crd.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no definitions of kinds in %s", folder)
	}
	for _, file := range files {
		if err := define(ctx, client.Resource(definitions), file); err != nil {
			return fmt.Errorf("define the kind of %s: %w", filepath.Base(file), err)
		}
	}
	return nil
}

func define(ctx context.Context, at dynamic.ResourceInterface, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	kind := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &kind.Object); err != nil {
		return err
	}
	if _, err := at.Create(ctx, kind, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		live, err := at.Get(ctx, kind.GetName(), metav1.GetOptions{})
		return err == nil && established(live), err
	})
	if wait.Interrupted(err) {
		return errors.Join(errors.New("the API server does not serve it yet"), err)
	}
	return err
}

func established(kind *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(kind.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, _ := c.(map[string]any); condition["type"] == "Established" {
			return condition["status"] == "True"
		}
	}
	return false
}
