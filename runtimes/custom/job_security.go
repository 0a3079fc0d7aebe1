package custom

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/converge-engine/converge/entities"
)

// mergeLabels are the labels of a definition with our own, which override them.
func mergeLabels(base, overrides map[string]string) map[string]string {
	all := maps.Clone(base)
	if all == nil {
		return overrides
	}
	maps.Copy(all, overrides)
	return all
}

// podSecurity is the security context of pods in a definition; nil if it has none.
func podSecurity(spec *entities.PodSecurity) *corev1.PodSecurityContext {
	if spec == nil {
		return nil
	}
	security := &corev1.PodSecurityContext{
		RunAsNonRoot: spec.RunAsNonRoot, RunAsUser: spec.RunAsUser, RunAsGroup: spec.RunAsGroup, FSGroup: spec.FSGroup, SupplementalGroups: spec.SupplementalGroups,
	}
	if spec.SeccompProfile != "" {
		security.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileType(spec.SeccompProfile)}
	}
	return security
}

// containerSecurity is the security context of the container in a definition; nil if it has none.
func containerSecurity(spec *entities.ContainerSecurity) *corev1.SecurityContext {
	if spec == nil {
		return nil
	}
	security := &corev1.SecurityContext{
		RunAsNonRoot: spec.RunAsNonRoot, RunAsUser: spec.RunAsUser, RunAsGroup: spec.RunAsGroup, AllowPrivilegeEscalation: new(spec.AllowPrivilegeEscalation),
	}
	if spec.ReadOnlyRootFilesystem {
		security.ReadOnlyRootFilesystem = new(true)
	}
	if len(spec.DropCapabilities)+len(spec.AddCapabilities) > 0 {
		security.Capabilities = &corev1.Capabilities{Drop: capabilities(spec.DropCapabilities), Add: capabilities(spec.AddCapabilities)}
	}
	return security
}

func capabilities(names []string) (all []corev1.Capability) {
	for _, name := range names {
		all = append(all, corev1.Capability(name))
	}
	return all
}
