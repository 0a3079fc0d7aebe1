package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// environ is what a container's environment declares. What it refers to and is not there is an error in a kubelet's
// words: the container waits with it.
func (r *run) environ(ctx context.Context, c *corev1.Container) (map[string]string, error) {
	env := map[string]string{}
	for _, from := range c.EnvFrom {
		values, err := r.envFrom(ctx, from)
		if err != nil {
			return nil, err
		}
		for name, value := range values {
			env[from.Prefix+name] = value
		}
	}
	for _, e := range c.Env {
		value, set, err := r.envValue(ctx, c, e, env)
		if err != nil {
			return nil, err
		}
		if set {
			env[e.Name] = value
		}
	}
	return env, nil
}

func (r *run) envFrom(ctx context.Context, from corev1.EnvFromSource) (map[string]string, error) {
	switch {
	case from.ConfigMapRef != nil:
		return textOf(r.configMap(ctx, from.ConfigMapRef.Name, from.ConfigMapRef.Optional))
	case from.SecretRef != nil:
		return textOf(r.secret(ctx, from.SecretRef.Name, from.SecretRef.Optional))
	default:
		return nil, nil
	}
}

func (r *run) envValue(ctx context.Context, c *corev1.Container, e corev1.EnvVar, before map[string]string) (value string, set bool, err error) {
	from := e.ValueFrom
	switch {
	case from == nil:
		return expansion.Expand(e.Value, expansion.MappingFuncFor(before)), true, nil
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		data, err := r.configMap(ctx, ref.Name, ref.Optional)
		return keyOf(data, ref.Key, ref.Optional, "ConfigMap "+r.pod.Namespace+"/"+ref.Name, err)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		data, err := r.secret(ctx, ref.Name, ref.Optional)
		return keyOf(data, ref.Key, ref.Optional, "Secret "+r.pod.Namespace+"/"+ref.Name, err)
	case from.FieldRef != nil:
		value, err := r.field(from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err := r.resource(from.ResourceFieldRef, c)
		return value, true, err
	default:
		return "", false, nil
	}
}

func keyOf(data map[string][]byte, key string, optional *bool, where string, err error) (string, bool, error) {
	if err != nil {
		return "", false, err
	}
	value, found := data[key]
	if !found && !isTrue(optional) {
		return "", false, fmt.Errorf("couldn't find key %s in %s", key, where)
	}
	return string(value), found, nil
}

// field is a downward API value. Addresses are those that a process can use.
func (r *run) field(path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return r.pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return r.pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return nodeAddress, nil
	case "status.podIP", "status.podIPs":
		return r.loopback, nil
	default:
		return fieldpath.ExtractFieldPathAsString(r.pod, path)
	}
}

func (r *run) resource(ref *corev1.ResourceFieldSelector, c *corev1.Container) (string, error) {
	if ref.ContainerName != "" {
		return resourcehelper.ExtractResourceValueByContainerName(ref, r.pod, ref.ContainerName)
	}
	return resourcehelper.ExtractContainerResourceValue(ref, c)
}

// configMap returns the data of a ConfigMap in the pod's namespace; none when it is optional and absent.
func (r *run) configMap(ctx context.Context, name string, optional *bool) (map[string][]byte, error) {
	got, err := r.client.CoreV1().ConfigMaps(r.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, absent("configmap", name, optional, err)
	}
	data := map[string][]byte{}
	for key, value := range got.Data {
		data[key] = []byte(value)
	}
	maps.Copy(data, got.BinaryData)
	return data, nil
}

func (r *run) secret(ctx context.Context, name string, optional *bool) (map[string][]byte, error) {
	got, err := r.client.CoreV1().Secrets(r.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, absent("secret", name, optional, err)
	}
	return got.Data, nil
}

// absent is nil for what may be absent and is.
func absent(kind, name string, optional *bool, err error) error {
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("get %s %q: %w", kind, name, err)
	}
	if isTrue(optional) {
		return nil
	}
	return fmt.Errorf("%s %q not found", kind, name)
}

func textOf(data map[string][]byte, err error) (map[string]string, error) {
	text := make(map[string]string, len(data))
	for key, value := range data {
		text[key] = string(value)
	}
	return text, err
}

func isTrue(b *bool) bool { return b != nil && *b }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
