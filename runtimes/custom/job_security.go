package custom

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/converge-engine/converge/entities"
)

// withOurs are the labels of a definition with our own, which override them.
func withOurs(theirs, ours map[string]string) map[string]string {
	all := maps.Clone(theirs)
	if all == nil {
		return ours
	}
	maps.Copy(all, ours)
	return all
}

// podSecurity is the security context of pods in a definition; nil if it has none.
func podSecurity(of *entities.PodSecurity) *corev1.PodSecurityContext {
	if of == nil {
		return nil
	}
	may := &corev1.PodSecurityContext{
		RunAsNonRoot: of.RunAsNonRoot, RunAsUser: of.RunAsUser, RunAsGroup: of.RunAsGroup, FSGroup: of.FSGroup, SupplementalGroups: of.SupplementalGroups,
	}
	if of.SeccompProfile != "" {
		may.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileType(of.SeccompProfile)}
	}
	return may
}

// containerSecurity is the security context of the container in a definition; nil if it has none.
func containerSecurity(of *entities.ContainerSecurity) *corev1.SecurityContext {
	if of == nil {
		return nil
	}
	may := &corev1.SecurityContext{
		RunAsNonRoot: of.RunAsNonRoot, RunAsUser: of.RunAsUser, RunAsGroup: of.RunAsGroup, AllowPrivilegeEscalation: new(of.AllowPrivilegeEscalation),
	}
	if of.ReadOnlyRootFilesystem {
		may.ReadOnlyRootFilesystem = new(true)
	}
	if len(of.DropCapabilities)+len(of.AddCapabilities) > 0 {
		may.Capabilities = &corev1.Capabilities{Drop: capabilities(of.DropCapabilities), Add: capabilities(of.AddCapabilities)}
	}
	return may
}

func capabilities(names []string) (all []corev1.Capability) {
	for _, name := range names {
		all = append(all, corev1.Capability(name))
	}
	return all
}
