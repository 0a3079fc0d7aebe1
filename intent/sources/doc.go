// Package sources reads what services on Kubernetes runtimes are made of: manifests, kustomizations and Helm
// charts, each once, as objects that know where they are declared.
//
// It is hermetic: no cluster, no clock, no randomness, no network but for a chart that is pinned by its
// digest. It reads only below the file system that it is given, refuses what leads out of it, and fills in
// nothing. Of intent it imports config and bundle.
package sources

// Text is one rendered file: YAML documents.
type Text struct {
	Name string // of the template or kustomization it comes from
	Data []byte
}

// MaxTree bounds the bytes of one source, all its files together.
const MaxTree = 32 << 20
