package config

// JobPodSecurity is the security context of the pods of Jobs, a part of Kubernetes' PodSecurityContext.
type JobPodSecurity struct {
	// Whether an image that would run as root is rejected.
	RunAsNonRoot *bool `json:"runAsNonRoot,omitempty"`
	// The user that runs the command; by default that of the image.
	RunAsUser *int `json:"runAsUser,omitempty" jsonschema:"minimum=0"`
	// Its primary group.
	RunAsGroup *int `json:"runAsGroup,omitempty" jsonschema:"minimum=0"`
	// The group that owns volumes.
	FSGroup *int `json:"fsGroup,omitempty" jsonschema:"minimum=0"`
	// Additional groups.
	SupplementalGroups []int `json:"supplementalGroups,omitempty"`
	// The seccomp profile.
	SeccompProfile SeccompProfile `json:"seccompProfile,omitempty" jsonschema:"default=RuntimeDefault"`
}

// JobSecurity is the security context of the container of a Job, a part of Kubernetes' SecurityContext.
type JobSecurity struct {
	// Whether an image that would run as root is rejected.
	RunAsNonRoot *bool `json:"runAsNonRoot,omitempty"`
	// The user that runs the command; by default that of the pod.
	RunAsUser *int `json:"runAsUser,omitempty" jsonschema:"minimum=0"`
	// Its primary group.
	RunAsGroup *int `json:"runAsGroup,omitempty" jsonschema:"minimum=0"`
	// Whether a process may gain more privileges than its parent.
	AllowPrivilegeEscalation *bool `json:"allowPrivilegeEscalation,omitempty" jsonschema:"default=false"`
	// Whether the container's root file system is read-only.
	ReadOnlyRootFilesystem *bool `json:"readOnlyRootFilesystem,omitempty" jsonschema:"default=false"`
	// Capabilities to drop and to add.
	Capabilities *JobCapabilities `json:"capabilities,omitempty"`
}

// JobCapabilities are names without CAP_, or ALL.
type JobCapabilities struct {
	// Capabilities to drop.
	Drop []string `json:"drop,omitempty"`
	// Capabilities to add.
	Add []string `json:"add,omitempty"`
}

// SeccompProfile is RuntimeDefault or Unconfined.
type SeccompProfile string

// Values lists the allowed values.
func (SeccompProfile) Values() []string { return []string{"RuntimeDefault", "Unconfined"} }
