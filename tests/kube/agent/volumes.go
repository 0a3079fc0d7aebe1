package agent

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tokenVolume begins the names of the volumes that the API server adds for a service account's token.
const tokenVolume = "kube-api-access-"

// mount waits until the ConfigMaps and Secrets that volumes need are there, and writes them for processes. They are
// written once: a later change of theirs reaches no running process.
func (r *run) mount(ctx context.Context) bool {
	for i := range r.pod.Spec.Volumes {
		volume := &r.pod.Spec.Volumes[i]
		if strings.HasPrefix(volume.Name, tokenVolume) && !runsProcesses(r.pod) {
			continue
		}
		for reported := ""; ; {
			err := r.mountOne(ctx, volume)
			if err == nil {
				break
			}
			if err.Error() != reported && ctx.Err() == nil {
				reported = err.Error()
				r.kubelet.Event(r.pod, corev1.EventTypeWarning, "FailedMount", fmt.Sprintf("MountVolume.SetUp failed for volume %q : %s", volume.Name, reported))
			}
			if !pause(ctx, retryConfig) {
				return false
			}
		}
	}
	return true
}

func (r *run) mountOne(ctx context.Context, volume *corev1.Volume) error {
	content, err := r.content(ctx, volume)
	if err != nil || !runsProcesses(r.pod) {
		return err
	}
	dir := r.volumeDir(volume)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range sortedKeys(content) {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("path %q leads out of the volume", name)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, content[name], 0o600); err != nil {
			return err
		}
	}
	return nil
}

// volumeDir is where a volume's content lies: that of a claim beside the pods, so that it outlives them.
func (r *run) volumeDir(volume *corev1.Volume) string {
	if claim := volume.PersistentVolumeClaim; claim != nil {
		return filepath.Join(r.agent.dir, ".claims", r.pod.Namespace, claim.ClaimName)
	}
	return filepath.Join(r.dir, "volumes", volume.Name)
}

// content is what a volume holds at first, by path. Volumes of kinds not named here are empty folders.
func (r *run) content(ctx context.Context, volume *corev1.Volume) (map[string][]byte, error) {
	switch {
	case volume.ConfigMap != nil:
		v := volume.ConfigMap
		data, err := r.configMap(ctx, v.Name, v.Optional)
		return items(data, v.Items, v.Optional, err)
	case volume.Secret != nil:
		v := volume.Secret
		data, err := r.secret(ctx, v.SecretName, v.Optional)
		return items(data, v.Items, v.Optional, err)
	case volume.DownwardAPI != nil:
		return r.downward(volume.DownwardAPI.Items)
	case volume.Projected != nil:
		all := map[string][]byte{}
		for _, source := range volume.Projected.Sources {
			part, err := r.projection(ctx, source)
			if err != nil {
				return nil, err
			}
			maps.Copy(all, part)
		}
		return all, nil
	default:
		return nil, nil
	}
}

func (r *run) projection(ctx context.Context, source corev1.VolumeProjection) (map[string][]byte, error) {
	switch {
	case source.ConfigMap != nil:
		data, err := r.configMap(ctx, source.ConfigMap.Name, source.ConfigMap.Optional)
		return items(data, source.ConfigMap.Items, source.ConfigMap.Optional, err)
	case source.Secret != nil:
		data, err := r.secret(ctx, source.Secret.Name, source.Secret.Optional)
		return items(data, source.Secret.Items, source.Secret.Optional, err)
	case source.DownwardAPI != nil:
		return r.downward(source.DownwardAPI.Items)
	case source.ServiceAccountToken != nil:
		return r.token(ctx, source.ServiceAccountToken)
	default:
		return nil, nil
	}
}

// items picks keys and gives them paths; without any, all keys are files.
func items(data map[string][]byte, picked []corev1.KeyToPath, optional *bool, err error) (map[string][]byte, error) {
	if err != nil || len(picked) == 0 {
		return data, err
	}
	files := map[string][]byte{}
	for _, item := range picked {
		value, found := data[item.Key]
		if !found && !isTrue(optional) {
			return nil, fmt.Errorf("references non-existent config key: %s", item.Key)
		}
		if found {
			files[item.Path] = value
		}
	}
	return files, nil
}

func (r *run) downward(fields []corev1.DownwardAPIVolumeFile) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, f := range fields {
		var value string
		var err error
		if f.FieldRef != nil {
			value, err = r.field(f.FieldRef.FieldPath)
		} else {
			value, err = r.resource(f.ResourceFieldRef, nil)
		}
		if err != nil {
			return nil, err
		}
		files[f.Path] = []byte(value)
	}
	return files, nil
}

func (r *run) token(ctx context.Context, source *corev1.ServiceAccountTokenProjection) (map[string][]byte, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: r.pod.Name, UID: r.pod.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	account := r.pod.Spec.ServiceAccountName
	got, err := r.client.CoreV1().ServiceAccounts(r.pod.Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token of service account %s: %w", account, err)
	}
	return map[string][]byte{source.Path: []byte(got.Status.Token)}, nil
}
