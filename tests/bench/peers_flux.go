package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/converge-engine/converge/tests/kubetest/controller"
	"github.com/converge-engine/converge/tests/kubetest/flux"
	"github.com/converge-engine/converge/tests/kubetest/public"
)

// fluxKustomize is the kustomize-controller of Flux (make flux), and for each service a Kustomization and the artifact that it
// takes its Deployment from, which is served by this program: a new version is a new artifact.
func fluxKustomize() peerKind {
	return peerKind{flux.Program(), func(ctx context.Context, b *bench, s *stand) ([]*peer, error) {
		for _, kinds := range public.Flux() {
			if err := controller.Define(ctx, s.client, kinds.Path(s.root)); err != nil {
				return nil, err
			}
		}
		on, err := s.at(ctx, "flux")
		if err != nil {
			return nil, err
		}
		a := &artifacts{at: s.client.Resource(flux.ExternalArtifacts).Namespace(on.name)}
		if a.url, err = serveArtifacts(ctx); err != nil {
			return nil, err
		}
		for _, service := range s.services {
			if err := a.create(ctx, s.client.Resource(flux.Kustomizations).Namespace(on.name), service); err != nil {
				return nil, err
			}
		}
		dir := filepath.Join(b.dir, "flux")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		in := func(setting string, arguments ...string) *peer {
			return &peer{
				name: "Flux kustomize-controller " + public.Flux()[0].Version + setting,
				start: func(log io.Writer) (*controller.Controller, error) {
					return flux.Start(flux.Options{
						Program: flux.Program().Path(s.root), Kubeconfig: s.lab.kubeconfig, Dir: dir, Log: log, Arguments: arguments,
					})
				},
				declare: a.declare, at: s.client.Resource(deployments).Namespace(on.name), done: available,
			}
		}
		return []*peer{in(""), in(", 20 at a time, its client unlimited", "--concurrent=20", "--kube-api-qps=-1")}, nil
	}}
}

// artifacts are those of all services.
type artifacts struct {
	at  dynamic.ResourceInterface
	url string // of who serves them
}

// create makes a service known to Flux. It asks for what it can do with least: nobody waits for what was applied.
func (a *artifacts) create(ctx context.Context, kustomizations dynamic.ResourceInterface, service string) error {
	options := metav1.ApplyOptions{FieldManager: "bench"}
	if _, err := a.at.Apply(ctx, service, objectOf(flux.ExternalArtifacts.GroupVersion().String(), "ExternalArtifact", service, nil), options); err != nil {
		return err
	}
	_, err := kustomizations.Apply(ctx, service, objectOf(flux.Kustomizations.GroupVersion().String(), "Kustomization", service, map[string]any{
		"interval": "1h", "path": "./", "prune": true, "targetNamespace": "flux",
		"sourceRef": map[string]any{"kind": "ExternalArtifact", "name": service},
	}), options)
	return err
}

func objectOf(apiVersion, kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}}
	if spec != nil {
		o.Object["spec"] = spec
	}
	return o
}

// declare gives a service an artifact of a version.
func (a *artifacts) declare(ctx context.Context, service, version string) error {
	content, err := artifactOf(service, version)
	if err != nil {
		return err
	}
	path := service + "/" + version + ".tar.gz"
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(content))
	o := objectOf(flux.ExternalArtifacts.GroupVersion().String(), "ExternalArtifact", service, nil)
	o.Object["status"] = map[string]any{
		"artifact": map[string]any{
			"digest": digest, "lastUpdateTime": time.Now().UTC().Format(time.RFC3339), "path": path,
			"revision": version + "@" + digest, "size": int64(len(content)), "url": a.url + "/" + path,
		},
		"conditions": []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "Succeeded", "message": version, "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		}},
	}
	_, err = a.at.ApplyStatus(ctx, service, o, metav1.ApplyOptions{FieldManager: "bench"})
	return err
}

// artifactOf is a service's Deployment as Flux takes it.
func artifactOf(service, version string) ([]byte, error) {
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	files := tar.NewWriter(packed)
	text := []byte(deploymentOf(service, version))
	err := files.WriteHeader(&tar.Header{Name: "deployment.yaml", Mode: 0o644, Size: int64(len(text))})
	if err == nil {
		_, err = files.Write(text)
	}
	err = errors.Join(err, files.Close(), packed.Close())
	return out.Bytes(), err
}

// serveArtifacts serves all artifacts that there can be until the context ends.
func serveArtifacts(ctx context.Context) (url string, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /{service}/{file}", func(w http.ResponseWriter, r *http.Request) {
		version := strings.TrimSuffix(r.PathValue("file"), ".tar.gz")
		content, err := artifactOf(r.PathValue("service"), version)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(content) // who has gone away asks again
	})
	server := &http.Server{Handler: routes, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return "http://" + listener.Addr().String(), nil
}
