package flux

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Source serves what the Kustomizations of a namespace apply, as the source-controller of Flux does.
type Source struct {
	client       dynamic.Interface
	namespace    string
	url          string
	fieldManager metav1.ApplyOptions

	mu       sync.Mutex
	versions map[string][]byte // a packed archive, by its path
}

// NewSource serves on some port of the loopback interface until the context ends.
func NewSource(ctx context.Context, client dynamic.Interface, namespace string) (*Source, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Source{
		client: client, namespace: namespace, url: "http://" + listener.Addr().String(),
		fieldManager: metav1.ApplyOptions{FieldManager: "source"}, versions: map[string][]byte{},
	}
	server := &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return s, nil
}

func (s *Source) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	content, ok := s.versions[r.URL.Path]
	s.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(content) // a client that has gone requests it again
}

// Kustomize declares a Kustomization of that name, which applies what Publish gives the name, and prunes. Other fields of its spec are added.
func (s *Source) Kustomize(ctx context.Context, name string, fields map[string]any) error {
	spec := map[string]any{
		"interval": "1h", "path": "./", "prune": true, "targetNamespace": s.namespace,
		"sourceRef": map[string]any{"kind": "ExternalArtifact", "name": name},
	}
	maps.Copy(spec, fields)
	o := object(Kustomizations, "Kustomization", name)
	o.Object["spec"] = spec
	_, err := s.client.Resource(Kustomizations).Namespace(s.namespace).Apply(ctx, name, o, s.fieldManager)
	return err
}

func object(of schema.GroupVersionResource, kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": of.GroupVersion().String(), "kind": kind, "metadata": map[string]any{"name": name},
	}}
}

// Publish makes files the newest version of a name, by their paths.
func (s *Source) Publish(ctx context.Context, name, version string, files map[string]string) error {
	content, err := pack(files)
	if err != nil {
		return err
	}
	path := "/" + name + "/" + version + ".tar.gz"
	s.mu.Lock()
	s.versions[path] = content
	s.mu.Unlock()
	artifacts := s.client.Resource(ExternalArtifacts).Namespace(s.namespace)
	if _, err := artifacts.Apply(ctx, name, object(ExternalArtifacts, "ExternalArtifact", name), s.fieldManager); err != nil {
		return err
	}
	digest, now := fmt.Sprintf("sha256:%x", sha256.Sum256(content)), time.Now().UTC().Format(time.RFC3339)
	o := object(ExternalArtifacts, "ExternalArtifact", name)
	o.Object["status"] = map[string]any{
		"artifact": map[string]any{
			"digest": digest, "lastUpdateTime": now, "path": path[1:], "revision": version + "@" + digest, "size": int64(len(content)), "url": s.url + path,
		},
		"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "Succeeded", "message": version, "lastTransitionTime": now}},
	}
	_, err = artifacts.ApplyStatus(ctx, name, o, s.fieldManager)
	return err
}

// pack packs files as Flux takes them.
func pack(files map[string]string) ([]byte, error) {
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	archive := tar.NewWriter(packed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			return nil, err
		}
		if _, err := archive.Write([]byte(files[name])); err != nil {
			return nil, err
		}
	}
	err := errors.Join(archive.Close(), packed.Close())
	return out.Bytes(), err
}
