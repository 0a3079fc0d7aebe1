package job

import corev1 "k8s.io/api/core/v1"

// podSecurity is the security context of the pod: the default seccomp profile of the container runtime, unless the request has
// another.
func (r Request) podSecurity() *corev1.PodSecurityContext {
	security := &corev1.PodSecurityContext{}
	if r.PodSecurity != nil {
		security = r.PodSecurity.DeepCopy()
	}
	if security.SeccompProfile == nil {
		security.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	return security
}

// security is the security context of the container: no process gains more rights than its parent, unless the request allows it.
func (r Request) security() *corev1.SecurityContext {
	security := &corev1.SecurityContext{}
	if r.Security != nil {
		security = r.Security.DeepCopy()
	}
	if security.AllowPrivilegeEscalation == nil {
		security.AllowPrivilegeEscalation = new(false)
	}
	return security
}

func (r Request) pullSecrets() (secrets []corev1.LocalObjectReference) {
	for _, name := range r.PullSecrets {
		secrets = append(secrets, corev1.LocalObjectReference{Name: name})
	}
	return secrets
}
