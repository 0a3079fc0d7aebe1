// Package sources turns a kustomization or a Helm chart into the texts of Kubernetes objects when
// compiling. It is hermetic: no cluster, no clock, no randomness, and no network but for a chart
// that is pinned by its digest.
//
// It reads only below the file system it is given, and refuses what leads out of it. It imports
// nothing of ours.
package sources

// Text is one rendered file: YAML documents.
type Text struct {
	Name string // of the template or kustomization it comes from
	Data []byte
}

// MaxTree bounds the bytes of one source, all its files together.
const MaxTree = 32 << 20
