package config

// AnnotationTool is argocd or flux.
type AnnotationTool string

// Values lists the allowed values.
func (AnnotationTool) Values() []string { return []string{"argocd", "flux"} }
