package config

// JobPodSecurity is what the pods of Jobs may, as in Kubernetes: a part of its PodSecurityContext.
type JobPodSecurity struct {
	// Whether an image that would run as root is refused.
	RunAsNonRoot *bool `json:"runAsNonRoot,omitempty"`
	// The user that the command runs as; that of the image when not given.
	RunAsUser *int `json:"runAsUser,omitempty" jsonschema:"minimum=0"`
	// Its primary group.
	RunAsGroup *int `json:"runAsGroup,omitempty" jsonschema:"minimum=0"`
	// The group that owns volumes.
	FSGroup *int `json:"fsGroup,omitempty" jsonschema:"minimum=0"`
	// Further groups.
	SupplementalGroups []int `json:"supplementalGroups,omitempty"`
	// The seccomp profile.
	SeccompProfile SeccompProfile `json:"seccompProfile,omitempty" jsonschema:"default=RuntimeDefault"`
}

// JobSecurity is what the container of a Job may, as in Kubernetes: a part of its SecurityContext.
type JobSecurity struct {
	// Whether an image that would run as root is refused.
	RunAsNonRoot *bool `json:"runAsNonRoot,omitempty"`
	// The user that the command runs as; that of the pod when not given.
	RunAsUser *int `json:"runAsUser,omitempty" jsonschema:"minimum=0"`
	// Its primary group.
	RunAsGroup *int `json:"runAsGroup,omitempty" jsonschema:"minimum=0"`
	// Whether a process may gain more rights than its parent.
	AllowPrivilegeEscalation *bool `json:"allowPrivilegeEscalation,omitempty" jsonschema:"default=false"`
	// Whether the container's own files can only be read.
	ReadOnlyRootFilesystem *bool `json:"readOnlyRootFilesystem,omitempty" jsonschema:"default=false"`
	// Capabilities that are taken away and given.
	Capabilities *JobCapabilities `json:"capabilities,omitempty"`
}

// JobCapabilities are names without CAP_, or ALL.
type JobCapabilities struct {
	// Those that are taken away.
	Drop []string `json:"drop,omitempty"`
	// Those that are given.
	Add []string `json:"add,omitempty"`
}

// SeccompProfile is RuntimeDefault or Unconfined.
type SeccompProfile string

// Values lists what may stand in the file.
func (SeccompProfile) Values() []string { return []string{"RuntimeDefault", "Unconfined"} }
