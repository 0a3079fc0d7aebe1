package controller

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

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Define makes kinds known to a cluster from a folder of their definitions (public.Set), and returns when they are served.
func Define(ctx context.Context, client dynamic.Interface, folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return err
	}
	defined := 0
	for _, file := range files {
		kind, err := read(file)
		if err == nil && kind.GetKind() == "CustomResourceDefinition" {
			defined++
			err = define(ctx, client.Resource(definitions), kind)
		}
		if err != nil {
			return fmt.Errorf("define the kind of %s: %w", filepath.Base(file), err)
		}
	}
	if defined == 0 {
		return fmt.Errorf("no definitions of kinds in %s", folder)
	}
	return nil
}

func read(file string) (*unstructured.Unstructured, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	kind := &unstructured.Unstructured{}
	return kind, yaml.Unmarshal(text, &kind.Object)
}

func define(ctx context.Context, at dynamic.ResourceInterface, kind *unstructured.Unstructured) error {
	if _, err := at.Create(ctx, kind, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
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
