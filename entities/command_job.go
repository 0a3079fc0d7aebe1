package entities

// PodSecurity is the security context of a Job's pods, as in Kubernetes.
type PodSecurity struct {
	RunAsNonRoot       *bool   `json:"runAsNonRoot,omitempty"`
	RunAsUser          *int64  `json:"runAsUser,omitempty"`
	RunAsGroup         *int64  `json:"runAsGroup,omitempty"`
	FSGroup            *int64  `json:"fsGroup,omitempty"`
	SupplementalGroups []int64 `json:"supplementalGroups,omitempty"`
	SeccompProfile     string  `json:"seccompProfile,omitempty"` // RuntimeDefault when empty
}

// ContainerSecurity is the security context of a Job's container, as in Kubernetes.
type ContainerSecurity struct {
	RunAsNonRoot             *bool    `json:"runAsNonRoot,omitempty"`
	RunAsUser                *int64   `json:"runAsUser,omitempty"`
	RunAsGroup               *int64   `json:"runAsGroup,omitempty"`
	AllowPrivilegeEscalation bool     `json:"allowPrivilegeEscalation,omitempty"`
	ReadOnlyRootFilesystem   bool     `json:"readOnlyRootFilesystem,omitempty"`
	DropCapabilities         []string `json:"dropCapabilities,omitempty"`
	AddCapabilities          []string `json:"addCapabilities,omitempty"`
}
